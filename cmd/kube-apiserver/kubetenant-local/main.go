// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kubetenant-local runs a small control plane with tenants on this machine.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // for the time zones of CronJobs, as in upstream's kube-apiserver

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // for --logging-format=json, as in upstream's kube-apiserver
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // for metrics of clients, as in upstream's kube-apiserver
	_ "k8s.io/component-base/metrics/prometheus/version"  // for kubernetes_build_info, as in upstream's kube-apiserver

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local"
)

func main() {
	command := local.NewCommand()
	command.SetContext(genericapiserver.SetupSignalContext())
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, "kubetenant-local:", err)
		os.Exit(1)
	}
}

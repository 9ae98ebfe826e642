// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kube-apiserver is upstream's kube-apiserver with tenants compiled in: the same flags and
// --tenancy-config.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // as upstream's main: time zones of CronJobs

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // as upstream's main: --logging-format=json
	// as upstream's main: metrics of informers, work queues and clients
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version" // as upstream's main: kubernetes_build_info

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app"
)

func main() {
	if err := cli.RunNoErrOutput(app.NewCommand()); err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		os.Exit(1)
	}
}

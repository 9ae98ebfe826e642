// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kube-apiserver is upstream's kube-apiserver with kubetenant compiled in. It has
// upstream's flags and the additional flag --tenancy-config.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // for the time zones of CronJobs, as in upstream's main

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json, as in upstream's main
	// for the metrics of informers, work queues and clients, as in upstream's main
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version" // for kubernetes_build_info, as in upstream's main

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app"
)

func main() {
	if err := cli.RunNoErrOutput(app.NewCommand()); err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		os.Exit(1)
	}
}

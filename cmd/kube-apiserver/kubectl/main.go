// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl is upstream's kubectl of the same release as the server, for the demo and the
// tests.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

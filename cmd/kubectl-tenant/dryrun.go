// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values of --dry-run.
const (
	dryRunClient = "client"
	dryRunServer = "server"
)

func addDryRun(cmd *cobra.Command, mode *string) {
	cmd.Flags().StringVar(mode, "dry-run", "",
		"\"client\": print the changes without making them; \"server\": let the server validate the changes without "+
			"storing them")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunClient
	_ = cmd.RegisterFlagCompletionFunc("dry-run", outputs(dryRunClient, dryRunServer))
}

// checkDryRun returns an error if mode is not a value of --dry-run.
func checkDryRun(mode string) error {
	switch mode {
	case "", dryRunClient, dryRunServer:
		return nil
	}
	return fmt.Errorf("--dry-run=%s: must be client or server", mode)
}

// dryRunOption returns the dry run option of write requests for a value of --dry-run.
func dryRunOption(mode string) []string {
	if mode == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kubetenant-gateway adds tenants to clusters whose kube-apiserver cannot be configured. It
// is a reverse proxy in front of their kube-apiservers.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/serving/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubetenant-gateway:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := command.New("kubetenant-gateway", "Tenant identity for clusters whose kube-apiserver you cannot configure",
		`A reverse proxy in front of one or more kube-apiservers. It authenticates callers,
denies requests across tenants and limits requests over all namespaces to the
caller's tenant. It uses impersonation, with its own credential, to forward requests.
You can run any number of replicas.`)
	cmd.AddCommand(newServeCommand(), newGenerateCommand())
	return cmd
}

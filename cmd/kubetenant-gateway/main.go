// Command kubetenant-gateway gives tenants to clusters whose kube-apiserver nobody may configure,
// by standing in front of them.
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
	cmd := command.New("kubetenant-gateway", "Tenants for clusters whose kube-apiserver nobody may configure",
		`A reverse proxy before one or several kube-apiservers. It authenticates, keeps
tenants apart, limits what goes over all namespaces, and sends requests on by
impersonation with a credential of its own. Any number of replicas.`)
	cmd.AddCommand(newServeCommand(), newGenerateCommand())
	return cmd
}

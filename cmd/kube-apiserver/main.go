// Command kube-apiserver is upstream's kube-apiserver with tenants compiled in: the same flags and
// --tenancy-config. Its subcommand local runs a whole small control plane in one process.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app"
	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local"
)

func main() {
	command := app.NewCommand()
	command.AddCommand(local.NewCommand())
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		os.Exit(1)
	}
}

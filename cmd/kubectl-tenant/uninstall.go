// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/uninstall"
	"github.com/kubetenant/kubetenant/tenant"
)

func newUninstallCommand(flags *client.Flags) *cobra.Command {
	o := &uninstall.Options{Wait: true, ServiceNamespaces: []string{installation.WebhookNamespace}}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove kubetenant from a cluster",
		Long: `Removes kubetenant from a cluster in six steps, and prints each step before it
runs. You can stop the command after any step and run it again: it determines
the remaining work from the cluster. Only the cluster's admin can run it.

 1. It refuses while the servers accept credentials of tenants or have different
    configurations.
 2. It deletes the ClusterRoleBindings that would give tenants' callers more
    rights on a server without kubetenant. It prompts before it deletes a
    binding that kubetenant did not create.
 3. It lists the RoleBindings whose names callers of several tenants share, and
    deletes or keeps them. It deletes expired RoleBindings, and prompts before
    it deletes a binding whose expiry cannot be read.
 4. It removes the finalizers of kubetenant. No tenant is deleted.
 5. It prints the necessary changes of the servers, and waits until no server
    runs kubetenant. Then it repeats steps 2 to 4.
 6. It deletes the webhooks, the policies, the service, all Tenants and other
    objects of kubetenant, and its labels and annotations.

It refuses to start if a CustomResourceDefinition with a name of kubetenant
belongs to another project.

A server without kubetenant does not isolate tenants. Do not change the servers
before step 5.`,
		Example: `  kubectl tenant uninstall --dry-run
  kubectl tenant uninstall --wait=false`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUninstall(cmd, flags, o) },
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "print the planned changes without making them")
	cmd.Flags().BoolVar(&o.Force, "force", false, "continue even if the servers accept credentials of tenants or "+
		"have different configurations, or if Tenants are being deleted. Also continue if kube-apiserver's own bindings "+
		"would give tenants' callers more rights, or if a server cannot be reached or may still call the webhook service")
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "answer every question with yes")
	cmd.Flags().BoolVar(&o.KeepBindings, "keep-bindings", false,
		"keep the RoleBindings whose names callers of several tenants share, or whose expiry cannot be read")
	cmd.Flags().BoolVar(&o.Wait, "wait", true, "wait until no server runs kubetenant; if false, stop before that")
	return cmd
}

// runUninstall uninstalls kubetenant from the selected cluster.
func runUninstall(cmd *cobra.Command, flags *client.Flags, o *uninstall.Options) error {
	c, err := flags.Cluster()
	if err != nil {
		return err
	}
	if o.Admin, err = uninstall.NewClients(c.Config); err != nil {
		return err
	}
	manager := rest.CopyConfig(c.Config)
	manager.Impersonate = rest.ImpersonationConfig{
		UserName: tenant.ManagerUser,
		Groups:   []string{user.SystemPrivilegedGroup},
	}
	if o.Manager, err = uninstall.NewClients(manager); err != nil {
		return err
	}
	o.CheckServers = uninstall.NewServerChecker(c.Config).Check
	o.Printf = func(format string, args ...any) {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), output.Safe(fmt.Sprintf(format, args...)))
	}
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		o.Confirm = func(question string) (bool, error) { return confirmYes(cmd.Context(), cmd, question) }
	}
	return c.Explain(uninstall.Run(withoutLog(cmd.Context()), o))
}

// confirmYes prints a question on the terminal and reads the answer. Every answer except "y"
// and "yes" means no.
func confirmYes(ctx context.Context, cmd *cobra.Command, question string) (bool, error) {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", output.Safe(question))
	typed := make(chan string, 1)
	go func() { // the goroutine remains until the process ends if no input arrives
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		typed <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case line := <-typed:
		return line == "y" || line == "yes", nil
	}
}

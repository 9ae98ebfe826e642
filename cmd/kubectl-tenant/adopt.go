// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

func newAdoptCommand(flags *client.Flags) *cobra.Command {
	name := ""
	config := ""
	mode := ""
	yes := false
	force := false
	cmd := &cobra.Command{
		Use:   "adopt NAMESPACE... --tenant T",
		Short: "Assign existing namespaces to a tenant",
		Long: `Adds the tenant's label to namespaces that have no tenant, and to the objects in
them. From then on, the tenant's callers have their rights in these namespaces.

"kubectl tenant release" can undo this only while a namespace is almost empty.
The command therefore prompts you for the tenant's name, unless you set --yes.
It refuses a tenant that has no Tenant object, unless you set --force. It always
refuses system namespaces.

It runs the server's admission plugins on each object and lists the objects that
the tenant could not have created. Examples are DaemonSets, pods that request a
node, and bindings to service accounts of other tenants. These objects stay
unchanged, and the server may refuse later changes to them.

With --dry-run nothing is labeled, and the exit status is 1 if such objects
exist.`,
		Example: `  kubectl tenant adopt web db --tenant acme --dry-run=client --config tenancy.yaml`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := client.ParseTenant("--tenant", name)
			problems := []error{err, checkDryRun(mode)}
			if id.IsSystem() {
				problems = append(problems,
					errors.New("--tenant system: namespaces without a label already belong to the system tenant"))
			}
			for _, ns := range args {
				problems = append(problems, client.CheckNamespace("NAMESPACE", ns))
			}
			if err := errors.Join(problems...); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			server, done, err := serverSettings(cmd, c, config)
			if err != nil {
				return err
			}
			defer done()
			a := &tenancy.Adoption{
				Tenant:  id,
				Config:  server,
				DryRun:  mode != "",
				Server:  mode == dryRunServer,
				Changes: output.NewChanges(cmd.OutOrStdout(), mode, ""),
				Printf:  warnTo(cmd),
				Warnf:   warnTo(cmd),
			}
			if a.Kube, err = c.Kube(); err != nil {
				return err
			}
			if a.Objects, err = dynamic.NewForConfig(c.Config); err != nil {
				return err
			}
			return c.Explain(adopt(cmd, a, args, adoptOptions{yes: yes, force: force}))
		},
	}
	cmd.Flags().StringVar(&name, "tenant", "", "tenant that gets the namespaces (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation")
	cmd.Flags().BoolVar(&force, "force", false, "adopt even if the tenant has no Tenant object")
	_ = cmd.MarkFlagRequired("tenant")
	_ = cmd.RegisterFlagCompletionFunc("tenant", flags.CompleteTenants)
	cmd.ValidArgsFunction = flags.CompleteNamespaces
	addConfig(cmd, &config)
	addDryRun(cmd, &mode)
	return cmd
}

// warnTo returns a function that prints to standard error.
func warnTo(cmd *cobra.Command) func(string, ...any) {
	return func(format string, args ...any) {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), output.Safe(fmt.Sprintf(format, args...)))
	}
}

// adoptOptions specifies which checks adopt skips.
type adoptOptions struct{ yes, force bool }

// adopt checks all namespaces before it changes the first.
func adopt(cmd *cobra.Command, a *tenancy.Adoption, names []string, o adoptOptions) error {
	ctx := withoutLog(cmd.Context())
	refused := 0
	var adopted []string
	for _, name := range names {
		ns, err := a.Check(ctx, name)
		if err != nil {
			return err
		}
		if ns.Labels[tenant.Label] == "" {
			adopted = append(adopted, name)
		}
	}
	if !o.force {
		if err := a.CheckTenant(ctx); err != nil {
			return err
		}
	}
	if len(adopted) > 0 && !o.yes && !a.DryRun {
		what := fmt.Sprintf("This assigns %d namespaces (%s) to tenant %s, with all objects in them.",
			len(adopted), strings.Join(adopted, ", "), a.Tenant)
		if err := confirm(cmd, confirmation{
			does: what,
			kind: "the tenant's name",
			name: a.Tenant.String(),
			done: "changed",
		}); err != nil {
			return err
		}
	}
	for _, name := range names {
		ns, err := a.Check(ctx, name)
		if err != nil {
			return err
		}
		n, err := a.Adopt(ctx, ns)
		if err != nil {
			return err
		}
		refused += n
	}
	if refused > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "objects that the tenant could not have created: %d\n", refused)
		if a.DryRun {
			return errFailed
		}
	}
	return nil
}

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/client"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/tenancy"
)

func newAdoptCommand(flags *client.Flags) *cobra.Command {
	name, config, mode := "", "", ""
	cmd := &cobra.Command{
		Use:   "adopt NAMESPACE... --tenant T",
		Short: "Give existing namespaces to a tenant",
		Long: `Labels namespaces that are nobody's, and the objects in them, as a tenant's.
That cannot be taken back: an owner never changes.

It runs the server's admission plugins over each object and says which the
tenant could not have made, as DaemonSets, pods that ask for a node, or bindings
to service accounts of others: they stay as they are, and changes to them may be
refused. With --dry-run nothing is labelled. Exit status 1 if there are any such
objects in a dry run.`,
		Example: `  kubectl tenant adopt web db --tenant acme --dry-run=client --config tenancy.yaml`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := client.ParseTenant("--tenant", name)
			problems := []error{err, checkDryRun(mode)}
			if id.IsSystem() {
				problems = append(problems, errors.New("--tenant system: namespaces without a label are the system tenant's already"))
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
			known, done, err := serverSettings(cmd, c, config)
			if err != nil {
				return err
			}
			defer done()
			a := &tenancy.Adoption{Tenant: id, Config: known, DryRun: mode != "", Say: sayTo(cmd, mode),
				Warn: func(format string, args ...any) {
					_, _ = fmt.Fprintln(cmd.ErrOrStderr(), output.Safe(fmt.Sprintf(format, args...)))
				}}
			if a.Kube, err = c.Kube(); err != nil {
				return err
			}
			if a.Objects, err = dynamic.NewForConfig(c.Config); err != nil {
				return err
			}
			return c.Explain(adopt(cmd, a, args))
		},
	}
	cmd.Flags().StringVar(&name, "tenant", "", "the tenant (required)")
	_ = cmd.MarkFlagRequired("tenant")
	_ = cmd.RegisterFlagCompletionFunc("tenant", flags.CompleteTenants)
	cmd.ValidArgsFunction = flags.CompleteNamespaces
	addConfig(cmd, &config)
	addDryRun(cmd, &mode)
	return cmd
}

// adopt looks at all namespaces before it changes the first.
func adopt(cmd *cobra.Command, a *tenancy.Adoption, names []string) error {
	ctx := quiet(cmd.Context())
	refused := 0
	for _, name := range names {
		if _, err := a.Check(ctx, name); err != nil {
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
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%d objects that the tenant could not make\n", refused)
		if a.DryRun {
			return errFailed
		}
	}
	return nil
}

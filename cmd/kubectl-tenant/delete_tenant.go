package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

// deletionWait is how long delete-tenant waits for a tenant to end: a server looks for its
// namespaces once more after a minute and a half.
const deletionWait = 10 * time.Minute

func newDeleteTenantCommand(flags *client.Flags) *cobra.Command {
	everything, yes, wait, mode, config := false, false, true, "", ""
	cmd := &cobra.Command{
		Use:   "delete-tenant TENANT",
		Short: "End a tenant that is empty, or with everything in it",
		Long: `Has the server end a tenant: it sets spec.deletionPolicy of its Tenant to Delete
and deletes the Tenant. While a namespace of it holds anything beside what is in
every namespace it refuses, and says what; --with-everything deletes that too.

It asks for the tenant's name to be typed, unless --yes is given, and waits ten
minutes at the most, which --wait=false does not. The server goes on all the
same: callers of the tenant may only read, its namespaces, bindings and quotas
go, and when no namespace has been there for a minute and a half, the Tenant.
The name is nobody's then (kubectl tenant retired), until create-tenant
--replaces gives it to another.

Of a tenant that has no Tenant the command deletes what there is, and its name
may be used again at once. It deletes no system namespace.`,
		Example: `  kubectl tenant delete-tenant acme --dry-run=server
  kubectl tenant delete-tenant acme --with-everything --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := client.ParseTenant("tenant", args[0])
			if err == nil && id.IsSystem() {
				err = errors.New("the system tenant cannot be deleted")
			}
			if err := errors.Join(err, checkDryRun(mode)); err != nil {
				return err
			}
			c, k, d, err := flags.Clients()
			if err != nil {
				return err
			}
			system, err := systemNamespaces(cmd, c, config)
			if err != nil {
				return err
			}
			progress := output.NewProgress(cmd.ErrOrStderr())
			defer progress.Done()
			how := tenancy.Deletion{
				Everything: everything,
				System:     system,
				Nothing:    mode == dryRunClient,
				Writing:    tenancy.Writing{DryRun: dryRunOption(mode), Say: sayTo(cmd, mode)},
				Left:       func(what string) { progress.Say("%s", output.Safe(what)) },
			}
			if wait {
				how.Wait = deletionWait
			}
			if !yes {
				how.Confirm = func(namespaces []string) error { return confirmDeletion(cmd, id, namespaces) }
			}
			err = tenancy.Delete(cmd.Context(), k, d, id, how)
			progress.Done()
			if apierrors.IsForbidden(err) {
				err = fmt.Errorf("%w: only a cluster admin may delete a tenant: %w", tenancy.ErrRefused, err)
			}
			return c.Explain(withNearest(cmd.Context(), c, id.String(), err))
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the tenant has ended")
	cmd.Flags().BoolVar(&everything, "with-everything", false, "delete what is in its namespaces too")
	cmd.ValidArgsFunction = flags.CompleteTenants
	addConfig(cmd, &config)
	addDryRun(cmd, &mode)
	return cmd
}

// confirmDeletion has the name of a tenant typed.
func confirmDeletion(cmd *cobra.Command, id tenant.ID, namespaces []string) error {
	what := fmt.Sprintf("This deletes tenant %s with %d namespaces (%s).",
		id, len(namespaces), strings.Join(namespaces, ", "))
	return confirm(cmd, confirmation{
		does: what,
		kind: "its name",
		name: id.String(),
		done: "deleted",
	})
}

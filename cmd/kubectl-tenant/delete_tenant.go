// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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

// deletionWait is how long delete-tenant waits for the deletion of a tenant. A server checks the
// tenant's namespaces a second time after a minute and a half.
const deletionWait = 10 * time.Minute

func newDeleteTenantCommand(flags *client.Flags) *cobra.Command {
	everything := false
	yes := false
	wait := true
	mode := ""
	config := ""
	cmd := &cobra.Command{
		Use:   "delete-tenant TENANT",
		Short: "Delete a tenant",
		Long: `Deletes a tenant: the command sets spec.deletionPolicy of its Tenant object to
Delete, and deletes the object. If the tenant's namespaces are not empty, it
refuses and lists their contents. To delete the contents too, set
--with-everything. Objects that every namespace has do not matter.

The command prompts you for the tenant's name, unless you set --yes. It waits
up to ten minutes for the server to finish. --wait=false returns immediately,
and the deletion continues.

During the deletion, callers of the tenant can only read and delete. The server
deletes the namespaces, bindings and quotas. It deletes the Tenant object
90 seconds after the last namespace. The tenant's name then stays reserved (see
kubectl tenant retired) until create-tenant --replaces gives it to a new tenant.

If the tenant has no Tenant object, the command deletes the rest directly, and
the name can be reused at once. It never deletes system namespaces.`,
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
			opts := tenancy.Deletion{
				Everything:   everything,
				System:       system,
				ClientDryRun: mode == dryRunClient,
				Writing:      writing(cmd, mode, output.NewFormat()),
				OnProgress:   func(what string) { progress.Update("%s", output.Safe(what)) },
			}
			if wait {
				opts.Wait = deletionWait
			}
			if !yes {
				opts.Confirm = func(namespaces []string) error { return confirmDeletion(cmd, id, namespaces) }
			}
			err = tenancy.Delete(cmd.Context(), k, d, id, opts)
			progress.Done()
			if apierrors.IsForbidden(err) {
				err = fmt.Errorf("%w: only a cluster admin can delete a tenant: %w", tenancy.ErrRefused, err)
			}
			return c.Explain(withNearest(cmd.Context(), c, id.String(), err))
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the tenant is deleted")
	cmd.Flags().BoolVar(&everything, "with-everything", false, "delete the contents of its namespaces too")
	cmd.ValidArgsFunction = flags.CompleteTenants
	addConfig(cmd, &config)
	addDryRun(cmd, &mode)
	return cmd
}

// confirmDeletion prompts the caller to type the name of the tenant.
func confirmDeletion(cmd *cobra.Command, id tenant.ID, namespaces []string) error {
	what := fmt.Sprintf("This deletes tenant %s with its namespaces (%s).",
		id, strings.Join(namespaces, ", "))
	return confirm(cmd, confirmation{
		does: what,
		kind: "the tenant's name",
		name: id.String(),
		done: "deleted",
	})
}

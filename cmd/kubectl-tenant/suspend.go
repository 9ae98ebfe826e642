// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func newSuspendCommand(flags *client.Flags) *cobra.Command {
	readOnly := false
	mode := ""
	cmd := &cobra.Command{
		Use:   "suspend TENANT",
		Short: "Deny a tenant's callers access, or limit them to reading",
		Long: `Suspends a tenant: its users and service accounts can only send self reviews,
such as kubectl auth whoami. With --read-only, they can get, list, watch and
delete, but not exec, attach, forward ports or use a proxy. The server ends
active connections that are no longer allowed. The tenant's pods and the
cluster's own controllers continue to run.

The command sets spec.suspension of the Tenant object: do not set that field in
manifests that you keep in Git. The stricter of spec.suspension and spec.access
applies.`,
		Example: `  kubectl tenant suspend acme --read-only
  kubectl tenant resume acme`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			suspension := v1alpha1.TenantAccessClosed
			if readOnly {
				suspension = v1alpha1.TenantAccessReadOnly
			}
			return suspend(cmd, flags, args[0], suspension, mode)
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "still allow reads and deletes")
	cmd.ValidArgsFunction = flags.CompleteTenants
	addDryRun(cmd, &mode)
	return cmd
}

func newResumeCommand(flags *client.Flags) *cobra.Command {
	mode := ""
	cmd := &cobra.Command{
		Use:   "resume TENANT",
		Short: "End the suspension of a tenant",
		Long: `Ends the suspension of a tenant. From then on, spec.access of the Tenant object
applies again.`,
		Example: `  kubectl tenant resume acme`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return suspend(cmd, flags, args[0], "", mode) },
	}
	cmd.ValidArgsFunction = flags.CompleteTenants
	addDryRun(cmd, &mode)
	return cmd
}

var errSuspendSystem = errors.New("the system tenant cannot be suspended")

func suspend(
	cmd *cobra.Command, flags *client.Flags, name string, suspension v1alpha1.TenantAccess, mode string,
) error {
	id, err := client.ParseTenant("tenant", name)
	if err == nil && id.IsSystem() {
		err = errSuspendSystem
	}
	if err := errors.Join(err, checkDryRun(mode)); err != nil {
		return err
	}
	verb, wanted := output.Suspended, suspension
	if suspension == "" {
		verb, wanted = output.Resumed, v1alpha1.TenantAccessOpen
	}
	access := wanted
	if mode != dryRunClient { // a client dry run sends no request
		c, _, d, err := flags.Clients()
		if err != nil {
			return err
		}
		current, changed, err := tenancy.Suspend(cmd.Context(), d, id, suspension, dryRunOption(mode))
		if err != nil {
			return c.Explain(err)
		}
		if access = current; !changed {
			verb = output.Unchanged
		}
	}
	output.NewChanges(cmd.OutOrStdout(), mode, "").Print(tenantObjects, id.ObjectName(), verb)
	if access != wanted {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: spec.access: %s still applies\n", access)
	}
	return nil
}

func newAdoptTenantsCommand(flags *client.Flags) *cobra.Command {
	mode := ""
	config := ""
	format := output.NewObjectFormat()
	adoption := &tenancy.ObjectAdoption{}
	cmd := &cobra.Command{
		Use:   "adopt-tenants [TENANT...]",
		Short: "Create the missing Tenant objects of tenants with namespaces",
		Long: `Creates a Tenant object for each tenant that owns a namespace and has none, or
only for the named tenants. Use it if tenants were defined by labels only.
Nothing else changes. When every tenant has a Tenant object, you can set
authorization.requireTenant to Warn, and later to Always.

With --admins, some identities become admins of the Tenant object: those with
the ClusterRole admin in all namespaces of the tenant by grant-privileges,
without an expiry. They are then also admins of new namespaces, and can create
namespaces. The server deletes their former bindings when the new rights apply.

With -o, the command prints the objects. Add --dry-run=client to write them to a
file for version control.`,
		Example: `  kubectl tenant adopt-tenants --dry-run=client -o yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			problems := []error{checkDryRun(mode), format.Check()}
			for _, name := range args {
				id, err := client.ParseTenant("tenant", name)
				adoption.Only, problems = append(adoption.Only, id), append(problems, err)
			}
			if err := errors.Join(problems...); err != nil {
				return err
			}
			c, k, d, err := flags.Clients()
			if err != nil {
				return err
			}
			if adoption.System, err = systemNamespaces(cmd, c, config); err != nil {
				return err
			}
			w := writing(cmd, mode, format)
			adoption.ClientDryRun = mode == dryRunClient
			created, err := tenancy.AdoptTenants(cmd.Context(), k, d, adoption, w)
			if err != nil {
				return c.Explain(err)
			}
			switch {
			case len(created) == 0 && len(adoption.Only) > 0:
				w.Printf("none of the named tenants owns a namespace and lacks a Tenant object")
			case len(created) == 0:
				w.Printf("every tenant that owns a namespace has a Tenant object")
			}
			return printObjects(cmd, format, created...)
		},
	}
	cmd.ValidArgsFunction = flags.CompleteTenants
	cmd.Flags().BoolVar(&adoption.Admins, "admins", false,
		"add identities with the ClusterRole admin in all namespaces by grant-privileges as admins")
	addConfig(cmd, &config)
	addDryRun(cmd, &mode)
	format.AddFlags(cmd)
	return cmd
}

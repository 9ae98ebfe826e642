package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func newSuspendCommand(flags *client.Flags) *cobra.Command {
	readOnly, mode := false, ""
	cmd := &cobra.Command{
		Use:   "suspend TENANT",
		Short: "Close a tenant to its callers, or let them only read",
		Long: `Closes a tenant: its people and its service accounts may do nothing but ask who
they are and what they may do. With --read-only they may get, list, watch and
delete, but not exec, attach, forward ports or use a proxy. What they have open
that they may do no more ends. Its pods go on, and so do the cluster's own
controllers.

It is written to spec.suspension of the Tenant: leave that field out where the
object is kept in Git. Of it and spec.access the stricter counts.`,
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
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "let them read and delete")
	cmd.ValidArgsFunction = flags.CompleteTenants
	addDryRun(cmd, &mode)
	return cmd
}

func newResumeCommand(flags *client.Flags) *cobra.Command {
	mode := ""
	cmd := &cobra.Command{
		Use:   "resume TENANT",
		Short: "End the suspension of a tenant",
		Long: `Ends what suspend has begun. How far its callers may go then is what spec.access
of the Tenant says: all the way, unless somebody wrote something else.`,
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
	counts := suspension
	if mode != dryRunClient { // which asks no cluster
		c, _, d, err := flags.Clients()
		if err != nil {
			return err
		}
		if counts, err = tenancy.Suspend(cmd.Context(), d, id, suspension, dryRunOption(mode)); err != nil {
			return c.Explain(err)
		}
	}
	sayTo(cmd, mode)("tenant %s: %s", id, map[v1alpha1.TenantAccess]string{
		"":                            "its suspension ends",
		v1alpha1.TenantAccessOpen:     "its callers may do what they may",
		v1alpha1.TenantAccessReadOnly: "its callers may only read and delete",
		v1alpha1.TenantAccessClosed:   "it is closed to its callers",
	}[counts])
	return nil
}

func newAdoptTenantsCommand(flags *client.Flags) *cobra.Command {
	mode, config, format, adoption := "", "", output.NewObjectFormat(), &tenancy.ObjectAdoption{}
	cmd := &cobra.Command{
		Use:   "adopt-tenants [TENANT...]",
		Short: "Create the Tenants that tenants with namespaces lack",
		Long: `Makes a Tenant for each tenant that owns a namespace and has none, or for those
that are named: for clusters whose tenants were labels alone. Nothing else
changes for anybody. Once every tenant has one, the configuration may say
authorization.requireTenant: Warn, and then Always.

With --admins those to whom grant-privileges gave the ClusterRole admin in all
namespaces of a tenant, for good, become its admins: they have it in new ones
too, and make such. The bindings they had go as soon as the server has given
them theirs.

With -o it prints them: with --dry-run=client to keep them in a repository.`,
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
			say := sayTo(cmd, mode)
			if !format.IsForPeople() {
				say = func(string, ...any) {}
			}
			adoption.Nothing = mode == dryRunClient
			made, err := tenancy.AdoptTenants(cmd.Context(), k, d, adoption,
				tenancy.Writing{DryRun: dryRunOption(mode), Say: say})
			if err != nil {
				return c.Explain(err)
			}
			switch {
			case len(made) == 0 && len(adoption.Only) > 0:
				say("nobody of those that are named owns a namespace and lacks a Tenant")
			case len(made) == 0:
				say("every tenant that owns a namespace has a Tenant")
			}
			return printObjects(cmd, format, made...)
		},
	}
	cmd.ValidArgsFunction = flags.CompleteTenants
	cmd.Flags().BoolVar(&adoption.Admins, "admins", false,
		"make admins of those who have the ClusterRole admin in all namespaces by grant-privileges")
	addConfig(cmd, &config)
	addDryRun(cmd, &mode)
	format.AddFlags(cmd)
	return cmd
}

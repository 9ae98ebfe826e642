package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/client"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

func newTenantsCommand() *cobra.Command {
	flags := client.NewFlags()
	format := ""
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "List the tenants with their namespaces, admins and quota",
		Long: `Lists the tenants: whoever owns a namespace, was made by create-tenant or has a
TenantQuota. There is no object for a tenant: it is the label of its namespaces and the
bindings of its people. Admins are those to whom the role admin (or cluster-admin) is
bound in one of its namespaces, or as the tenant's group in all of them.`,
		Example: `  kubectl tenant tenants -o wide`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format, output.JSON, output.YAML, wide, "name"); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			all, err := listTenants(cmd, c)
			if err != nil {
				return c.Explain(err)
			}
			return printTenants(cmd, all, format)
		},
	}
	flags.AddFlags(cmd)
	addFormat(cmd, &format, output.JSON, output.YAML, wide, "name")
	return cmd
}

func listTenants(cmd *cobra.Command, c *client.Cluster) ([]*tenancy.Tenant, error) {
	progress := output.NewProgress(cmd.ErrOrStderr())
	defer progress.Done()
	p, err := privileges.Read(cmd.Context(), c.Config, privileges.Selection{Keep: tenancy.IsOfTenants}, func(n int64) { progress.Say("%d objects read", n) })
	if err != nil {
		return nil, err
	}
	if slices.Contains(p.Unread, "Namespaces") {
		return nil, errors.New("you may not list namespaces: ask for get, list and watch of them")
	}
	d, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	all, unread, err := tenancy.List(cmd.Context(), p, d)
	progress.Done()
	if len(unread) > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "you may not list %s: what they say is missing\n", strings.Join(unread, ", "))
	}
	return all, err
}

func printTenants(cmd *cobra.Command, all []*tenancy.Tenant, format string) error {
	out := cmd.OutOrStdout()
	if done, err := output.Value(out, format, map[string]any{"tenants": all}); done {
		return err
	}
	var rows [][]string
	for _, t := range all {
		switch format {
		case "name":
			if _, err := fmt.Fprintln(out, t.Name); err != nil {
				return err
			}
			continue
		case wide:
			rows = append(rows, []string{t.Name, strings.Join(t.Namespaces, ", "), strings.Join(t.Admins, ", "), t.Usage()})
		default:
			rows = append(rows, []string{t.Name, strconv.Itoa(len(t.Namespaces)), shortened(t.Admins), t.Usage()})
		}
	}
	if format == "name" {
		return nil
	}
	return output.NewScreen(out).Table([]string{"TENANT", "NAMESPACES", "ADMINS", "QUOTA"}, rows)
}

// shortened returns the first few of a list.
func shortened(all []string) string {
	const shown = 3
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

func newCreateTenantCommand() *cobra.Command {
	flags := client.NewFlags()
	var admins, namespaces []string
	mode := ""
	cmd := &cobra.Command{
		Use:   "create-tenant TENANT --admin USER... [--namespaces NS,...]",
		Short: "Make a tenant: its namespaces and the bindings of its admins",
		Long: `Makes the namespaces of a tenant, binds the role admin to each of its admins in each of
them, and lets every caller of the tenant see its own namespaces. Without --namespaces it
makes TENANT--default. Run again, it adds what is new.

Admins are bound namespace by namespace: a ClusterRoleBinding to a user would reach the
users of that name of all tenants, each in its own namespaces.`,
		Example: `  kubectl tenant create-tenant acme --admin alice --namespaces acme--web,acme--db`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(namespaces) == 0 {
				id, err := tenant.Parse(args[0])
				if err == nil && !id.IsSystem() {
					if id.NamespacePrefix() == "" {
						return fmt.Errorf("tenant %q: no namespace's name can begin with it: name its namespaces with --namespaces", args[0])
					}
					namespaces = []string{id.NamespacePrefix() + "default"}
				}
			}
			id, err := checkNewTenant(args[0], admins, namespaces)
			if err := errors.Join(err, checkDryRun(mode)); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			say := sayTo(cmd, mode)
			if mode == dryRunClient {
				say("tenant %s with namespaces %s and admins %s", id, strings.Join(namespaces, ", "), strings.Join(admins, ", "))
				return nil
			}
			k, err := c.Kube()
			if err != nil {
				return err
			}
			return c.Explain(tenancy.Create(cmd.Context(), k, &tenancy.New{ID: id, Admins: admins, Namespaces: namespaces}, tenancy.Writing{DryRun: dryRunOption(mode), Say: say}))
		},
	}
	cmd.Flags().StringSliceVar(&admins, "admin", nil, "users who are admins of the tenant (required, may be repeated)")
	cmd.Flags().StringSliceVar(&namespaces, "namespaces", nil, "namespaces of the tenant")
	_ = cmd.MarkFlagRequired("admin")
	cmd.ValidArgsFunction = flags.CompleteTenants
	_ = cmd.RegisterFlagCompletionFunc("admin", flags.CompleteUsers)
	addDryRun(cmd, &mode)
	flags.AddFlags(cmd)
	return cmd
}

// checkNewTenant returns the tenant of a name, or every problem that the words have.
func checkNewTenant(name string, admins, namespaces []string) (tenant.ID, error) {
	id, err := client.ParseTenant("tenant", name)
	problems := []error{err}
	if id.IsSystem() {
		problems = append(problems, errors.New("the system tenant is there already: it owns all that no tenant owns"))
	}
	for _, admin := range admins {
		problems = append(problems, client.CheckUser("--admin", admin))
		if strings.HasPrefix(admin, "system:") {
			problems = append(problems, fmt.Errorf("--admin %q: names that begin system: are the system tenant's", admin))
		}
	}
	for _, ns := range namespaces {
		problems = append(problems, client.CheckNamespace("--namespaces", ns))
	}
	return id, errors.Join(problems...)
}

// sayTo prints what was done, or would be.
func sayTo(cmd *cobra.Command, mode string) func(string, ...any) {
	note := ""
	if mode != "" {
		note = " (dry run)"
	}
	return func(format string, args ...any) {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), output.Safe(fmt.Sprintf(format, args...))+note)
	}
}

func newDeleteTenantCommand() *cobra.Command {
	flags := client.NewFlags()
	everything, mode := false, ""
	cmd := &cobra.Command{
		Use:   "delete-tenant TENANT",
		Short: "Delete a tenant that is empty",
		Long: `Deletes the namespaces of a tenant, its quota and the bindings that create-tenant made.
While a namespace of it holds anything beside what is in every namespace it refuses, and
says what; --with-everything deletes that too.

What others' namespaces say about the tenant, as access grants, stays: it lets nobody in
once nobody is of the tenant.`,
		Example: `  kubectl tenant delete-tenant acme --dry-run=server`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := client.ParseTenant("tenant", args[0])
			if err == nil && id.IsSystem() {
				err = errors.New("the system tenant cannot be deleted")
			}
			if err := errors.Join(err, checkDryRun(mode)); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			k, err := c.Kube()
			if err != nil {
				return err
			}
			d, err := dynamic.NewForConfig(c.Config)
			if err != nil {
				return err
			}
			return c.Explain(tenancy.Delete(cmd.Context(), k, d, id, tenancy.Deletion{Everything: everything, Nothing: mode == dryRunClient,
				Writing: tenancy.Writing{DryRun: dryRunOption(mode), Say: sayTo(cmd, mode)}}))
		},
	}
	cmd.Flags().BoolVar(&everything, "with-everything", false, "delete what is in its namespaces too")
	cmd.ValidArgsFunction = flags.CompleteTenants
	addDryRun(cmd, &mode)
	flags.AddFlags(cmd)
	return cmd
}

func newAdoptCommand() *cobra.Command {
	flags := client.NewFlags()
	name, config, mode := "", "", ""
	cmd := &cobra.Command{
		Use:   "adopt NAMESPACE... --tenant T",
		Short: "Give existing namespaces to a tenant",
		Long: `Labels namespaces that are nobody's, and the objects in them, as a tenant's. That cannot
be taken back: an owner never changes.

It runs the server's admission plugins over each object and says which the tenant could
not have made, as DaemonSets, pods that ask for a node, or bindings to service accounts
of others: they stay as they are, and changes to them may be refused. With --dry-run
nothing is labelled. Exit status 1 if there are any such objects in a dry run.`,
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
			known, err := settings(config)
			if err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			assumed(cmd, config)
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
	flags.AddFlags(cmd)
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

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/client"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/installation"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

func newTenantsCommand(flags *client.Flags) *cobra.Command {
	format, o := output.NewListFormat(), tenantsOptions{}
	cmd := &cobra.Command{
		Use:   "tenants [TENANT...]",
		Short: "List the tenants with their namespaces, admins and quota",
		Long: `Lists the tenants: whoever owns a namespace, has a Tenant or a TenantQuota, or
was made by create-tenant. Admins are those to whom the role admin (or
cluster-admin) is bound in one of its namespaces, or as the tenant's group in
all of them. With -o wide it shows how far the callers of each may go (access),
of those that have a Tenant.

-l selects by the labels of namespaces: the tenants that own such, with those
only.`,
		Example: `  kubectl tenant tenants -o wide
  kubectl tenant tenants acme -o jsonpath='{.items[0].namespaces}'
  kubectl tenant tenants --watch`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.names = args
			if err := errors.Join(format.Check(), o.check()); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			return c.Explain(o.run(cmd, c, format))
		},
	}
	cmd.ValidArgsFunction = flags.CompleteTenants
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "labels of namespaces, as in -l env=prod")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on: whenever namespaces change, print each tenant that is another than before")
	format.AddFlags(cmd)
	return cmd
}

// tenantsOptions are the flags and arguments of tenants.
type tenantsOptions struct {
	names    []string
	selector string
	watch    bool

	labels labels.Selector
}

func (o *tenantsOptions) check() error {
	var problems []error
	for _, name := range o.names {
		_, err := client.ParseTenant("tenant", name)
		problems = append(problems, err)
	}
	var err error
	if o.labels, err = labels.Parse(o.selector); err != nil {
		problems = append(problems, fmt.Errorf("-l %s: %w", o.selector, err))
	}
	return errors.Join(problems...)
}

// run prints the tenants, and where it watches those that change.
func (o *tenantsOptions) run(cmd *cobra.Command, c *client.Cluster, format *output.Format) error {
	k, err := c.Kube()
	if err != nil {
		return err
	}
	own, err := limitedTo(cmd.Context(), c)
	if err != nil {
		return err
	}
	var changes watch.Interface
	if o.watch { // before the list: what changes in between is seen
		options := privileges.Limit(own, "Namespaces")
		options.AllowWatchBookmarks = true
		if changes, err = k.CoreV1().Namespaces().Watch(cmd.Context(), options); err != nil {
			return err
		}
		defer changes.Stop()
	}
	shown := map[string]output.Row{}
	for {
		all, unread, err := o.list(cmd, c, own)
		if err != nil {
			return err
		}
		rows := changed(shown, tenantRows(all, unread))
		if !o.watch {
			return printList(cmd, format, rows)
		}
		if err := format.List(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
		format.NoMoreHeaders()
		if err := settle(cmd.Context(), changes); err != nil {
			return err
		}
	}
}

// settleFor is how long it is waited for further changes after one.
const settleFor = 500 * time.Millisecond

var errWatchEnded = errors.New("the server ended the watch: run the same again")

// settle waits for a change, and until there were none for a moment.
func settle(ctx context.Context, changes watch.Interface) error {
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet:
			return nil
		case e, open := <-changes.ResultChan():
			if !open || e.Type == watch.Error {
				return errWatchEnded
			}
			if e.Type != watch.Bookmark {
				quiet = time.After(settleFor)
			}
		}
	}
}

// list returns the tenants, and the kinds that the caller may not list.
func (o *tenantsOptions) list(cmd *cobra.Command, c *client.Cluster, own tenant.ID) (all []*tenancy.Tenant, unread []string, err error) {
	progress := output.NewProgress(cmd.ErrOrStderr())
	defer progress.Done()
	selection := privileges.Selection{Keep: tenancy.IsOfTenants, Tenant: own}
	p, err := readSnapshot(cmd.Context(), c, selection, func(n int64) { progress.Say("%d objects read", n) })
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(p.Unread, "Namespaces") {
		return nil, nil, errors.New("you may not list namespaces: ask for get, list and watch of them")
	}
	if o.selector != "" {
		if err := o.keepSelected(cmd.Context(), c, p, own); err != nil {
			return nil, nil, err
		}
	}
	d, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return nil, nil, err
	}
	config, _, err := policyLines(cmd.Context(), c, nil)
	if err != nil {
		return nil, nil, err
	}
	all, unread, err = tenancy.List(cmd.Context(), p.Under(config), d, own)
	progress.Done()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range o.names {
		if !slices.ContainsFunc(all, func(t *tenancy.Tenant) bool { return t.Name == name }) && !o.watch {
			return nil, nil, withNearest(cmd.Context(), c, name, fmt.Errorf("tenant %s: %w", name, tenancy.ErrNoTenant))
		}
	}
	return slices.DeleteFunc(all, func(t *tenancy.Tenant) bool {
		return len(o.names) > 0 && !slices.Contains(o.names, t.Name) || o.selector != "" && len(t.Namespaces) == 0
	}), unread, nil
}

// limitedTo returns the tenant to which lists must be limited: that of a tenant's caller behind the webhook service, which
// cannot limit them itself. It returns the zero ID if lists need no limit.
func limitedTo(ctx context.Context, c *client.Cluster) (tenant.ID, error) {
	found, err := c.Installation(ctx)
	if err != nil || found.Mode != installation.Webhook {
		return tenant.ID{}, err
	}
	caller, err := c.WhoAmI(ctx)
	if err != nil {
		return tenant.ID{}, err
	}
	id, err := tenant.Parse(caller.Tenant)
	if err != nil || id.IsSystem() {
		return tenant.ID{}, nil // the server refuses a caller without a tenant
	}
	return id, nil
}

// keepSelected leaves the namespaces that the selector selects.
func (o *tenantsOptions) keepSelected(ctx context.Context, c *client.Cluster, p *simulator.Snapshot, own tenant.ID) error {
	k, err := c.Kube()
	if err != nil {
		return err
	}
	selected := o.labels
	if limit, _ := labels.ParseToRequirements(privileges.Limit(own, "Namespaces").LabelSelector); len(limit) > 0 {
		selected = selected.DeepCopySelector().Add(limit...)
	}
	list, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selected.String()})
	if err != nil {
		return err
	}
	maps.DeleteFunc(p.Namespaces, func(name string, _ *corev1.Namespace) bool {
		return !slices.ContainsFunc(list.Items, func(ns corev1.Namespace) bool { return ns.Name == name })
	})
	return nil
}

// tenantRows shows tenants. A cell that depends on a kind that the caller may not list is <unknown>, unless something is
// known.
func tenantRows(all []*tenancy.Tenant, unread []string) *output.List {
	list := &output.List{Columns: append(output.Columns("Tenant", "Namespaces", "Admins", "CPU", "Memory", "Pods"),
		output.Column{Name: "Access", Wide: true}, output.Column{Name: "Namespace names", Wide: true}, output.Column{Name: "All admins", Wide: true}, output.Column{Name: "Quota", Wide: true})}
	known := func(text string, kinds ...string) string {
		if text == "" && slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(unread, kind) }) {
			return unknown
		}
		return text
	}
	for _, t := range all {
		quota := func(text string) string { return known(text, "TenantQuotas") }
		admins := func(text string) string { return known(text, "RoleBindings", "ClusterRoleBindings") }
		list.Rows = append(list.Rows, output.Row{
			Kind: schema.GroupKind{Group: tenant.Domain, Kind: "Tenant"}, Name: t.Name, Item: t,
			Cells: []string{t.Name, strconv.Itoa(len(t.Namespaces)), admins(shortened(t.Admins)),
				quota(t.Usage(corev1.ResourceRequestsCPU, corev1.ResourceCPU)), quota(t.Usage(corev1.ResourceRequestsMemory, corev1.ResourceMemory)),
				quota(t.Usage(corev1.ResourcePods, "count/pods")), known(string(t.Access), "Tenants"), strings.Join(t.Namespaces, ","),
				admins(strings.Join(t.Admins, ",")), quota(t.AllUsage())},
		})
	}
	return list
}

// changed returns the rows that are others than those shown, which it notes.
func changed(shown map[string]output.Row, l *output.List) *output.List {
	l.Rows = slices.DeleteFunc(l.Rows, func(r output.Row) bool {
		same := slices.Equal(shown[r.Name].Cells, r.Cells)
		shown[r.Name] = r
		return same
	})
	return l
}

// shortened returns the first few of a list.
func shortened(all []string) string {
	const shown = 1
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s + %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

func newCreateTenantCommand(flags *client.Flags) *cobra.Command {
	t, mode, format := &tenancy.New{}, "", output.NewObjectFormat()
	cmd := &cobra.Command{
		Use:   "create-tenant TENANT (--admin USER... | --members-admin) [--namespaces NS,...]",
		Short: "Create a tenant with its namespaces and admins",
		Long: `Creates the Tenant of a tenant and its namespaces. Without --namespaces it
creates TENANT--default. Run again, it adds what is new. It waits until the
admins have their role.

Admins have the role admin in each namespace of the tenant, existing and new.
On a server that evaluates RBAC by kubetenant they also create and delete
namespaces of the tenant, and write its TenantMembers. No ClusterRoleBinding
represents these rights: they follow from the Tenant.

With --members-admin every caller of the tenant, its service accounts too, has
the role admin in each namespace of the tenant.

Behind the webhook service and the gateway, callers can list the tenant's
namespaces only by a ClusterRoleBinding of kubetenant:tenant-member to the
group tenant:TENANT. The command creates it there. --bind-members=false leaves
it out. With --dry-run=client, --bind-members adds it.

With -o it prints the objects: with --dry-run=client to keep them in a
repository.`,
		Example: `  kubectl tenant create-tenant acme --admin alice --namespaces acme--web,acme--db
  kubectl tenant create-tenant acme --members-admin --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := setDefaultNamespace(t, args[0]); err != nil {
				return err
			}
			if err := errors.Join(checkNewTenant(t, args[0]), checkDryRun(mode), format.Check()); err != nil {
				return err
			}
			say := sayTo(cmd, mode)
			if !format.IsForPeople() {
				say = func(string, ...any) {}
			}
			if err := createTenant(cmd, flags, t, mode, say); err != nil {
				return err
			}
			return printObjects(cmd, format, t.Objects()...)
		},
	}
	cmd.Flags().StringSliceVar(&t.Admins, "admin", nil, "users who are admins of the tenant (may be repeated)")
	cmd.Flags().BoolVar(&t.MembersAdmin, "members-admin", false, "every caller of the tenant is an admin in all its namespaces")
	cmd.Flags().BoolVar(&t.BindMembers, bindMembers, false, "bind kubetenant:tenant-member to the tenant's callers in the whole cluster (default: if the server does not derive that role)")
	cmd.Flags().StringVar(&t.Replaces, "replaces", "", "the UID of the deleted tenant that had the name before (kubectl tenant retired)")
	cmd.Flags().BoolVar(&t.NetworkPolicy, "network-policy", false, "let only pods of the tenant's own namespaces reach those in its namespaces, where the network honours NetworkPolicies")
	cmd.Flags().StringSliceVar(&t.Namespaces, "namespaces", nil, "namespaces of the tenant")
	cmd.MarkFlagsOneRequired("admin", "members-admin")
	cmd.ValidArgsFunction = flags.CompleteTenants
	_ = cmd.RegisterFlagCompletionFunc("admin", flags.CompleteUsers)
	addDryRun(cmd, &mode)
	format.AddFlags(cmd)
	return cmd
}

const bindMembers = "bind-members"

// createTenant creates a tenant, and waits until its admins have their role.
func createTenant(cmd *cobra.Command, flags *client.Flags, t *tenancy.New, mode string, say func(string, ...any)) error {
	if mode == dryRunClient { // asks no cluster
		admins := append(slices.Clone(t.Admins), map[bool][]string{true: {"all its callers"}}[t.MembersAdmin]...)
		say("tenant %s with namespaces %s and admins %s", t.ID, strings.Join(t.Namespaces, ", "), strings.Join(admins, ", "))
		return nil
	}
	c, k, d, err := flags.Clients()
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed(bindMembers) {
		derives, err := derivesRights(cmd.Context(), c)
		if err != nil {
			return err
		}
		t.BindMembers = !derives
	}
	if err := tenancy.Create(cmd.Context(), k, d, t, tenancy.Writing{DryRun: dryRunOption(mode), Say: say}); err != nil {
		return c.Explain(err)
	}
	if mode == "" {
		return c.Explain(tenancy.AwaitPrepared(cmd.Context(), k, d, t.ID, t.Namespaces))
	}
	return nil
}

// derivesRights reports whether a server gives callers of tenants the rights that follow from their Tenant.
func derivesRights(ctx context.Context, c *client.Cluster) (bool, error) {
	found, err := c.Installation(ctx)
	if err != nil {
		return false, err
	}
	return found.DerivesRights(ctx)
}

// setDefaultNamespace names the first namespace of a tenant for which none was named.
func setDefaultNamespace(t *tenancy.New, name string) error {
	id, err := tenant.Parse(name)
	if len(t.Namespaces) > 0 || err != nil || id.IsSystem() { // which is told of later
		return nil
	}
	if id.NamespacePrefix() == "" {
		return fmt.Errorf("tenant %q: no namespace's name can begin with it: name its namespaces with --namespaces", name)
	}
	t.Namespaces = []string{id.NamespacePrefix() + "default"}
	return nil
}

// printObjects prints objects that were made, or would be, where -o asks for them.
func printObjects(cmd *cobra.Command, format *output.Format, all ...runtime.Object) error {
	if _, err := format.Objects(cmd.OutOrStdout(), all...); err != nil {
		return err
	}
	return nil
}

// checkNewTenant sets the tenant of a name, and returns every problem that the words have.
func checkNewTenant(t *tenancy.New, text string) error {
	id, err := client.ParseTenant("tenant", text)
	t.ID = id
	problems := []error{err}
	if id.IsSystem() {
		problems = append(problems, errors.New("the system tenant is there already: it owns all that no tenant owns"))
	}
	for _, admin := range t.Admins {
		problems = append(problems, client.CheckUser("--admin", admin))
		if strings.HasPrefix(admin, "system:") {
			problems = append(problems, fmt.Errorf("--admin %q: names that begin system: are the system tenant's", admin))
		}
	}
	for _, ns := range t.Namespaces {
		problems = append(problems, client.CheckNamespace("--namespaces", ns))
	}
	return errors.Join(problems...)
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

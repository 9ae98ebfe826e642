// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

func newTenantsCommand(flags *client.Flags) *cobra.Command {
	format := output.NewListFormat()
	o := tenantsOptions{}
	cmd := &cobra.Command{
		Use:   "tenants [TENANT...]",
		Short: "List tenants with their namespaces, admins and quota",
		Long: `Lists every tenant that owns a namespace, has a Tenant object or a TenantQuota,
or was created by create-tenant. Its admins are the identities with the role
admin or cluster-admin in one of its namespaces, or in all of them through the
tenant's group. With -o wide, it also shows the access of tenants that have a
Tenant object.

-l selects namespaces by label. Then only tenants with such namespaces are
listed, with those namespaces.`,
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
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "label selector for namespaces, such as env=prod")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false,
		"continue to watch, and print each tenant that changes")
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

// run prints the tenants. With --watch, it then prints each tenant that changes.
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
	if o.watch { // before the list, so that no change is missed
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
		format.OmitHeaders()
		if err := settle(cmd.Context(), changes); err != nil {
			return err
		}
	}
}

// settleTime is how long there must be no change before the tenants are printed again.
const settleTime = 500 * time.Millisecond

var errWatchEnded = errors.New("the server ended the watch: run the command again")

// settle waits for a change, and then until no change has occurred for [settleTime].
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
				quiet = time.After(settleTime)
			}
		}
	}
}

// list returns the tenants, and the kinds that the caller may not list.
func (o *tenantsOptions) list(
	cmd *cobra.Command, c *client.Cluster, own tenant.ID,
) (all []*tenancy.Tenant, unread []string, err error) {
	progress := output.NewProgress(cmd.ErrOrStderr())
	defer progress.Done()
	selection := privileges.Selection{KeepBinding: tenancy.IsOfTenants, Tenant: own}
	p, err := readSnapshot(cmd.Context(), c, selection, func(n int64) { progress.Update("%d objects read", n) })
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(p.Unread, "Namespaces") {
		return nil, nil, errors.New("you may not list namespaces: you need get, list and watch on namespaces")
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
	all, unread, err = tenancy.List(cmd.Context(), p.ForConfig(config), d, own)
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

// limitedTo returns the tenant to which lists must be limited, or the zero ID. In webhook mode, it
// is the caller's tenant, because the server cannot limit lists itself.
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
		return tenant.ID{}, nil // the server denies a caller without a tenant
	}
	return id, nil
}

// keepSelected removes the namespaces that do not match the label selector.
func (o *tenantsOptions) keepSelected(
	ctx context.Context, c *client.Cluster, p *simulator.Snapshot, own tenant.ID,
) error {
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

// tenantRows returns the rows for tenants. An empty cell becomes <unknown> if its content depends
// on a kind that the caller may not list.
func tenantRows(all []*tenancy.Tenant, unread []string) *output.List {
	list := &output.List{Columns: append(output.Columns("Tenant", "Namespaces", "Admins", "CPU", "Memory", "Pods"),
		output.Column{Name: "Access", Wide: true}, output.Column{Name: "Namespace names", Wide: true},
		output.Column{Name: "All admins", Wide: true}, output.Column{Name: "Quota", Wide: true})}
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
			Kind: schema.GroupKind{Group: tenant.Domain, Kind: "Tenant"},
			Name: t.Name,
			Item: t,
			Cells: []string{
				t.Name, strconv.Itoa(len(t.Namespaces)), admins(shortened(t.Admins)),
				quota(t.Usage(corev1.ResourceRequestsCPU, corev1.ResourceCPU)),
				quota(t.Usage(corev1.ResourceRequestsMemory, corev1.ResourceMemory)),
				quota(t.Usage(corev1.ResourcePods, "count/pods")),
				known(string(t.Access), "Tenants"), strings.Join(t.Namespaces, ","),
				admins(strings.Join(t.Admins, ",")), quota(t.AllUsage()),
			},
		})
	}
	return list
}

// changed returns the rows that differ from the rows in shown, and updates shown.
func changed(shown map[string]output.Row, l *output.List) *output.List {
	l.Rows = slices.DeleteFunc(l.Rows, func(r output.Row) bool {
		same := slices.Equal(shown[r.Name].Cells, r.Cells)
		shown[r.Name] = r
		return same
	})
	return l
}

// shortened returns the first element of a list, and the number of the remaining elements.
func shortened(all []string) string {
	const shown = 1
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s + %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

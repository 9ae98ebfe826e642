// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Kinds for [output.Changes].
var (
	roleBindings        = schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
	clusterRoleBindings = schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}
	tenantObjects       = schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindTenant}
	tenantMembers       = schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindTenantMembers}
	namespaceKind       = schema.GroupKind{Kind: "Namespace"}
)

// changes returns the Changes for a cluster. If there are several clusters, each line contains the
// name of the cluster.
func (f *grantFlags) changes(cmd *cobra.Command, c *client.Cluster, clusters int) *output.Changes {
	name := ""
	if clusters > 1 {
		name = c.Name
	}
	return output.NewChanges(cmd.OutOrStdout(), f.mode, name)
}

// apply grants the privileges in one cluster.
func (f *grantFlags) apply(cmd *cobra.Command, c *client.Cluster, id tenant.ID, done *output.Changes) error {
	switch {
	case f.namespace != "":
		return f.applyInNamespace(cmd, c, id, done)
	case f.clusterWide:
		return f.applyClusterWide(cmd, c, done)
	}
	return f.applyMembers(cmd, c, id, done)
}

func (f *grantFlags) applyInNamespace(
	cmd *cobra.Command, c *client.Cluster, owner tenant.ID, done *output.Changes,
) error {
	ctx := cmd.Context()
	g := f.grant()
	if f.mode == dryRunClient {
		b := g.Binding(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.Role})
		if printed, err := f.format.Objects(cmd.OutOrStdout(), b); printed {
			return err
		}
		done.Print(roleBindings, b.Name, output.Created)
		return nil
	}
	if err := f.checkEnds(cmd, c); err != nil {
		return err
	}
	k, err := c.Kube()
	if err != nil {
		return err
	}
	if f.createNamespace {
		created, err := tenancy.CreateNamespace(ctx, k, g.Namespace, owner, g.DryRun)
		if err != nil {
			return err
		}
		if created && f.format.IsText() {
			done.Print(namespaceKind, g.Namespace, output.Created)
		}
		if created && f.mode != "" {
			return nil // the server cannot validate a binding in a missing namespace
		}
	}
	b, verb, err := g.Apply(ctx, k)
	if err != nil {
		return err
	}
	if printed, err := f.format.Objects(cmd.OutOrStdout(), b); printed {
		return err
	}
	done.Print(roleBindings, b.Name, verb)
	return nil
}

var errNotSystem = errors.New("--cluster-wide is only for callers of the system tenant")

// applyClusterWide grants the privileges with a ClusterRoleBinding that applies only to objects of
// the system tenant.
func (f *grantFlags) applyClusterWide(cmd *cobra.Command, c *client.Cluster, done *output.Changes) error {
	g := &tenancy.ClusterWideGrant{Subject: f.grant().Subject, ClusterRole: f.role, DryRun: dryRunOption(f.mode)}
	b := g.Binding()
	verb := output.Created
	if f.mode != dryRunClient {
		if err := f.checkWide(cmd, c, g); err != nil {
			return err
		}
		k, err := c.Kube()
		if err != nil {
			return err
		}
		if b, verb, err = g.Apply(cmd.Context(), k); err != nil {
			return err
		}
	}
	if printed, err := f.format.Objects(cmd.OutOrStdout(), b); printed {
		return err
	}
	done.Print(clusterRoleBindings, b.Name, verb)
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: a server without kubetenant ignores %s: on such a server, the "+
		"binding applies to every caller with this name\n", tenant.ScopeAnnotation)
	return nil
}

// checkWide returns an error if the caller or the subject does not belong to the system tenant, or
// if the server would ignore the limit of the ClusterRoleBinding.
func (f *grantFlags) checkWide(cmd *cobra.Command, c *client.Cluster, g *tenancy.ClusterWideGrant) error {
	self, err := c.WhoAmI(cmd.Context())
	if err != nil {
		return err
	}
	if id, err := tenant.Parse(self.Tenant); err != nil || !id.IsSystem() {
		return fmt.Errorf("%w: %w", tenancy.ErrRefused, errNotSystem)
	}
	if s := g.Subject; s.Kind == rbacv1.ServiceAccountKind {
		account, err := accountIdentity(cmd.Context(), c, s.Namespace, s.Name)
		if err != nil {
			return err
		}
		if !account.ID().IsSystem() {
			return fmt.Errorf("%w: --cluster-wide: service account %s/%s does not belong to the system tenant",
				tenancy.ErrRefused, s.Namespace, s.Name)
		}
	}
	found, err := c.Installation(cmd.Context())
	if err == nil {
		err = found.CheckLimits(cmd.Context())
	}
	switch {
	case errors.Is(err, installation.ErrNoLimits):
		return fmt.Errorf("%w: the server ignores %s: %w: tenants' callers of the same name would also get the role",
			tenancy.ErrRefused, tenant.ScopeAnnotation, err)
	case err != nil:
		return fmt.Errorf("cannot determine whether the server limits the binding to the system tenant: %w", err)
	}
	return nil
}

// applyMembers grants the privileges in all namespaces of a tenant, with TenantMembers.
func (f *grantFlags) applyMembers(cmd *cobra.Command, c *client.Cluster, id tenant.ID, done *output.Changes) error {
	g, d, err := f.members(cmd, c, id)
	if err != nil {
		return err
	}
	u := g.Object()
	verb := output.Configured
	if f.mode != dryRunClient {
		if u, verb, err = g.Apply(cmd.Context(), d); err != nil {
			return err
		}
	}
	if printed, err := f.format.Objects(cmd.OutOrStdout(), u); printed {
		return err
	}
	done.Print(tenantMembers, u.GetName(), verb)
	return nil
}

// members returns the grant for all namespaces of a tenant. If id is zero, this is the caller's
// tenant.
func (f *grantFlags) members(
	cmd *cobra.Command, c *client.Cluster, id tenant.ID,
) (*tenancy.MemberGrant, dynamic.Interface, error) {
	if f.mode != dryRunClient {
		self, err := c.WhoAmI(cmd.Context())
		if err != nil {
			return nil, nil, err
		}
		own, err := tenant.Parse(self.Tenant)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("cannot determine your tenant: %s", self.TenantReason)
		case own.IsSystem() && id.IsZero():
			return nil, nil, errors.New("name a tenant with --tenant, or set --cluster-wide or --for-namespace")
		case id.IsZero():
			id = own
		case !own.IsSystem() && own != id:
			return nil, nil, fmt.Errorf("%w: --tenant: you belong to tenant %s", tenancy.ErrRefused, own)
		}
	}
	d, err := dynamic.NewForConfig(c.Config)
	return &tenancy.MemberGrant{
		Tenant:      id,
		Subject:     f.grant().Subject,
		ClusterRole: f.role,
		DryRun:      dryRunOption(f.mode),
	}, d, err
}

// revoke revokes the privileges in one cluster.
func (f *grantFlags) revoke(cmd *cobra.Command, c *client.Cluster, id tenant.ID, done *output.Changes) error {
	if f.mode == dryRunClient {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "--dry-run=client sends no request, so the bindings are unknown: to list "+
			"them, use --dry-run=server")
		return nil
	}
	switch {
	case f.namespace != "":
		return f.revokeInNamespace(cmd, c, done)
	case f.clusterWide:
		return f.revokeClusterWide(cmd, c, done)
	}
	return f.revokeMembers(cmd, c, id, done)
}

func (f *grantFlags) revokeInNamespace(cmd *cobra.Command, c *client.Cluster, done *output.Changes) error {
	k, err := c.Kube()
	if err != nil {
		return err
	}
	g := f.grant()
	revoked, err := g.Revoke(cmd.Context(), k)
	for _, name := range revoked.Deleted {
		done.PrintDeleted(roleBindings, g.Namespace, name)
	}
	for _, name := range revoked.Changed {
		done.Print(roleBindings, name, output.Configured)
	}
	if err != nil {
		return err
	}
	if len(revoked.Deleted)+len(revoked.Changed) == 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "No resources found in %s namespace.\n", g.Namespace)
	}
	return f.remaining(cmd, c, "RoleBinding "+g.Namespace+"/", revoked.Remaining)
}

func (f *grantFlags) revokeClusterWide(cmd *cobra.Command, c *client.Cluster, done *output.Changes) error {
	k, err := c.Kube()
	if err != nil {
		return err
	}
	g := &tenancy.ClusterWideGrant{Subject: f.grant().Subject, ClusterRole: f.role, DryRun: dryRunOption(f.mode)}
	deleted, remaining, err := g.Revoke(cmd.Context(), k)
	for _, name := range deleted {
		done.PrintDeleted(clusterRoleBindings, "", name)
	}
	if err != nil {
		return err
	}
	if len(deleted) == 0 {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "No resources found")
	}
	return f.remaining(cmd, c, "ClusterRoleBinding ", remaining)
}

func (f *grantFlags) revokeMembers(cmd *cobra.Command, c *client.Cluster, id tenant.ID, done *output.Changes) error {
	g, d, err := f.members(cmd, c, id)
	if err != nil {
		return err
	}
	deleted, changed, err := g.Revoke(cmd.Context(), d)
	switch {
	case err != nil:
		return err
	case deleted:
		done.PrintDeleted(tenantMembers, "", g.Tenant.ObjectName())
	case changed:
		done.Print(tenantMembers, g.Tenant.ObjectName(), output.Configured)
	default:
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "No resources found")
	}
	k, err := c.Kube()
	if err != nil {
		return err
	}
	remaining, err := g.Others(cmd.Context(), k)
	if err != nil {
		return fmt.Errorf("cannot determine whether other bindings still apply: %w", err)
	}
	return f.remaining(cmd, c, "RoleBinding ", remaining)
}

// remaining prints the bindings of the subject that revoke-privileges does not change.
func (f *grantFlags) remaining(cmd *cobra.Command, c *client.Cluster, kind string, names []string) error {
	for _, name := range names {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s%s still applies: this command did not create it\n",
			c.Name, kind, output.Safe(name))
	}
	if len(names) > 0 {
		return errFailed
	}
	return nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// exists reports whether a tenant has a Tenant object or a namespace. It returns true if this is
// unknown.
func (c *clusterParts) exists(id tenant.ID) bool {
	if id.IsSystem() || c.namespaces == nil {
		return true
	}
	if c.tenants != nil {
		if access := c.tenants.Access(id); access != authz.AccessNone && access != authz.AccessRetired {
			return true
		}
	}
	owned, err := c.namespaces.OwnedNamespaces(id)
	return err != nil || len(owned) > 0
}

// uid returns the UID of a tenant's Tenant object, or "" if the tenant has no such object.
func (c *clusterParts) uid(id tenant.ID) string {
	if c.tenants == nil {
		return ""
	}
	return c.tenants.Lineage(id).UID
}

// lineage returns the method [lookup.Tenants.Lineage], or nil if the cluster has no
// [lookup.Tenants].
func (c *clusterParts) lineage() func(tenant.ID) tenant.Lineage {
	if c.tenants == nil {
		return nil
	}
	return c.tenants.Lineage
}

// knownLineage is like lineage, but the second result of the returned function reports whether
// the lineage is known.
func (c *clusterParts) knownLineage() func(tenant.ID) (tenant.Lineage, bool) {
	if c.tenants == nil {
		return nil
	}
	return func(id tenant.ID) (tenant.Lineage, bool) {
		known := c.tenants.Access(id) != authz.AccessUnknown // before the lineage, which may become known in between
		return c.tenants.Lineage(id), known
	}
}

// accepts returns the function for the field Accepts of [authn.Chain], or nil if the cluster has no
// [lookup.Tenants].
//
// [authn.Chain]: https://pkg.go.dev/github.com/kubetenant/kubetenant/authn#Chain
func (c *clusterParts) accepts() func(context.Context, tenant.ID, time.Time) bool {
	if c.tenants == nil {
		return nil
	}
	return func(_ context.Context, id tenant.ID, issued time.Time) bool { return c.tenants.Accepts(id, issued) }
}

// namespaceSettings returns the settings of a tenant's namespaces.
func (c *clusterParts) namespaceSettings(id tenant.ID) namespace.Rules {
	if c.tenants == nil {
		return namespace.Rules{}
	}
	spec := c.tenants.NamespaceSettings(id)
	return namespace.Rules{
		Labels:         tenants.Labels(spec.Labels),
		PodSecurity:    spec.PodSecurity,
		PrefixRequired: spec.Prefix == v1alpha1.NamespacePrefixRequired,
	}
}

// holdsNamespaces returns the method [lookup.Tenants.HoldsNamespaces], or nil if the cluster has
// no [lookup.Tenants].
func (c *clusterParts) holdsNamespaces() func(context.Context, tenant.ID) bool {
	if c.tenants == nil {
		return nil
	}
	return c.tenants.HoldsNamespaces
}

// provisions reports whether a template or a Publication provides an object in a namespace.
func (c *clusterParts) provisions(
	ctx context.Context, rules *publication.Rules, namespace string, resource schema.GroupResource, name string,
) (bool, error) {
	if c.tenants == nil {
		return false, nil
	}
	owner, err := c.owners.OfUnthrottled(ctx, namespace)
	if err != nil || owner.IsZero() || owner.IsSystem() {
		return false, err
	}
	return c.tenants.Provisions(rules, owner, namespace, resource, name)
}

// memberRoles calls [lookup.Tenants.MemberRoles]. It returns nil if the cluster has no
// [lookup.Tenants].
func (c *clusterParts) memberRoles(id tenant.ID) []string {
	if c.tenants == nil {
		return nil
	}
	return c.tenants.MemberRoles(id)
}

// remainingNamespaces returns a function that returns the namespaces of a tenant, except those that
// are being deleted. It returns nil if the cluster has no [lookup.Namespaces].
func (c *clusterParts) remainingNamespaces() func(tenant.ID) ([]string, error) {
	if c.namespaces == nil {
		return nil
	}
	return func(id tenant.ID) ([]string, error) {
		names, err := c.namespaces.OwnedNamespaces(id)
		return slices.DeleteFunc(slices.Clone(names), c.owners.Terminating), err
	}
}

// rights returns the ClusterRoles that callers of a tenant have without a binding.
func (c *clusterParts) rights(id tenant.ID) []rbac.DerivedRole {
	if c.tenants == nil {
		return tenants.Rights(id, nil)
	}
	return tenants.Rights(id, c.tenants.Admins(id))
}

// hasEnded returns true if the Tenant object of a tenant is being deleted or was deleted without a
// successor, or if that is unknown. It returns false if the cluster has no [lookup.Tenants].
func (c *clusterParts) hasEnded(id tenant.ID) bool {
	if c.tenants == nil {
		return false
	}
	unknown := c.tenants.Access(id) == authz.AccessUnknown
	lineage := c.tenants.Lineage(id)
	return unknown || lineage.HasEnded()
}

// warnInterval is the minimum time between two warnings that the same tenant has no Tenant
// object.
const warnInterval = 10 * time.Minute

// access returns a function that returns the access of a tenant's callers. It returns nil if
// access is never limited. required specifies whether each tenant must have a Tenant object.
func (c *clusterParts) access(ctx context.Context, required configv1alpha1.RequireTenant) func(tenant.ID) authz.Access {
	accessOf := func(tenant.ID) authz.Access { return authz.AccessNone }
	if c.tenants != nil {
		accessOf = c.tenants.Access
	}
	switch {
	case required == configv1alpha1.RequireTenantAlways:
		return accessOf
	case c.tenants == nil:
		return nil
	case required == configv1alpha1.RequireTenantWarn:
		w := &tenantWarnings{last: map[tenant.ID]time.Time{}}
		return func(id tenant.ID) authz.Access {
			access := accessOf(id)
			if access == authz.AccessNone {
				w.warn(ctx, id)
			}
			return c.withoutTenant(id, access)
		}
	}
	return func(id tenant.ID) authz.Access { return c.withoutTenant(id, accessOf(id)) }
}

// withoutTenant returns access, or the access of a tenant without a Tenant object if access is
// AccessNone. It is for configurations that do not require Tenant objects.
func (c *clusterParts) withoutTenant(id tenant.ID, access authz.Access) authz.Access {
	if access == authz.AccessNone {
		return c.tenants.AccessWithoutTenant(id)
	}
	return access
}

// tenantWarnings limits the rate of the warnings that a tenant has no Tenant object.
type tenantWarnings struct {
	mu   sync.Mutex
	last map[tenant.ID]time.Time
}

func (w *tenantWarnings) warn(ctx context.Context, id tenant.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, known := w.last[id]; known && time.Since(at) < warnInterval {
		return
	}
	w.last[id] = time.Now()
	klog.FromContext(ctx).Info("A tenant has no Tenant, and its callers would be denied with requireTenant Always",
		"tenant", id)
}

// checkRequired returns an error if Tenant objects are required, but a tenant that owns a
// namespace has none. It returns nil if this is not known yet.
func (c *clusterParts) checkRequired(required configv1alpha1.RequireTenant) error {
	if required != configv1alpha1.RequireTenantAlways || c.namespaces == nil {
		return nil
	}
	ids, known := c.namespaces.IDsWithoutTenant()
	if !known || len(ids) == 0 {
		return nil
	}
	const maxNames = 5
	slices.Sort(ids)
	found := "1 tenant owns namespaces but has no Tenant"
	if len(ids) > 1 {
		found = fmt.Sprintf("%d tenants own namespaces but have no Tenant", len(ids))
	}
	return fmt.Errorf("authorization.requireTenant: may not be Always while %s (%v): run kubectl tenant adopt-tenants",
		found, ids[:min(maxNames, len(ids))])
}

// objectField implements [authz.Options.ObjectField]. The tenant ID alone determines the name of a
// Tenant and of TenantMembers. A TenantQuota can have any name.
func (c *clusterParts) objectField(resource schema.GroupResource, id tenant.ID) (field, value string) {
	switch {
	case c.quotas != nil && resource == v1alpha1.Resource(v1alpha1.ResourceTenantQuotas):
		return tenants.QuotaTenantField, id.String()
	case c.tenants == nil || !isOfTenant(resource) || c.tenants.Access(id) == authz.AccessUnknown ||
		!c.tenants.BelongsTo(id.ObjectName(), id):
		return "", ""
	}
	return metav1.ObjectNameField, id.ObjectName()
}

// describesTenant implements [authz.Options.DescribesTenant].
func (c *clusterParts) describesTenant(resource schema.GroupResource, name string, id tenant.ID) bool {
	switch {
	case c.quotas != nil && resource == v1alpha1.Resource(v1alpha1.ResourceTenantQuotas):
		return c.quotas.BelongsTo(name, id)
	case c.tenants != nil && (isOfTenant(resource) || resource == v1alpha1.Resource(v1alpha1.ResourceTenantUsages)):
		return c.tenants.BelongsTo(name, id)
	}
	return false
}

// membersResource returns the resource of TenantMembers, which tenants can write themselves.
func membersResource() schema.GroupResource {
	return v1alpha1.Resource(v1alpha1.ResourceTenantMembers)
}

// OwnWritable returns the cluster-scoped resources in which a tenant may write its own object.
func OwnWritable() []schema.GroupResource { return []schema.GroupResource{membersResource()} }

// isOfTenant reports whether the resource is tenants or tenantmembers. Both have at most one object
// for each tenant, with the same name.
func isOfTenant(resource schema.GroupResource) bool {
	return resource == v1alpha1.Resource(v1alpha1.ResourceTenants) || resource == membersResource()
}

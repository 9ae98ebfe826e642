package stack

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
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

// Tenants are the objects of kind Tenant of a cluster, as [tenants.Store] holds them.
// Safe for concurrent use.
//
// [tenants.Store]: https://pkg.go.dev/github.com/kubetenant/kubetenant/cluster/tenants#Store
type Tenants interface {
	// Of returns how far callers of a tenant may go: [authz.AccessNone] where it has no Tenant,
	// [authz.AccessRetired] where that was deleted, and the zero value where it is not known.
	Of(id tenant.ID) authz.Access
	// WithoutTenant returns how far callers of a tenant may go that has no Tenant and needs none.
	WithoutTenant(id tenant.ID) authz.Access
	// IsOf reports whether a Tenant belongs to a tenant, or whether there is no Tenant of that name and
	// the name is the tenant's. It returns false if that is unknown.
	IsOf(name string, id tenant.ID) bool
	// Lineage returns what is known of a tenant beside its name.
	Lineage(id tenant.ID) tenant.Lineage
	// Accepts reports whether a credential that was issued at a time can be a tenant's own, see
	// [tenant.Lineage.Accepts].
	Accepts(id tenant.ID, issued time.Time) bool
	// Spaces returns what is said of its namespaces.
	Spaces(id tenant.ID) v1alpha1.TenantNamespacesSpec
	// Holds reports whether Pods wait in a new namespace of a tenant until it was given all that its
	// Tenant says; it may ask the server.
	Holds(ctx context.Context, id tenant.ID) bool
	// Gives reports whether a template that the Tenant of a tenant names, or a Publication, provides an
	// object of a name in a namespace. It fails if that is not known.
	Gives(
		rules *publication.Rules, id tenant.ID, namespace string, resource schema.GroupResource, name string,
	) (bool, error)
	// PublicationsFrom returns the Publications whose source has a namespace and a name, of any kind. It
	// omits Publications that are being deleted. The last result is false if they are not known.
	PublicationsFrom(namespace, name string) (naming []*publication.Publication, known bool)
	// MemberRoles returns the ClusterRoles that a tenant itself may give.
	MemberRoles(id tenant.ID) []string
	// Admins returns the subjects that the Tenant of a tenant names as its admins.
	Admins(id tenant.ID) []rbacv1.Subject
	// FairUse returns the limits that the Tenant of a tenant specifies.
	FairUse(id tenant.ID) v1alpha1.FairUse
}

// exists reports whether a tenant has a Tenant or a namespace. It returns true if this is unknown.
func (c *Cluster) exists(id tenant.ID) bool {
	if id.IsSystem() || c.OwnedNamespaces == nil {
		return true
	}
	if c.Tenants != nil {
		if access := c.Tenants.Of(id); access != authz.AccessNone && access != authz.AccessRetired {
			return true
		}
	}
	owned, err := c.OwnedNamespaces(id)
	return err != nil || len(owned) > 0
}

// lineage returns what is known of tenants beside their names; nil where no Tenants are known.
func (c *Cluster) lineage() func(tenant.ID) tenant.Lineage {
	if c.Tenants == nil {
		return nil
	}
	return c.Tenants.Lineage
}

// knownLineage is [Cluster.lineage], and says whether that is known now.
func (c *Cluster) knownLineage() func(tenant.ID) (tenant.Lineage, bool) {
	if c.Tenants == nil {
		return nil
	}
	return func(id tenant.ID) (tenant.Lineage, bool) {
		known := c.Tenants.Of(id) != authz.AccessUnknown // first: what is known afterwards is not asked for
		return c.Tenants.Lineage(id), known
	}
}

// accepts returns what [authn.Chain] asks about credentials; nil where no Tenants are known.
//
// [authn.Chain]: https://pkg.go.dev/github.com/kubetenant/kubetenant/authn#Chain
func (c *Cluster) accepts() func(context.Context, tenant.ID, time.Time) bool {
	if c.Tenants == nil {
		return nil
	}
	return func(_ context.Context, id tenant.ID, issued time.Time) bool { return c.Tenants.Accepts(id, issued) }
}

// spaces returns what a tenant's namespaces are like.
func (c *Cluster) spaces(id tenant.ID) namespace.Spaces {
	if c.Tenants == nil {
		return namespace.Spaces{}
	}
	of := c.Tenants.Spaces(id)
	return namespace.Spaces{
		Labels:         tenants.Labels(of.Labels),
		PodSecurity:    of.PodSecurity,
		PrefixRequired: of.Prefix == v1alpha1.NamespacePrefixRequired,
	}
}

// holds is [Tenants.Holds]; nil where no Tenants are known.
func (c *Cluster) holds() func(context.Context, tenant.ID) bool {
	if c.Tenants == nil {
		return nil
	}
	return c.Tenants.Holds
}

// gives reports whether a template or a Publication gives an object in a namespace.
func (c *Cluster) gives(
	ctx context.Context, rules *publication.Rules, namespace string, resource schema.GroupResource, name string,
) (bool, error) {
	if c.Tenants == nil {
		return false, nil
	}
	owner, err := c.Owners.Certain(ctx, namespace)
	if err != nil || owner.IsZero() || owner.IsSystem() {
		return false, err
	}
	return c.Tenants.Gives(rules, owner, namespace, resource, name)
}

// memberRoles is [Tenants.MemberRoles].
func (c *Cluster) memberRoles(id tenant.ID) []string {
	if c.Tenants == nil {
		return nil
	}
	return c.Tenants.MemberRoles(id)
}

// remainingNamespaces returns a function that returns the namespaces of a tenant, without those that
// are being deleted. It is nil if the namespaces are not known.
func (c *Cluster) remainingNamespaces() func(tenant.ID) ([]string, error) {
	if c.OwnedNamespaces == nil {
		return nil
	}
	return func(id tenant.ID) ([]string, error) {
		names, err := c.OwnedNamespaces(id)
		return slices.DeleteFunc(slices.Clone(names), c.Owners.Terminating), err
	}
}

// rights returns the ClusterRoles that callers of a tenant have without a binding.
func (c *Cluster) rights(id tenant.ID) []rbac.Derived {
	if c.Tenants == nil {
		return tenants.Rights(id, nil)
	}
	return tenants.Rights(id, c.Tenants.Admins(id))
}

// isOver reports whether a tenant is being deleted, or was, or that is not known.
func (c *Cluster) isOver(id tenant.ID) bool {
	if c.Tenants == nil {
		return false
	}
	unknown := c.Tenants.Of(id) == authz.AccessUnknown
	lineage := c.Tenants.Lineage(id)
	return unknown || lineage.IsOver()
}

// warnEvery is after how long it is logged again that a tenant has no Tenant.
const warnEvery = 10 * time.Minute

// access returns how far the callers of tenants may go where a Tenant is required so; nil
// where nothing holds them.
func (c *Cluster) access(ctx context.Context, required configv1alpha1.RequireTenant) func(tenant.ID) authz.Access {
	of := func(tenant.ID) authz.Access { return authz.AccessNone }
	if c.Tenants != nil {
		of = c.Tenants.Of
	}
	switch {
	case required == configv1alpha1.RequireTenantAlways:
		return of
	case c.Tenants == nil:
		return nil
	case required == configv1alpha1.RequireTenantWarn:
		w := &tenantWarnings{at: map[tenant.ID]time.Time{}}
		return func(id tenant.ID) authz.Access {
			access := of(id)
			if access == authz.AccessNone {
				w.warn(ctx, id)
			}
			return c.optional(id, access)
		}
	}
	return func(id tenant.ID) authz.Access { return c.optional(id, of(id)) }
}

// optional returns the access of a tenant's callers if the tenant needs no Tenant.
func (c *Cluster) optional(id tenant.ID, access authz.Access) authz.Access {
	if access == authz.AccessNone {
		return c.Tenants.WithoutTenant(id)
	}
	return access
}

// tenantWarnings are of whom it was logged that they have no Tenant.
type tenantWarnings struct {
	mu sync.Mutex
	at map[tenant.ID]time.Time
}

func (w *tenantWarnings) warn(ctx context.Context, id tenant.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, known := w.at[id]; known && time.Since(at) < warnEvery {
		return
	}
	w.at[id] = time.Now()
	klog.FromContext(ctx).Info("A tenant has no Tenant, and its callers would be denied with requireTenant Always",
		"tenant", id)
}

// checkRequired refuses to require Tenants while an owner of a namespace has none,
// as far as that is known.
func (c *Cluster) checkRequired(required configv1alpha1.RequireTenant) error {
	if required != configv1alpha1.RequireTenantAlways || c.WithoutTenant == nil {
		return nil
	}
	ids, known := c.WithoutTenant()
	if !known || len(ids) == 0 {
		return nil
	}
	const named = 5
	slices.Sort(ids)
	found := "1 tenant owns namespaces but has no Tenant"
	if len(ids) > 1 {
		found = fmt.Sprintf("%d tenants own namespaces but have no Tenant", len(ids))
	}
	return fmt.Errorf("authorization.requireTenant: may not be Always while %s (%v): run kubectl tenant adopt-tenants",
		found, ids[:min(named, len(ids))])
}

// objectField implements [authz.Options.ObjectField]. The name of a Tenant and of TenantMembers
// depends on the ID of the tenant alone. The name of a TenantQuota can belong to any tenant.
func (c *Cluster) objectField(resource schema.GroupResource, id tenant.ID) (field, value string) {
	switch {
	case c.Quotas != nil && resource == v1alpha1.Resource(v1alpha1.ResourceTenantQuotas):
		return tenants.QuotaTenantField, id.String()
	case c.Tenants == nil || !isOfTenant(resource) || c.Tenants.Of(id) == authz.AccessUnknown ||
		!c.Tenants.IsOf(id.ObjectName(), id):
		return "", ""
	}
	return metav1.ObjectNameField, id.ObjectName()
}

// isAbout implements [authz.Options.IsAbout].
func (c *Cluster) isAbout(resource schema.GroupResource, name string, id tenant.ID) bool {
	switch {
	case c.Quotas != nil && resource == v1alpha1.Resource(v1alpha1.ResourceTenantQuotas):
		return c.Quotas.IsOf(name, id)
	case c.Tenants != nil && isOfTenant(resource):
		return c.Tenants.IsOf(name, id)
	}
	return false
}

// membersResource is of what tenants write themselves.
func membersResource() schema.GroupResource {
	return v1alpha1.Resource(v1alpha1.ResourceTenantMembers)
}

// OwnWritable returns the cluster-scoped resources of which a tenant's callers may write the object
// of their own tenant.
func OwnWritable() []schema.GroupResource { return []schema.GroupResource{membersResource()} }

// isOfTenant reports whether there is one object of a resource for each Tenant, of its name.
func isOfTenant(resource schema.GroupResource) bool {
	return resource == v1alpha1.Resource(v1alpha1.ResourceTenants) || resource == membersResource()
}

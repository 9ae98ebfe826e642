// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package lookup defines the interfaces through which kubetenant reads a cluster. Package cluster
// implements them for a live cluster, the simulator for a snapshot, and package lookuptest for
// tests.
//
// All methods are safe for concurrent use.
package lookup

import (
	"context"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Cluster is the state of a cluster. A method other than Owners may return nil if this part of the
// state does not exist. Each method MUST always return the same value.
type Cluster interface {
	// Owners returns the owners of namespaces. It never returns nil.
	Owners() *authz.Owners
	// Namespaces returns the namespaces of tenants. If nil, the ID of a deleted tenant cannot be
	// reused.
	Namespaces() Namespaces
	// Resources describes the custom resources. If nil, the scope of every custom resource is
	// unknown.
	Resources() Resources
	// Tenants returns the Tenant objects. If nil, there are no Tenants.
	Tenants() Tenants
	// Grants returns the AccessGrants. If nil, there are no AccessGrants.
	Grants() *accessgrant.Grants
	// Quotas returns the TenantQuotas. If nil, there are no TenantQuotas.
	Quotas() Quotas
	// Controllers returns the objects that control other objects. If nil, an object that a
	// controller creates does not record the user that created the controlling object.
	Controllers() Controllers
	// Objects returns other objects that admission plugins read. If nil, no caller may write a
	// Publication.
	Objects() Objects
}

// Namespaces finds namespaces by their owner.
type Namespaces interface {
	// OwnedNamespaces returns the names of the namespaces whose tenant label has the given ID.
	OwnedNamespaces(id tenant.ID) ([]string, error)
	// IDsWithoutTenant returns the IDs of tenants that own a namespace and have no Tenant. It returns
	// false if the namespaces or the Tenants are not known yet.
	IDsWithoutTenant() (ids []string, known bool)
	// References returns the objects of a deleted tenant that would apply to a later tenant with
	// the same ID. These are TenantMembers, TenantQuotas that are being deleted, and some
	// bindings. A binding is included if it is outside of tenants' namespaces, and if it names
	// the tenant or a service account in the given namespaces.
	References(ctx context.Context, id tenant.ID, namespaces []string) ([]string, error)
}

// Resources describes custom resources.
type Resources interface {
	// Scope returns the scope of a custom resource.
	Scope(resource schema.GroupResource) authz.Scope
	// KindScope returns the scope of the custom resource with the given kind. It is separate from
	// Scope, because the name of the resource cannot be derived from the kind.
	KindScope(kind schema.GroupKind) authz.Scope
	// Kind returns the kind of a custom resource, or "" if it is not known.
	Kind(resource schema.GroupResource) string
	// Labeled reports whether the objects of the resource that belong to a tenant, and no other
	// objects, have the tenant's label. If not, the tenant can list the resource only within a
	// namespace.
	Labeled(resource schema.GroupResource, id tenant.ID) bool
}

// Quotas reads and charges the TenantQuotas.
type Quotas interface {
	quota.Store
	// Classes returns the DeviceClasses of the cluster. See [quota.Options].
	Classes() (quota.Classes, error)
	// BelongsTo reports whether the TenantQuota with the given name belongs to a tenant. If the
	// TenantQuota does not exist, it reports whether the name is the object name of the tenant. It
	// returns false if the TenantQuotas are not known.
	BelongsTo(name string, id tenant.ID) bool
}

// Controllers reads the objects that control other objects. See [plugins.ObjectFunc].
//
// [plugins.ObjectFunc]: https://pkg.go.dev/github.com/kubetenant/kubetenant/plugins#ObjectFunc
type Controllers interface {
	// Metadata returns the object with the given kind, namespace and name, or at least its metadata.
	// It uses a cache if possible. It returns nil if the object does not exist.
	Metadata(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error)
	// Object is like Metadata, but reads the whole object.
	Object(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error)
}

// Objects reads objects for admission plugins.
type Objects interface {
	// PublicationSource reads the source object of a Publication from the server. It returns nil if
	// the object does not exist.
	PublicationSource(
		ctx context.Context, from *publication.Source, resource schema.GroupVersionResource,
	) (*unstructured.Unstructured, error)
	// PublicationRole calls [publication.RoleOf] with the roles of the cluster.
	PublicationRole(ctx context.Context, u *unstructured.Unstructured) (*publication.Role, error)
	// SelectedLabel returns the reason why a Namespace label with the given key may affect a
	// webhook or a policy. It returns "" if no webhook or policy selects namespaces by the label.
	SelectedLabel(key string) string
	// DefaultPriority reports whether the PriorityClass with the given name is the cluster's
	// default.
	DefaultPriority(name string) bool
}

// Tenants reads the Tenant objects.
type Tenants interface {
	// Access returns the access of a tenant's callers. If the tenant has no Tenant, it returns
	// [authz.AccessRetired] if the ID is reserved, and otherwise [authz.AccessNone]. It returns
	// [authz.AccessUnknown] if the access is not known yet.
	Access(id tenant.ID) authz.Access
	// AccessWithoutTenant returns the access of the callers of a tenant without a Tenant, if the
	// configuration does not require a Tenant.
	AccessWithoutTenant(id tenant.ID) authz.Access
	// BelongsTo reports whether the Tenant object with the given name belongs to a tenant. If the
	// object does not exist, it reports whether the Tenant of this tenant would have this name. It
	// returns false if the Tenants are not known.
	BelongsTo(name string, id tenant.ID) bool
	// Lineage returns the current Tenant and the deleted tenants with the given ID.
	Lineage(id tenant.ID) tenant.Lineage
	// Accepts reports whether a tenant accepts a credential that was issued at the given time. See
	// [tenant.Lineage.Accepts].
	Accepts(id tenant.ID, issued time.Time) bool
	// NamespaceSettings returns spec.namespaces of the tenant's Tenant.
	NamespaceSettings(id tenant.ID) v1alpha1.TenantNamespacesSpec
	// HoldsNamespaces reports whether Pods in a tenant's new namespace wait until the namespace is
	// prepared. It may send a request to the server.
	HoldsNamespaces(ctx context.Context, id tenant.ID) bool
	// Provisions reports whether a template that the tenant's Tenant names, or a Publication, defines
	// the object with the given name in a namespace. It fails if the templates or the Publications are
	// not known.
	Provisions(
		rules *publication.Rules, id tenant.ID, namespace string, resource schema.GroupResource, name string,
	) (bool, error)
	// PublicationsFrom returns the Publications whose source object has the given namespace and
	// name, for all kinds. It omits Publications that are being deleted. The last result is false
	// if the Publications are not known.
	PublicationsFrom(namespace, name string) (naming []*publication.Publication, known bool)
	// MemberRoles returns the ClusterRoles that a tenant may bind.
	MemberRoles(id tenant.ID) []string
	// Admins returns spec.admins of the tenant's Tenant.
	Admins(id tenant.ID) []rbacv1.Subject
	// FairUse returns spec.fairUse of the tenant's Tenant.
	FairUse(id tenant.ID) v1alpha1.FairUse
}

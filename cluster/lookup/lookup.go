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
	"github.com/kubetenant/kubetenant/authz/grant"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Cluster is the state of a cluster. If a method other than Owners returns nil, this part of the
// state does not exist. Each method MUST always return the same value.
type Cluster interface {
	// Owners returns the owners of namespaces. It never returns nil.
	Owners() *authz.Owners
	// Namespaces returns the namespaces of tenants. If nil, the name of a deleted tenant can be used
	// again.
	Namespaces() Namespaces
	// Resources returns the custom resources. If nil, tenants cannot use any.
	Resources() Resources
	// Tenants returns the objects of kind Tenant. If nil, there are none.
	Tenants() Tenants
	// Grants returns the AccessGrants. If nil, there are none.
	Grants() *grant.Grants
	// Quotas returns the TenantQuotas. If nil, there are none.
	Quotas() Quotas
	// Controllers returns the objects that control other objects. If nil, a controller creates objects
	// on its own behalf only.
	Controllers() Controllers
	// Objects returns other objects that admission plugins read. If nil, no caller may write a
	// Publication.
	Objects() Objects
}

// Namespaces finds namespaces by their owner.
type Namespaces interface {
	// OwnedNamespaces returns the namespaces that have the label of a tenant.
	OwnedNamespaces(id tenant.ID) ([]string, error)
	// IDsWithoutTenant returns the tenants that own a namespace and have no Tenant. It returns false if
	// that is not known yet.
	IDsWithoutTenant() (ids []string, known bool)
	// References returns the objects of the system tenant that name a tenant, or service accounts of
	// namespaces that the tenant had.
	References(ctx context.Context, id tenant.ID, namespaces []string) ([]string, error)
}

// Resources describes custom resources.
type Resources interface {
	// Scope returns the scope of a custom resource.
	Scope(resource schema.GroupResource) authz.Scope
	// KindScope returns the scope of the custom resources of a kind. The plural of a kind's name may
	// not be its resource.
	KindScope(kind schema.GroupKind) authz.Scope
	// Kind returns the kind of a custom resource, or "" if it is not known.
	Kind(resource schema.GroupResource) string
	// Labeled reports whether all objects of a tenant, and no others, have its label. Tenants can list
	// other resources only within a namespace.
	Labeled(resource schema.GroupResource, id tenant.ID) bool
}

// Quotas stores the TenantQuotas.
type Quotas interface {
	quota.Store
	// Classes returns the DeviceClasses of the cluster. See [quota.Options].
	Classes() (quota.Classes, error)
	// BelongsTo reports whether a quota belongs to a tenant. If no quota has the name, it reports whether
	// the name is that of the tenant's objects. It returns false if that is unknown.
	BelongsTo(name string, id tenant.ID) bool
}

// Controllers reads the objects that control other objects. See [plugins.ObjectFunc].
//
// [plugins.ObjectFunc]: https://pkg.go.dev/github.com/kubetenant/kubetenant/plugins#ObjectFunc
type Controllers interface {
	// Metadata returns the object that controls another object, or at least its metadata. It uses a
	// cache if possible. It returns nil if the object does not exist.
	Metadata(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error)
	// Object is Metadata with the whole object.
	Object(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error)
}

// Objects reads objects for admission plugins.
type Objects interface {
	// PublicationSource reads the source object of a Publication from the server. It returns nil if
	// the object does not exist.
	PublicationSource(
		ctx context.Context, from *publication.Source, resource schema.GroupVersionResource,
	) (*unstructured.Unstructured, error)
	// PublicationRole is [publication.RoleOf] with the roles of the cluster.
	PublicationRole(ctx context.Context, u *unstructured.Unstructured) (*publication.Role, error)
	// SelectedLabel returns the reason why a label of Namespaces may affect a webhook or a policy. It
	// returns "" if none of them selects namespaces by the label.
	SelectedLabel(key string) string
	// DefaultPriority reports whether a PriorityClass is the default of the cluster.
	DefaultPriority(name string) bool
}

// Tenants stores the objects of kind Tenant.
type Tenants interface {
	// The method Of returns the access of a tenant's callers. It returns [authz.AccessNone] if the
	// tenant has no Tenant, and [authz.AccessRetired] if its Tenant was deleted. It returns the zero
	// value if the access is unknown.
	Access(id tenant.ID) authz.Access
	// AccessWithoutTenant returns the access of the callers of a tenant that has no Tenant and needs none.
	AccessWithoutTenant(id tenant.ID) authz.Access
	// BelongsTo reports whether a Tenant belongs to a tenant. If no Tenant has the name, it reports whether
	// the name is that of the tenant's Tenant. It returns false if that is unknown.
	BelongsTo(name string, id tenant.ID) bool
	// Lineage returns the UID and the predecessors of a tenant.
	Lineage(id tenant.ID) tenant.Lineage
	// Accepts reports whether a credential that was issued at a time is valid for a tenant. See
	// [tenant.Lineage.Accepts].
	Accepts(id tenant.ID, issued time.Time) bool
	// NamespaceSettings returns the settings of the tenant's namespaces.
	NamespaceSettings(id tenant.ID) v1alpha1.TenantNamespacesSpec
	// HoldsNamespaces reports whether Pods in a new namespace of a tenant wait until the namespace has all
	// objects that its Tenant specifies. It may send a request to the server.
	HoldsNamespaces(ctx context.Context, id tenant.ID) bool
	// Provisions reports whether a template of a tenant's Tenant or a Publication defines an object of a
	// name in a namespace. It fails if that is not known.
	Provisions(
		rules *publication.Rules, id tenant.ID, namespace string, resource schema.GroupResource, name string,
	) (bool, error)
	// PublicationsFrom returns the Publications whose source has a namespace and a name, of any kind.
	// It omits Publications that are being deleted. The last result is false if they are not known.
	PublicationsFrom(namespace, name string) (naming []*publication.Publication, known bool)
	// MemberRoles returns the ClusterRoles that a tenant may bind.
	MemberRoles(id tenant.ID) []string
	// Admins returns the admins that a tenant's Tenant names.
	Admins(id tenant.ID) []rbacv1.Subject
	// FairUse returns the limits that the Tenant of a tenant specifies.
	FairUse(id tenant.ID) v1alpha1.FairUse
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KindTenant is the kind of a tenant's object.
const KindTenant = "Tenant"

// Tenant is a tenant: that there is one, and how far its callers may go. Cluster-scoped, and named by
// [tenant.ID.ObjectName], so that no two are of one tenant; one of another name counts for nothing. Whose a namespace is says its
// label alone.
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantSpec `json:"spec"`
}

// TenantSpec says who the tenant is.
type TenantSpec struct {
	// id of the tenant, as credentials and the label of namespaces name it. It never changes.
	// +required
	ID string `json:"id"`
	// access of the tenant's callers: Open (default), ReadOnly or Closed.
	// +optional
	Access TenantAccess `json:"access,omitempty"`
	// suspension is ReadOnly or Closed while the tenant is suspended. Of it and access the stricter counts. Written by
	// kubectl tenant suspend and resume, and left out where the object is kept in Git.
	// +optional
	Suspension TenantAccess `json:"suspension,omitempty"`
}

// TenantAccess is how far a tenant's callers may go.
type TenantAccess string

// The accesses.
const (
	// TenantAccessOpen takes nothing away.
	TenantAccessOpen TenantAccess = "Open"
	// TenantAccessReadOnly leaves get, list, watch and delete; of subresources, reading status, scale and log.
	TenantAccessReadOnly TenantAccess = "ReadOnly"
	// TenantAccessClosed leaves nothing but reviews of oneself.
	TenantAccessClosed TenantAccess = "Closed"
)

// RequireTenant says whether a tenant needs a Tenant.
type RequireTenant string

const (
	// RequireTenantNever lets the label of namespaces and the credential be enough.
	RequireTenantNever RequireTenant = "Never"
	// RequireTenantWarn logs of which tenants callers come that have no Tenant.
	RequireTenantWarn RequireTenant = "Warn"
	// RequireTenantAlways takes callers of a tenant without a Tenant for nobody's.
	RequireTenantAlways RequireTenant = "Always"
)

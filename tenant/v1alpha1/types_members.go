package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// KindTenantMembers is the kind of [TenantMembers].
const KindTenantMembers = "TenantMembers"

// TenantMembers says to whom a tenant itself gives roles in all its namespaces: of those
// ClusterRoles that spec.memberRoles of its Tenant names. Cluster-scoped, one a tenant, of the name
// of its Tenant; the tenant's own callers write it where RBAC lets them.
type TenantMembers struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantMembersSpec `json:"spec"`
}

// TenantMembersSpec says who has what.
type TenantMembersSpec struct {
	// id of the tenant. It never changes.
	// +required
	ID string `json:"id"`
	// bindings are given in every namespace of the tenant, now and later, as those of a Tenant.
	// +optional
	Bindings []TenantBinding `json:"bindings,omitempty"`
}

// MembersOf decodes TenantMembers as a server keeps them.
func MembersOf(obj runtime.Object) (*TenantMembers, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	m := &TenantMembers{}
	return m, runtime.DefaultUnstructuredConverter.FromUnstructured(content, m)
}

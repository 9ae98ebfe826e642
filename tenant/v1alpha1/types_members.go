// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindTenantMembers is the kind of [TenantMembers].
const KindTenantMembers = "TenantMembers"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=tenantmembers,singular=tenantmembers,shortName=tm,categories=kubetenant
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.id`
// +kubebuilder:printcolumn:name="Roles",type=string,JSONPath=`.spec.bindings[*].clusterRole`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec.id.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') ? self.metadata.name == self.spec.id : self.metadata.name.matches('[.][0-9a-f]{8}$') && self.metadata.name.size() == self.spec.id.size() + 9 && self.metadata.name.startsWith(self.spec.id.lowerAscii().replace('_', '-').replace('.', '-') + '.')",message="metadata.name must be this ID, or the name that kubectl tenant create-tenant generates if the ID is not a DNS label",fieldPath=".spec.id"

// TenantMembers specifies subjects and their roles in all namespaces of a tenant, and Roles that
// the tenant defines itself. Callers of the tenant may write the object if RBAC allows it. Its name
// is the name of the Tenant. The Tenant specifies the allowed ClusterRoles in spec.memberRoles.
type TenantMembers struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the subjects, their roles, and the Roles that the tenant defines itself.
	// +required
	Spec TenantMembersSpec `json:"spec"`
}

// +kubebuilder:object:root=true

// TenantMembersList is a list of TenantMembers.
type TenantMembersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantMembers `json:"items"`
}

// TenantMembersSpec specifies subjects, their roles, and the Roles that the tenant defines itself.
type TenantMembersSpec struct {
	// id specifies the ID of the tenant, as in credentials and in the label of namespaces; immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['system', 'all', 'tenant'])",message="is reserved"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	ID string `json:"id"`
	// bindings specifies the ClusterRoles that the server binds in every existing and future namespace
	// of the tenant. The server does not bind a ClusterRole that is missing from spec.memberRoles of
	// the Tenant.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(b, self.exists_one(c, c.clusterRole == b.clusterRole))",message="must not contain two bindings with the same ClusterRole"
	// +listType=atomic
	// +optional
	Bindings []TenantBinding `json:"bindings,omitempty"`
	// roles specifies the Roles that the server creates in every existing and future namespace of the
	// tenant. The writer must have the rights of each added rule in all namespaces of the tenant, or
	// be allowed to escalate Roles in these namespaces. The list is atomic.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(s, s.name == r.name))",message="must not contain two roles with the same name"
	// +listType=atomic
	// +optional
	Roles []TenantRole `json:"roles,omitempty"`
}

// TenantRole specifies a Role in every namespace of a tenant.
type TenantRole struct {
	// name specifies the name of the Role. The server does not change an existing Role with this name
	// that is not from TenantMembers.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('kubetenant:')",message="must not begin with kubetenant:"
	// +required
	Name string `json:"name"`
	// rules specifies the rules of the Role. Each rule has verbs, apiGroups and resources, and no
	// nonResourceURLs. The list is atomic.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, size(r.verbs) > 0 && has(r.apiGroups) && size(r.apiGroups) > 0 && has(r.resources) && size(r.resources) > 0)",message="each rule must have at least one verb, API group and resource"
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.nonResourceURLs) || size(r.nonResourceURLs) == 0)",message="must not contain nonResourceURLs, which have no effect in a namespace"
	// +listType=atomic
	// +optional
	Rules []rbacv1.PolicyRule `json:"rules,omitempty"`
}

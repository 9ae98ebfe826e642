// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindRetiredTenant is the kind of [RetiredTenant].
const KindRetiredTenant = "RetiredTenant"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rtn,categories=kubetenant
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.id`
// +kubebuilder:printcolumn:name="UID",type=string,JSONPath=`.spec.uid`,description="The value for spec.replaces of a successor."
// +kubebuilder:printcolumn:name="Retired",type=date,JSONPath=`.spec.retiredAt`,description="Empty until the deletion is complete, and if it was canceled."
// +kubebuilder:printcolumn:name="References",type=string,JSONPath=`.spec.references[*]`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.endsWith('-' + self.spec.uid)",message="metadata.name must be the name of the Tenant, a hyphen and this UID",fieldPath=".spec.uid"

// RetiredTenant records a deleted Tenant, so that a later tenant with the same ID inherits nothing.
// If the record is deleted, the server treats the ID as if no tenant ever had it.
type RetiredTenant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec records the deleted Tenant. The server writes it.
	// +required
	Spec RetiredTenantSpec `json:"spec"`
}

// +kubebuilder:object:root=true

// RetiredTenantList is a list of RetiredTenants.
type RetiredTenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RetiredTenant `json:"items"`
}

// +kubebuilder:validation:XValidation:rule="!has(oldSelf.retiredAt) || has(self.retiredAt) && self.retiredAt == oldSelf.retiredAt",message="field is immutable once set",fieldPath=".retiredAt"

// RetiredTenantSpec records a deleted Tenant.
type RetiredTenantSpec struct {
	// id is the ID of the tenant; immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['system', 'all', 'tenant'])",message="is reserved"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	ID string `json:"id"`
	// uid is the UID of the deleted Tenant; immutable. To reuse the ID, a new Tenant specifies this
	// UID in spec.replaces.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	UID string `json:"uid"`
	// namespaces contains the namespaces of the deleted tenant. The ID cannot be reused while an
	// object of the system tenant refers to a service account in one of these namespaces.
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// retiredAt is the time at which the deletion of the tenant was complete; immutable once set. It
	// is empty until then, and if the deletion was canceled.
	// +optional
	RetiredAt *metav1.Time `json:"retiredAt,omitempty"`
	// takenBack specifies the access of the tenant's callers after a canceled deletion; immutable. It
	// is empty if the tenant was deleted. If it is set, the ID is not reserved, and a later Tenant
	// with this ID overrides it. If several records exist, the newest one applies.
	// +kubebuilder:validation:Enum=Open;ReadOnly;Closed
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	TakenBack TenantAccess `json:"takenBack,omitempty"`
	// references contains bindings of the system tenant that named the tenant or its service
	// accounts when the deletion was complete. It contains at most 20 bindings. If there are
	// more, another entry reports how many.
	// +kubebuilder:validation:MaxItems=21
	// +kubebuilder:validation:items:MaxLength=600
	// +optional
	References []string `json:"references,omitempty"`
}

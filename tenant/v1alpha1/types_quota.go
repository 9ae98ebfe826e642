// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// KindTenantQuota is the kind of [TenantQuota].
const KindTenantQuota = "TenantQuota"

// DefaultQuotaLabel is the label of a TenantQuota that the server created from the default quota
// in the configuration. The value is "true". The server updates the TenantQuota when the default
// changes.
const DefaultQuotaLabel = "kubetenant.dev/default-quota"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=tq,categories=kubetenant
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="CPU used",type=string,JSONPath=`.status.used.requests\.cpu`,description="The requests of containers."
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.hard.requests\.cpu`
// +kubebuilder:printcolumn:name="Memory used",type=string,JSONPath=`.status.used.requests\.memory`,description="The requests of containers."
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.hard.requests\.memory`
// +kubebuilder:printcolumn:name="Pods used",type=string,JSONPath=`.status.used.pods`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.hard.pods`
// +kubebuilder:printcolumn:name="Hard",type=string,JSONPath=`.spec.hard`,priority=1,description="All limits."
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// TenantQuota specifies the limits of the resources that a tenant uses in all of its namespaces
// together.
type TenantQuota struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the limits of the tenant.
	// +required
	Spec TenantQuotaSpec `json:"spec"`
	// status reports the usage of the tenant. Only callers of the system tenant may write it.
	// +optional
	Status TenantQuotaStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// TenantQuotaList is a list of TenantQuotas.
type TenantQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantQuota `json:"items"`
}

// TenantQuotaSpec specifies the limits of a tenant.
type TenantQuotaSpec struct {
	// tenant specifies the ID of the tenant; immutable. No two TenantQuotas may have the same tenant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['system', 'all', 'tenant'])",message="is reserved"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	Tenant string `json:"tenant"`
	// hard specifies the limits of the tenant. The keys are the resource names of a
	// ResourceQuota, such as pods, requests.cpu, count/deployments.apps and
	// requests.example.com/gpu.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == int || !self[k].startsWith('-'))",message="a limit must not be negative"
	// +required
	Hard corev1.ResourceList `json:"hard"`
}

// TenantQuotaStatus reports the usage of a tenant.
type TenantQuotaStatus struct {
	// used reports the usage of the tenant, including the usage of admitted objects that are not
	// stored yet. The actual usage may be lower.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// namespaces reports the usage of each namespace.
	// +optional
	Namespaces []NamespaceUsage `json:"namespaces,omitempty"`
	// reserved reports the writes that the server has admitted but whose results it has not observed
	// yet.
	// +optional
	Reserved []QuotaReservation `json:"reserved,omitempty"`
}

// NamespaceUsage reports the usage of a namespace.
type NamespaceUsage struct {
	// namespace is the name of the namespace.
	// +required
	Namespace string `json:"namespace"`
	// used reports the usage of the namespace.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
}

// QuotaReservation reports the usage of a write that the server has admitted but whose result it
// has not observed yet.
type QuotaReservation struct {
	// uid is the UID of the object.
	// +required
	UID types.UID `json:"uid"`
	// key is the resource, the namespace and the name of an object that is being created.
	// +optional
	Key string `json:"key,omitempty"`
	// expires is the time after which the server ignores the reservation.
	// +required
	Expires metav1.Time `json:"expires"`
	// used reports the usage of the object.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// after is the resourceVersion of the object that an update replaces.
	// +optional
	After string `json:"after,omitempty"`
}

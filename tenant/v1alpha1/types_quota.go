package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/tenant"
)

// KindTenantQuota is the kind of a tenant's quota.
const KindTenantQuota = "TenantQuota"

// DefaultQuotaLabel stands, "true", on the quotas that are made from the
// configuration's default and follow it.
const DefaultQuotaLabel = "kubetenant.dev/default-quota"

// TenantQuota limits a tenant over all its namespaces. Cluster-scoped.
type TenantQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantQuotaSpec   `json:"spec"`
	Status            TenantQuotaStatus `json:"status,omitempty"`
}

// QuotasOf returns the field selector of the TenantQuotas of a tenant.
func QuotasOf(id tenant.ID) string {
	return fields.OneTermEqualSelector("spec.tenant", id.String()).String()
}

// TenantQuotaSpec says how much a tenant may use.
type TenantQuotaSpec struct {
	// tenant that is limited. It never changes, and no two quotas may have one tenant.
	// +required
	Tenant string `json:"tenant"`
	// hard are the limits, by the names of a ResourceQuota: pods, requests.cpu,
	// count/deployments.apps, requests.example.com/gpu, ...
	// +required
	Hard corev1.ResourceList `json:"hard"`
}

// TenantQuotaStatus is what is used. Only the system tenant's callers write it.
type TenantQuotaStatus struct {
	// used is at least what the tenant's objects use, with those that are about to be stored.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// namespaces is what the objects of each namespace use.
	// +optional
	Namespaces []NamespaceUsage `json:"namespaces,omitempty"`
	// reserved are the writes that were let through and are not seen yet.
	// +optional
	Reserved []QuotaReservation `json:"reserved,omitempty"`
}

// NamespaceUsage is what the objects of a namespace use.
type NamespaceUsage struct {
	Namespace string              `json:"namespace"`
	Used      corev1.ResourceList `json:"used,omitempty"`
}

// QuotaReservation is what an object uses that was let through and is not seen yet.
type QuotaReservation struct {
	UID types.UID `json:"uid"`
	// key is the resource, namespace and name of a create.
	// +optional
	Key     string              `json:"key,omitempty"`
	Expires metav1.Time         `json:"expires"`
	Used    corev1.ResourceList `json:"used,omitempty"`
	// after is the resourceVersion that an update changed.
	// +optional
	After string `json:"after,omitempty"`
}

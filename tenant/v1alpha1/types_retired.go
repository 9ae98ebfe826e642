package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/tenant"
)

// KindRetiredTenant is the kind of [RetiredTenant].
const KindRetiredTenant = "RetiredTenant"

// RetiredTenant is what a Tenant that was deleted leaves, so that nobody who gets its ID later
// inherits anything. Cluster-scoped; who deletes it makes the ID like one that never was.
type RetiredTenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              RetiredTenantSpec `json:"spec"`
}

// RetiredTenantSpec says who it was. The server writes it.
type RetiredTenantSpec struct {
	// id of the tenant.
	// +required
	ID string `json:"id"`
	// uid of the Tenant.
	// +required
	UID string `json:"uid"`
	// namespaces that it had: service accounts of such names are not to be
	// trusted with what theirs were.
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// retiredAt is when it had ended; left out while it has not.
	// +optional
	RetiredAt *metav1.Time `json:"retiredAt,omitempty"`
	// references are what named the tenant then in the system tenant's space: at most 20.
	// +optional
	References []string `json:"references,omitempty"`
}

// RetiredName returns the name of the RetiredTenant of a Tenant.
func RetiredName(tenantName, uid string) string { return tenantName + "-" + uid }

// RetiredOf reads a RetiredTenant as a server keeps it: the tenant that it was, and the zero ID for
// one that is understood as nobody's.
func RetiredOf(obj runtime.Object) (tenant.ID, tenant.Retired) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	r := &RetiredTenant{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, r)
	}
	id, parseErr := tenant.Parse(r.Spec.ID)
	if err != nil || parseErr != nil || id.IsSystem() {
		return tenant.ID{}, tenant.Retired{}
	}
	out := tenant.Retired{UID: r.Spec.UID, Begun: r.CreationTimestamp.Time, Namespaces: r.Spec.Namespaces}
	if r.Spec.RetiredAt != nil {
		out.At = r.Spec.RetiredAt.Time
	}
	return id, out
}

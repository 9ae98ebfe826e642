package tenants

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TenantOf decodes a Tenant.
func TenantOf(obj runtime.Object) (*v1alpha1.Tenant, error) {
	t := &v1alpha1.Tenant{}
	return t, decode(obj, t)
}

// MembersOf decodes TenantMembers.
func MembersOf(obj runtime.Object) (*v1alpha1.TenantMembers, error) {
	m := &v1alpha1.TenantMembers{}
	return m, decode(obj, m)
}

func decode(obj runtime.Object, into any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
}

// RetiredOf returns the tenant of a RetiredTenant and its record. It returns the zero ID if the
// RetiredTenant is invalid.
func RetiredOf(obj runtime.Object) (tenant.ID, tenant.Retired) {
	r := &v1alpha1.RetiredTenant{}
	err := decode(obj, r)
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

// RetiredName returns the name of the RetiredTenant of a Tenant.
func RetiredName(tenantName, uid string) string { return tenantName + "-" + uid }

// QuotasOf returns the field selector of the TenantQuotas of a tenant.
func QuotasOf(id tenant.ID) string {
	return fields.OneTermEqualSelector("spec.tenant", id.String()).String()
}

// Labels converts the labels of a Tenant's namespaces. They are nil if the Tenant has none.
func Labels(of map[string]v1alpha1.LabelValue) map[string]string {
	if of == nil {
		return nil
	}
	out := make(map[string]string, len(of))
	for key, value := range of {
		out[key] = string(value)
	}
	return out
}

// Subjects converts the subjects of a Tenant or of TenantMembers to subjects of RBAC.
func Subjects(all []v1alpha1.Subject) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, s := range all {
		out = append(out, rbacv1.Subject(s))
	}
	return out
}

package tenants

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// slim keeps of a Tenant what is looked at.
func slim(obj any) (any, error) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return obj, nil // a tombstone
	}
	out := &unstructured.Unstructured{Object: map[string]any{"spec": u.Object["spec"]}}
	if status, has := u.Object["status"]; has {
		out.Object["status"] = status
	}
	out.SetName(u.GetName())
	out.SetUID(u.GetUID())
	out.SetGeneration(u.GetGeneration())
	out.SetCreationTimestamp(u.GetCreationTimestamp())
	out.SetDeletionTimestamp(u.GetDeletionTimestamp())
	out.SetFinalizers(u.GetFinalizers())
	out.SetResourceVersion(u.GetResourceVersion())
	if value := u.GetAnnotations()[tenant.TakeBackAnnotation]; value != "" {
		out.SetAnnotations(map[string]string{tenant.TakeBackAnnotation: value})
	}
	return out, nil
}

// NamespacesOf returns the labels, the prefix, the level of pod security and the templates of a
// tenant's namespaces. It ignores a field that it cannot read.
func NamespacesOf(u *unstructured.Unstructured) (spec v1alpha1.TenantNamespacesSpec) {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(u.Object, "spec", "namespaces", field)
		return value
	}
	spec.PodSecurity, spec.Prefix = text("podSecurity"), v1alpha1.NamespacePrefix(text("prefix"))
	spec.Templates, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "namespaces", "templates")
	labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "namespaces", "labels")
	for key, value := range labels {
		if spec.Labels == nil {
			spec.Labels = make(map[string]v1alpha1.LabelValue, len(labels))
		}
		spec.Labels[key] = v1alpha1.LabelValue(value)
	}
	return spec
}

// AccessOf returns the tenant of a Tenant and how far its callers may go; the zero ID for one that
// counts for nothing: of another name than its tenant's, or of no tenant.
func AccessOf(u *unstructured.Unstructured) (tenant.ID, authz.Access) {
	text, _, _ := unstructured.NestedString(u.Object, "spec", "id")
	id, err := tenant.Parse(text)
	if err != nil || id.IsSystem() || id.ObjectName() != u.GetName() {
		return tenant.ID{}, authz.AccessUnknown
	}
	access := authz.AccessOpen
	for _, field := range []string{"access", "suspension"} {
		value, _, err := unstructured.NestedString(u.Object, "spec", field)
		switch v1alpha1.TenantAccess(value) {
		case "", v1alpha1.TenantAccessOpen:
		case v1alpha1.TenantAccessReadOnly:
			access = min(access, authz.AccessReadOnly)
		default: // a later release's
			access = authz.AccessClosed
		}
		if err != nil {
			access = authz.AccessClosed
		}
	}
	return id, access
}

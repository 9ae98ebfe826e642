package tenants

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/tenant"
)

// referencePage is how many bindings are read at once.
const referencePage = 500

// References returns which bindings of a cluster name a tenant's callers in the system tenant's space, by kind and name: its
// group, or service accounts of some namespaces and of those that have its prefix. What other tenants' namespaces hold is theirs, and
// what was made for the tenant itself ([tenant.OfTenantLabel]) is left out. isTenants reports whether a namespace is a
// tenant's. It reads all bindings, page by page.
func References(ctx context.Context, client kubernetes.Interface, id tenant.ID, namespaces []string, isTenants func(namespace string) bool) (found []string, err error) {
	for page := (metav1.ListOptions{Limit: referencePage}); ; {
		list, err := client.RbacV1().ClusterRoleBindings().List(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if b := &list.Items[i]; b.Labels[tenant.OfTenantLabel] != id.String() && Names(id, namespaces, b.Subjects) {
				found = append(found, "ClusterRoleBinding "+b.Name)
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			break
		}
	}
	for page := (metav1.ListOptions{Limit: referencePage}); ; {
		list, err := client.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if b := &list.Items[i]; Names(id, namespaces, b.Subjects) && !isTenants(b.Namespace) {
				found = append(found, "RoleBinding "+b.Namespace+"/"+b.Name)
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return found, nil
		}
	}
}

// Names reports whether one of some subjects is a tenant's: its group, or service accounts of some namespaces and of those that
// have its prefix.
func Names(id tenant.ID, namespaces []string, subjects []rbacv1.Subject) bool {
	has := func(namespace string) bool {
		return slices.Contains(namespaces, namespace) || tenant.PrefixOwner(namespace) == id
	}
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return has(s.Namespace)
		case rbacv1.UserKind:
			namespace, _, err := serviceaccount.SplitUsername(s.Name)
			return err == nil && has(namespace)
		case rbacv1.GroupKind:
			namespace, is := strings.CutPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
			return s.Name == id.Group() || is && has(namespace)
		}
		return false
	})
}

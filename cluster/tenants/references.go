// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// referencePage is the maximum number of bindings that one list request returns.
const referencePage = 5000

// References returns the kinds and names of the RoleBindings and ClusterRoleBindings that name a
// tenant in a subject, see [SubjectMatcher]. It includes ClusterRoleBindings with the label
// [tenant.OfTenantLabel] of the tenant. It omits RoleBindings in namespaces for which isTenants
// returns true, because these namespaces belong to tenants. It reads all bindings page by page.
func References(
	ctx context.Context,
	client kubernetes.Interface,
	id tenant.ID,
	namespaces []string,
	isTenants func(namespace string) bool,
) (found []string, err error) {
	names := SubjectMatcher(id, namespaces)
	for page := (metav1.ListOptions{Limit: referencePage}); ; {
		list, err := client.RbacV1().ClusterRoleBindings().List(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if b := &list.Items[i]; b.Labels[tenant.OfTenantLabel] == id.String() || names(b.Subjects) {
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
			if b := &list.Items[i]; names(b.Subjects) && !isTenants(b.Namespace) {
				found = append(found, "RoleBinding "+b.Namespace+"/"+b.Name)
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return found, nil
		}
	}
}

// Remaining returns the kinds and names of the project's objects that remain from an earlier
// tenant with the given ID. These are TenantMembers, and TenantQuotas that are being deleted. It
// omits other TenantQuotas, because they limit a later tenant but give it no rights.
func Remaining(ctx context.Context, client dynamic.Interface, id tenant.ID) (found []string, err error) {
	members := typed.NewClient[v1alpha1.TenantMembers](client, membersResource())
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, id.ObjectName()).String()
	err = members.ForEach(ctx, metav1.ListOptions{FieldSelector: named}, func(m *v1alpha1.TenantMembers) {
		if m.Spec.ID == id.String() {
			found = append(found, v1alpha1.KindTenantMembers+" "+m.Name)
		}
	}, func(i *typed.Invalid) {
		if i.Name == id.ObjectName() {
			found = append(found, v1alpha1.KindTenantMembers+" "+i.Name)
		}
	})
	if err != nil && !apierrors.IsNotFound(err) { // the server may not define the kind
		return nil, err
	}
	add := func(q metav1.Object) {
		if q.GetDeletionTimestamp() != nil {
			found = append(found, v1alpha1.KindTenantQuota+" "+q.GetName())
		}
	}
	quotas := typed.NewClient[v1alpha1.TenantQuota](client,
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas))
	err = quotas.ForEach(ctx, metav1.ListOptions{FieldSelector: QuotaSelector(id)}, func(q *v1alpha1.TenantQuota) {
		if q.Spec.Tenant == id.String() {
			add(q)
		}
	}, func(i *typed.Invalid) { add(i) })
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return found, nil
}

// SubjectMatcher returns a function that reports whether a subject names a tenant. The subject
// must be the tenant's group, one of its service accounts, or the group of the service accounts
// in one of its namespaces. The tenant's namespaces are the given namespaces and all namespaces
// whose names have the tenant's prefix.
func SubjectMatcher(id tenant.ID, namespaces []string) func([]rbacv1.Subject) bool {
	owned := make(map[string]bool, len(namespaces))
	for _, name := range namespaces {
		owned[name] = true
	}
	isOwned := func(namespace string) bool { return owned[namespace] || tenant.PrefixOwner(namespace) == id }
	matches := func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return isOwned(s.Namespace)
		case rbacv1.UserKind:
			namespace, _, err := serviceaccount.SplitUsername(s.Name)
			return err == nil && isOwned(namespace)
		case rbacv1.GroupKind:
			namespace, ok := strings.CutPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
			return s.Name == id.Group() || ok && isOwned(namespace)
		}
		return false
	}
	return func(subjects []rbacv1.Subject) bool { return slices.ContainsFunc(subjects, matches) }
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// pageSize is the number of objects in one page of a list.
const pageSize = 500

// owners contains the tenants that own namespaces, and the IDs of deleted tenants.
type owners struct {
	byNamespace map[string]string // keyed by namespace, without namespaces of the system tenant
	retired     map[string]bool   // keyed by tenant ID
}

// readOwners reads the labels of namespaces, and the RetiredTenants. Like a server, it ignores a
// tenant's label on a system namespace.
func (r *run) readOwners(ctx context.Context) (*owners, error) {
	o := &owners{byNamespace: map[string]string{}, retired: map[string]bool{}}
	err := each(ctx, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		opts.LabelSelector = tenant.Label
		return r.Admin.Kube.CoreV1().Namespaces().List(ctx, opts)
	}, func(ns *corev1.Namespace) {
		if owner := ns.Labels[tenant.Label]; owner != tenant.System().String() {
			o.byNamespace[ns.Name] = owner
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	system, err := r.systemNamespaces(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, name := range system {
		if owner, labelled := o.byNamespace[name]; labelled {
			r.Printf(
				"  warning: the system namespace %s has the label of tenant %s, but servers ignore it: its objects are not "+
					"treated as the tenant's objects",
				name,
				owner,
			)
			delete(o.byNamespace, name)
		}
	}
	retired := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)
	err = r.eachObject(ctx, retired, func(u *unstructured.Unstructured) {
		if id, _, err := tenants.ReadRetired(typed.Decode[v1alpha1.RetiredTenant](u)); err == nil {
			o.retired[id.String()] = true
		}
	})
	return o, err
}

// systemNamespaces returns the default system namespaces, and those in the published
// configuration. It ignores a published configuration in a namespace that has a tenant's label,
// because the tenant may have written it.
func (r *run) systemNamespaces(ctx context.Context, o *owners) ([]string, error) {
	var defaults configv1alpha1.Settings
	configv1alpha1.Default(&defaults)
	all := defaults.Authorization.SystemNamespaces
	for _, namespace := range r.publishers {
		if _, labelled := o.byNamespace[namespace]; labelled {
			continue
		}
		p, err := cluster.PublishedConfiguration(ctx, r.Admin.Kube.CoreV1(), namespace)
		switch {
		case err == nil:
			all = append(all, p.Settings.Authorization.SystemNamespaces...)
			slices.Sort(all)
			return slices.Compact(all), nil
		case !apierrors.IsNotFound(err) && !errors.Is(err, configv1alpha1.ErrNotPublished):
			return nil, fmt.Errorf("read the published configuration in namespace %s: %w", namespace, err)
		}
	}
	return all, nil
}

// each calls f for each object in a list, one page at a time.
func each[T runtime.Object](ctx context.Context, list pager.ListPageFunc, f func(T)) error {
	p := pager.New(list)
	p.PageSize = pageSize
	return p.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		if object, ok := obj.(T); ok {
			f(object)
		}
		return nil
	})
}

// eachObject calls f for each object of a resource. If the server does not serve the resource, it
// returns nil.
func (r *run) eachObject(ctx context.Context, resource schema.GroupVersionResource,
	f func(*unstructured.Unstructured),
) error {
	err := each(ctx, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return r.Admin.Objects.Resource(resource).List(ctx, opts)
	}, f)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	return nil
}

// account returns the namespace of the service accounts that a subject matches, or "" if the
// subject matches no service accounts. in is the namespace of the binding.
func account(s *rbacv1.Subject, in string) string {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Namespace == "" {
			return in
		}
		return s.Namespace
	case rbacv1.UserKind:
		namespace, _ := tenant.ServiceAccountNamespace(s.Name)
		return namespace
	case rbacv1.GroupKind:
		namespace, ok := strings.CutPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
		if ok {
			return namespace
		}
	}
	return ""
}

// isBroad reports whether callers of all tenants match a subject.
func isBroad(s *rbacv1.Subject) bool {
	switch s.Name {
	case user.AllAuthenticated, user.AllUnauthenticated, serviceaccount.AllServiceAccountsGroup, user.Anonymous:
		return s.Kind == rbacv1.GroupKind || s.Kind == rbacv1.UserKind
	}
	return false
}

// isAmbiguousName reports whether callers of several tenants may match the name of a subject.
func isAmbiguousName(s *rbacv1.Subject) bool {
	return (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) && !strings.HasPrefix(s.Name, "system:") &&
		!strings.HasPrefix(s.Name, tenant.GroupPrefix)
}

// tenantOf returns the tenant of all callers that match a subject, or "" if the subject is not
// limited to one tenant. in is the namespace of the binding.
func (o *owners) tenantOf(s *rbacv1.Subject, in string) string {
	if id, ok := strings.CutPrefix(s.Name, tenant.GroupPrefix); ok && s.Kind == rbacv1.GroupKind {
		return id
	}
	return o.byNamespace[account(s, in)]
}

// isShared reports whether, on a server without kubetenant, a subject of a RoleBinding also
// matches callers of a tenant that does not own the namespace. The group tenant:<id> of a deleted
// tenant is shared, because callers of the deleted tenant may match it.
func (o *owners) isShared(s *rbacv1.Subject, namespace string) bool {
	owner := o.byNamespace[namespace]
	if subjectTenant := o.tenantOf(s, namespace); subjectTenant != "" {
		return subjectTenant != owner || o.retired[subjectTenant] && strings.HasPrefix(s.Name, tenant.GroupPrefix)
	}
	return owner != "" && (isBroad(s) || isAmbiguousName(s) && !strings.HasPrefix(s.Name, owner+":"))
}

// checkCaller returns an error unless the caller has all rights in the cluster.
func (r *run) checkCaller(ctx context.Context) error {
	review, err := r.Admin.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb:     "*",
				Group:    "*",
				Resource: "*",
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review the caller's access: %w", err)
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%w: only the cluster's admin can remove kubetenant: you need every verb on every "+
			"resource", ErrRefused)
	}
	return nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package privileges finds what reaches an identity in a cluster, and who may do what: roles and
// bindings, grants between tenants and lines of the policy file, behind the tenant boundary.
package privileges

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// pageSize is how many objects one answer holds: 100,000 bindings are 20 requests.
	pageSize = 5000
	protobuf = "application/vnd.kubernetes.protobuf"
)

// Selection says what to read.
type Selection struct {
	// Namespace is the only one to read Roles, RoleBindings and grants of; empty for all.
	Namespace string
	// Keep reports whether a binding matters; it is called when all roles are known. Nil keeps all.
	// What is not kept costs no memory.
	Keep func(*simulator.Snapshot, *simulator.Binding) bool
	// Tenant limits the lists to the objects of one tenant, as a tenant's caller behind the webhook
	// service must do. The zero ID does not limit them.
	Tenant tenant.ID
	// Grants are read too, and Scopes of custom resources and whom quotas are about.
	Grants, Scopes bool
}

// Read reads from the cluster. A kind that the caller may not list is left out and named in Unread.
// read is told of the number of objects so far.
func Read(
	ctx context.Context, config *rest.Config, s Selection, read func(objects int64),
) (*simulator.Snapshot, error) {
	fast := rest.CopyConfig(config)
	fast.ContentType, fast.AcceptContentTypes = protobuf, protobuf+",application/json"
	k, err := kube.NewForConfig(fast)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	r := &reader{snapshot: simulator.NewSnapshot(), keep: s.Keep, told: read}
	roles, bindings := k.RbacV1().Roles(s.Namespace), k.RbacV1().RoleBindings(s.Namespace)
	lists := []kindList{
		{
			"Namespaces",
			false,
			func(o metav1.ListOptions) (runtime.Object, error) { return k.CoreV1().Namespaces().List(ctx, o) },
		},
		{
			"ClusterRoles",
			false,
			func(o metav1.ListOptions) (runtime.Object, error) { return k.RbacV1().ClusterRoles().List(ctx, o) },
		},
		{"Roles", false, func(o metav1.ListOptions) (runtime.Object, error) { return roles.List(ctx, o) }},
		{"ClusterRoleBindings", false, func(o metav1.ListOptions) (runtime.Object, error) {
			return k.RbacV1().ClusterRoleBindings().List(ctx, o)
		}},
		{"RoleBindings", false, func(o metav1.ListOptions) (runtime.Object, error) { return bindings.List(ctx, o) }},
	}
	custom := func(kind string, of schema.GroupVersionResource, namespace string) {
		client := d.Resource(of).Namespace(namespace)
		lists = append(lists, kindList{
			kind, of.Group == tenant.Domain, func(o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		})
	}
	custom("Tenants", v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants), "")
	if s.Scopes {
		custom("CustomResourceDefinitions",
			schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "")
		custom("RetiredTenants", v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants), "")
		custom("TenantQuotas", v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas), "")
		custom("TenantMembers", v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers), "")
	}
	if s.Grants {
		custom("AccessGrants", v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants), s.Namespace)
	}
	for _, list := range lists {
		if err := r.list(ctx, list, Limit(s.Tenant, list.kind)); err != nil {
			return nil, err
		}
	}
	return r.snapshot, nil
}

// kindList lists one page of a kind.
type kindList struct {
	kind     string
	optional bool // a server may not know it
	page     func(metav1.ListOptions) (runtime.Object, error)
}

// reader fills a snapshot.
type reader struct {
	snapshot *simulator.Snapshot
	keep     func(*simulator.Snapshot, *simulator.Binding) bool // nil for all
	count    int64
	told     func(int64)
}

// Limit returns the options of a list of a tenant's objects. The list is not limited if the ID is
// zero or if objects of the kind belong to no tenant.
func Limit(id tenant.ID, kind string) metav1.ListOptions {
	switch {
	case id.IsZero():
	case slices.Contains([]string{"Namespaces", "Roles", "RoleBindings", "AccessGrants"}, kind):
		return metav1.ListOptions{LabelSelector: tenant.Label + "=" + id.String()}
	case slices.Contains([]string{"Tenants", "TenantQuotas", "TenantMembers"}, kind):
		return metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, id.ObjectName()).String(),
		}
	}
	return metav1.ListOptions{}
}

func (r *reader) list(ctx context.Context, list kindList, options metav1.ListOptions) error {
	pages := pager.New(pager.SimplePageFunc(list.page))
	pages.PageSize = pageSize
	err := pages.EachListItem(ctx, options, r.add)
	switch {
	case apierrors.IsForbidden(err):
		r.snapshot.Unread = append(r.snapshot.Unread, list.kind)
		return nil
	case apierrors.IsNotFound(err) && list.optional:
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", list.kind, err)
	}
	return nil
}

func (r *reader) add(obj runtime.Object) error {
	if r.count++; r.told != nil && r.count%1000 == 0 {
		r.told(r.count)
	}
	if b := simulator.BindingOf(obj); b != nil && r.keep != nil && !r.keep(r.snapshot, b) {
		return nil
	}
	return r.snapshot.Add(obj)
}

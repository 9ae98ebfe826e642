// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package privileges finds the privileges of an identity in a cluster, and the subjects that may
// perform an action. It considers roles and bindings, grants between tenants, lines of the policy
// file, and the tenant boundary.
package privileges

import (
	"context"
	"fmt"

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
	// pageSize is the number of objects in one page of a list. A cluster with 100,000 bindings
	// needs 20 requests.
	pageSize = 5000
	protobuf = "application/vnd.kubernetes.protobuf"
)

// Selection specifies the objects to read.
type Selection struct {
	// Namespace limits Roles, RoleBindings and grants to one namespace. If empty, all namespaces
	// are read.
	Namespace string
	// KeepBinding reports whether to store a binding. It is called after all roles have been read.
	// If nil, all bindings are stored.
	KeepBinding func(*simulator.Snapshot, *simulator.Binding) bool
	// Tenant limits the lists to the objects of one tenant. In webhook mode, callers of a tenant
	// may not send other lists over all namespaces. The zero ID does not limit the lists.
	Tenant tenant.ID
	// Grants specifies that AccessGrants are read too. Scopes specifies that
	// CustomResourceDefinitions, RetiredTenants, TenantQuotas and TenantMembers are read too.
	Grants, Scopes bool
}

// Read reads the selected objects from the cluster. If the caller may not list a kind, Read omits
// it and adds the kind to Unread. It calls read with the number of objects after each 1,000
// objects. read may be nil.
func Read(
	ctx context.Context, config *rest.Config, s Selection, read func(objects int64),
) (*simulator.Snapshot, error) {
	fast := rest.CopyConfig(config)
	fast.ContentType = protobuf
	fast.AcceptContentTypes = protobuf + ",application/json"
	k, err := kube.NewForConfig(fast)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	r := &reader{snapshot: simulator.NewSnapshot(), keepBinding: s.KeepBinding, progress: read}
	roles := k.RbacV1().Roles(s.Namespace)
	bindings := k.RbacV1().RoleBindings(s.Namespace)
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
	custom := func(kind string, resource schema.GroupVersionResource, namespace string) {
		client := d.Resource(resource).Namespace(namespace)
		lists = append(lists, kindList{
			kind,
			resource.Group == tenant.Domain,
			func(o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
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

// kindList specifies how to list the objects of a kind.
type kindList struct {
	kind     string
	optional bool // the server may not serve the kind
	page     func(metav1.ListOptions) (runtime.Object, error)
}

// reader adds the objects that it reads to a snapshot.
type reader struct {
	snapshot    *simulator.Snapshot
	keepBinding func(*simulator.Snapshot, *simulator.Binding) bool // if nil, stores all bindings
	count       int64
	progress    func(int64)
}

// Limit returns the options for a list of the objects of one tenant. The list is not limited if
// the ID is zero, or if tenants own no objects of the kind.
func Limit(id tenant.ID, kind string) metav1.ListOptions {
	if id.IsZero() {
		return metav1.ListOptions{}
	}
	switch kind {
	case "Namespaces", "Roles", "RoleBindings", "AccessGrants":
		return metav1.ListOptions{LabelSelector: tenant.Label + "=" + id.String()}
	case "Tenants", "TenantQuotas", "TenantMembers":
		return metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, id.ObjectName()).String(),
		}
	default:
		return metav1.ListOptions{}
	}
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
	if r.count++; r.progress != nil && r.count%1000 == 0 {
		r.progress(r.count)
	}
	if b := simulator.BindingOf(obj); b != nil && r.keepBinding != nil && !r.keepBinding(r.snapshot, b) {
		return nil
	}
	return r.snapshot.Add(obj)
}

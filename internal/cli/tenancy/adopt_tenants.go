// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// ObjectAdoption selects tenants and specifies how their Tenant objects are created.
type ObjectAdoption struct {
	// Only contains the selected tenants. If empty, all tenants are selected.
	Only []tenant.ID
	// ClientDryRun specifies that the Tenant objects are returned but not created.
	ClientDryRun bool
	// Admins adds a subject to a Tenant's admins if grant-privileges bound the ClusterRole admin
	// to the subject in all of the tenant's namespaces, without an expiration. These bindings are
	// deleted after the server has created the bindings of the Tenant's admins.
	Admins bool
	// System contains the system namespaces. No tenant owns them, even if they have a tenant's
	// label.
	System []string
}

// ownedNamespaces contains the namespaces and the admins of a tenant.
type ownedNamespaces struct {
	namespaces []string
	admins     []rbacv1.Subject
	bindings   []rbacv1.RoleBinding // the bindings of these admins to the role
}

// AdoptTenants creates a Tenant object for each selected tenant that owns namespaces and has no
// Tenant object. It returns the new objects. The error may wrap [ErrRefused] or [ErrNotPrepared].
func AdoptTenants(
	ctx context.Context, k kube.Interface, d dynamic.Interface, a *ObjectAdoption, w Writing,
) ([]runtime.Object, error) {
	owners, err := withoutObjects(ctx, k, d, a)
	if err != nil {
		return nil, err
	}
	if a.Admins {
		if err := findAdmins(ctx, k, owners); err != nil {
			return nil, err
		}
	}
	var created []runtime.Object
	for _, id := range slices.SortedFunc(maps.Keys(owners), byName) {
		tenantOwned := owners[id]
		u := Object(id)
		if err := setAdmins(u, tenantOwned.admins); err != nil {
			return created, err
		}
		if !a.ClientDryRun {
			if is, _, err := createObject(ctx, d, u, w.DryRun); err != nil {
				return created, fmt.Errorf("tenant %s: %w", id, err)
			} else if !is { // another caller created the object
				continue
			}
		}
		w.Changes.Print(tenantKind, u.GetName(), output.Created)
		created = append(created, u)
		if a.ClientDryRun {
			for i := range tenantOwned.bindings {
				reportDeleted(&tenantOwned.bindings[i], w)
			}
			continue
		}
		if err := tenantOwned.deleteFormerBindings(ctx, k, d, id, w); err != nil {
			return created, err
		}
	}
	return created, nil
}

// withoutObjects returns the selected tenants that own namespaces and have no Tenant object.
func withoutObjects(
	ctx context.Context, k kube.Interface, d dynamic.Interface, a *ObjectAdoption,
) (map[tenant.ID]*ownedNamespaces, error) {
	namespaces, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: tenant.Label})
	if err != nil {
		return nil, refusal(err)
	}
	have, err := d.Resource(tenantObjects).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Tenants: %w", refusal(err))
	}
	hasObject := map[string]bool{}
	for i := range have.Items {
		hasObject[tenantOf(&have.Items[i])] = true
	}
	owners := map[tenant.ID]*ownedNamespaces{}
	for i := range namespaces.Items {
		id, err := tenant.Parse(namespaces.Items[i].Labels[tenant.Label])
		if err != nil || id.IsSystem() || slices.Contains(a.System, namespaces.Items[i].Name) {
			continue
		}
		if owners[id] == nil {
			owners[id] = &ownedNamespaces{}
		}
		owners[id].namespaces = append(owners[id].namespaces, namespaces.Items[i].Name)
	}
	for _, id := range a.Only {
		if owners[id] == nil && !hasObject[id.String()] {
			return nil, fmt.Errorf("tenant %s owns no namespace: create it with kubectl tenant create-tenant", id)
		}
	}
	maps.DeleteFunc(owners, func(id tenant.ID, _ *ownedNamespaces) bool {
		return hasObject[id.String()] || len(a.Only) > 0 && !slices.Contains(a.Only, id)
	})
	return owners, nil
}

// findAdmins finds the subjects that have the ClusterRole admin in all namespaces of a tenant. It
// considers only bindings that grant-privileges created without an expiration.
func findAdmins(ctx context.Context, k kube.Interface, owners map[tenant.ID]*ownedNamespaces) error {
	list, err := k.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: privileges.CreatedByLabel + "=" + createdByValue})
	if err != nil {
		return fmt.Errorf("list RoleBindings: %w", refusal(err))
	}
	in := map[string][]*rbacv1.RoleBinding{} // keyed by namespace
	for i := range list.Items {
		b := &list.Items[i]
		_, ends := b.Annotations[tenant.ExpiresAnnotation]
		if !ends && len(b.Subjects) == 1 && b.RoleRef.Kind == "ClusterRole" && b.RoleRef.Name == adminRole {
			in[b.Namespace] = append(in[b.Namespace], b)
		}
	}
	for _, tenantOwned := range owners {
		for _, first := range in[tenantOwned.namespaces[0]] {
			bindings := bindingsOf(first.Subjects[0], tenantOwned.namespaces, in)
			if len(bindings) < len(tenantOwned.namespaces) || slices.Contains(tenantOwned.admins, first.Subjects[0]) {
				continue
			}
			tenantOwned.admins = append(tenantOwned.admins, first.Subjects[0])
			tenantOwned.bindings = append(tenantOwned.bindings, bindings...)
		}
	}
	return nil
}

// bindingsOf returns one binding of a subject for each of the given namespaces in which the
// subject has a binding.
func bindingsOf(s rbacv1.Subject, namespaces []string, in map[string][]*rbacv1.RoleBinding) (all []rbacv1.RoleBinding) {
	for _, name := range namespaces {
		if i := slices.IndexFunc(in[name], func(b *rbacv1.RoleBinding) bool { return b.Subjects[0] == s }); i >= 0 {
			all = append(all, *in[name][i])
		}
	}
	return all
}

func setAdmins(u *unstructured.Unstructured, admins []rbacv1.Subject) error {
	if len(admins) == 0 {
		return nil
	}
	list := make([]any, 0, len(admins))
	for i := range admins {
		s, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&admins[i])
		if err != nil {
			return err
		}
		if admins[i].Kind == rbacv1.ServiceAccountKind {
			delete(s, "apiGroup")
		}
		list = append(list, s)
	}
	return unstructured.SetNestedSlice(u.Object, list, "spec", "admins")
}

// deleteFormerBindings deletes the former bindings of the admins, after the server has created the
// bindings that the Tenant specifies.
func (of *ownedNamespaces) deleteFormerBindings(
	ctx context.Context, k kube.Interface, d dynamic.Interface, id tenant.ID, w Writing,
) error {
	if len(of.admins) > 0 && len(w.DryRun) == 0 {
		if err := AwaitPrepared(ctx, k, d, id, of.namespaces); err != nil {
			return err
		}
	}
	for i := range of.bindings {
		b := &of.bindings[i]
		err := k.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name,
			metav1.DeleteOptions{DryRun: w.DryRun, Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return refusal(err)
		}
		reportDeleted(b, w)
	}
	return nil
}

func reportDeleted(b *rbacv1.RoleBinding, w Writing) {
	w.Changes.PrintDeleted(roleBindingKind, b.Namespace, b.Name)
}

func byName(a, b tenant.ID) int { return cmp.Compare(a.String(), b.String()) }

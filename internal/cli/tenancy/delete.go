// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Deletion specifies how a tenant is deleted.
type Deletion struct {
	Writing
	// Everything specifies that the tenant is deleted together with the objects in its namespaces.
	// If ClientDryRun is true, no write request is sent.
	Everything, ClientDryRun bool
	// System contains the system namespaces. Delete returns an error if one of them has the
	// tenant's label.
	System []string
	// Confirm is called with the tenant's namespaces before the first deletion, except in a dry
	// run. If Confirm returns an error, nothing is deleted. If nil, the deletion needs no
	// confirmation.
	Confirm func(namespaces []string) error
	// Wait is the maximum time to wait until the Tenant is deleted. If zero, Delete does not wait.
	// OnProgress is called with a progress message while Delete waits. It may be nil.
	Wait       time.Duration
	OnProgress func(what string)
}

// ErrNotEmpty reports that a tenant has objects.
var ErrNotEmpty = errors.New("the tenant is not empty (use --with-everything to delete its contents)")

// ErrNoTenant reports that a tenant does not exist.
var ErrNoTenant = errors.New("there is no such tenant: to list the tenants, run kubectl tenant tenants")

// ErrDeletionPending reports that the deletion of a tenant is not complete.
var ErrDeletionPending = errors.New(
	"the deletion is not finished and continues on the server: to follow it, run kubectl get " +
		"tenant -o wide; to wait again, repeat this command",
)

// parts contains the objects that belong to a tenant.
type parts struct {
	namespaces []corev1.Namespace
	bindings   []rbacv1.ClusterRoleBinding
	quotas     []string
	object     *unstructured.Unstructured // nil if the tenant has no Tenant object
}

// Delete deletes a tenant without objects or, with [Deletion.Everything], any tenant. If the
// tenant has a Tenant object, Delete deletes only this object, and the server deletes the rest.
// Otherwise, Delete deletes the tenant's objects itself. The error may wrap [ErrNotEmpty],
// [ErrDeletionPending], [ErrRefused] or [ErrNoTenant], or be the error from [Deletion.Confirm].
// With [Deletion.ClientDryRun], Delete only reports the objects that it would delete.
func Delete(ctx context.Context, k kube.Interface, d dynamic.Interface, id tenant.ID, opts Deletion) error {
	existing, err := partsOf(ctx, k, d, id)
	if err != nil {
		return err
	}
	if err := refuseSystem(existing.namespaces, opts.System); err != nil {
		return err
	}
	empty := func() error {
		if opts.Everything {
			return nil
		}
		found, err := contents(ctx, k, d, existing.namespaces)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%w: it contains %s", ErrNotEmpty, strings.Join(found, ", "))
		}
		return err
	}
	if err := empty(); err != nil {
		return err
	}
	if opts.Confirm != nil && len(opts.DryRun) == 0 && !opts.ClientDryRun {
		if err := opts.Confirm(namesOf(existing.namespaces)); err != nil {
			return err
		}
		if err := empty(); err != nil { // objects may have been created since the first check
			return err
		}
	}
	if existing.object != nil {
		return deleteObject(ctx, d, existing, &opts)
	}
	return deleteParts(ctx, k, d, existing, &opts)
}

// refuseSystem returns an error that wraps [ErrRefused] if one of the tenant's namespaces is a
// system namespace.
func refuseSystem(namespaces []corev1.Namespace, system []string) error {
	for _, name := range namesOf(namespaces) {
		if slices.Contains(system, name) {
			return fmt.Errorf("%w: namespace %s has the tenant's label, but is a system namespace and cannot be deleted: run "+
				"kubectl tenant release %s first",
				ErrRefused, name, name)
		}
	}
	return nil
}

func partsOf(ctx context.Context, k kube.Interface, d dynamic.Interface, id tenant.ID) (*parts, error) {
	namespaces, err := k.CoreV1().Namespaces().List(ctx,
		metav1.ListOptions{LabelSelector: selector(map[string]string{tenant.Label: id.String()})})
	if err != nil {
		return nil, refusal(err)
	}
	bindings, err := k.RbacV1().ClusterRoleBindings().List(ctx,
		metav1.ListOptions{LabelSelector: selector(map[string]string{tenant.OfTenantLabel: id.String()})})
	if err != nil {
		return nil, refusal(err)
	}
	found := &parts{namespaces: namespaces.Items, bindings: bindings.Items}
	if found.quotas, err = quotasOf(ctx, d, id); err != nil {
		return nil, err
	}
	object, err := d.Resource(tenantObjects).Get(ctx, id.ObjectName(), metav1.GetOptions{})
	switch {
	case err == nil:
		found.object = object
	case !apierrors.IsNotFound(err):
		return nil, refusal(err)
	case len(found.namespaces)+len(found.bindings)+len(found.quotas) == 0:
		return nil, fmt.Errorf("tenant %s: %w", id, ErrNoTenant)
	}
	return found, nil
}

// deleteObject deletes the Tenant object, so that the server deletes the tenant.
func deleteObject(ctx context.Context, d dynamic.Interface, found *parts, opts *Deletion) error {
	name := found.object.GetName()
	uid := found.object.GetUID()
	opts.Printf(
		"the server deletes the namespaces of tenant %s (namespaces: %d), its bindings and its quotas, and reserves "+
			"its name",
		name,
		len(found.namespaces),
	)
	if opts.ClientDryRun || len(opts.DryRun) > 0 {
		if err := dryDelete(ctx, d, found, opts); err != nil {
			return err
		}
		opts.Changes.PrintDeleted(tenantKind, "", name)
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"spec":     map[string]any{"deletionPolicy": v1alpha1.TenantDeletionDelete},
	})
	if err != nil {
		return err
	}
	_, err = d.Resource(tenantObjects).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return refusal(err)
	}
	err = d.Resource(tenantObjects).Delete(ctx, name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	if err != nil && !apierrors.IsNotFound(err) {
		return refusal(err)
	}
	opts.Changes.PrintDeleted(tenantKind, "", name) // before the wait, as kubectl does
	if opts.Wait == 0 {
		return nil
	}
	return awaitDeleted(ctx, d, name, uid, opts)
}

// dryDelete sends only the first of the two writes of a deletion. A dry run does not store the
// first write, so the server would reject the second write.
func dryDelete(ctx context.Context, d dynamic.Interface, found *parts, opts *Deletion) error {
	if opts.ClientDryRun {
		return nil
	}
	_, err := d.Resource(tenantObjects).Patch(ctx, found.object.GetName(), types.MergePatchType,
		[]byte(`{"spec":{"deletionPolicy":"`+string(v1alpha1.TenantDeletionDelete)+`"}}`),
		metav1.PatchOptions{DryRun: opts.DryRun})
	if err != nil {
		return refusal(err)
	}
	return nil
}

// awaitDeleted waits until a Tenant object no longer exists. The error may wrap
// [ErrDeletionPending] or [ErrRefused].
func awaitDeleted(ctx context.Context, d dynamic.Interface, name string, uid types.UID, opts *Deletion) error {
	for begun := time.Now(); ; {
		u, err := d.Resource(tenantObjects).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && u.GetUID() != uid:
			return nil
		case err != nil:
			return refusal(err)
		case time.Since(begun) >= opts.Wait:
			return fmt.Errorf("tenant %s: %w", name, ErrDeletionPending)
		}
		if opts.OnProgress != nil {
			opts.OnProgress(remainingSteps(u))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// remainingSteps returns a message about the progress of a Tenant's deletion.
func remainingSteps(u *unstructured.Unstructured) string {
	t, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		return "waiting for the server"
	}
	condition := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionDeletionHeld)
	if condition != nil && condition.Status == metav1.ConditionTrue {
		return condition.Message
	}
	if doing := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionDeleting); doing != nil {
		return doing.Message
	}
	return "waiting for the server to start the deletion"
}

// deleteParts deletes the objects of a tenant that has no Tenant object.
func deleteParts(ctx context.Context, k kube.Interface, d dynamic.Interface, found *parts, opts *Deletion) error {
	remove := func(what schema.GroupKind, name string, of func() error) error {
		if !opts.ClientDryRun {
			if err := of(); err != nil && !apierrors.IsNotFound(err) {
				return refusal(err)
			}
		}
		opts.Changes.PrintDeleted(what, "", name)
		return nil
	}
	options := func(uid types.UID) metav1.DeleteOptions {
		return metav1.DeleteOptions{DryRun: opts.DryRun, Preconditions: metav1.NewUIDPreconditions(string(uid))}
	}
	for i := range found.namespaces {
		ns := &found.namespaces[i]
		err := remove(namespaceKind, ns.Name, func() error {
			return k.CoreV1().Namespaces().Delete(ctx, ns.Name, options(ns.UID))
		})
		if err != nil {
			return err
		}
	}
	for i := range found.bindings {
		b := &found.bindings[i]
		err := remove(clusterRoleBindingKind, b.Name, func() error {
			return k.RbacV1().ClusterRoleBindings().Delete(ctx, b.Name, options(b.UID))
		})
		if err != nil {
			return err
		}
	}
	for _, name := range found.quotas {
		err := remove(quotaKind, name, func() error {
			return d.Resource(quotas).Delete(ctx, name, metav1.DeleteOptions{DryRun: opts.DryRun})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pollInterval is the time between two checks of a deletion.
const pollInterval = 500 * time.Millisecond

func namesOf(namespaces []corev1.Namespace) []string {
	var names []string
	for i := range namespaces {
		names = append(names, namespaces[i].Name)
	}
	return names
}

func quotasOf(ctx context.Context, d dynamic.Interface, id tenant.ID) ([]string, error) {
	list, err := d.Resource(quotas).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, refusal(err)
	}
	var names []string
	for i := range list.Items {
		spec, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "tenant")
		if spec == id.String() {
			names = append(names, list.Items[i].GetName())
		}
	}
	return names, nil
}

// contents returns a text for each resource with objects in the given namespaces. It ignores
// objects that every namespace has.
func contents(
	ctx context.Context, k kube.Interface, d dynamic.Interface, spaces []corev1.Namespace,
) ([]string, error) {
	resources, err := Resources(k.Discovery(), "list")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, ns := range spaces {
		for _, r := range resources {
			list, err := d.Resource(r).Namespace(ns.Name).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list the contents of namespace %s: %w", ns.Name, refusal(err))
			}
			count := 0
			for i := range list.Items {
				if !isEverywhere(r, list.Items[i].GetName(), list.Items[i].GetLabels()) {
					count++
				}
			}
			if count > 0 {
				found = append(found, fmt.Sprintf("%s in %s: %d", r.GroupResource(), ns.Name, count))
			}
		}
	}
	return found, nil
}

// isEverywhere reports whether controllers or kubectl tenant create an object in every namespace,
// or the server manages the object for a Tenant.
func isEverywhere(r schema.GroupVersionResource, name string, labels map[string]string) bool {
	if _, ok := labels[tenant.ManagedLabel]; ok { // only the server writes this label
		return true
	}
	switch r.GroupResource().String() {
	case "configmaps":
		return name == "kube-root-ca.crt"
	case "serviceaccounts":
		return name == "default"
	case "rolebindings.rbac.authorization.k8s.io":
		return labels[privileges.CreatedByLabel] == createdByValue
	case "networkpolicies.networking.k8s.io":
		return name == ownPolicy && labels[privileges.CreatedByLabel] == createdByValue
	case "events", "events.events.k8s.io":
		return true
	}
	return false
}

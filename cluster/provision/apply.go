// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// errNameTaken reports that an unmanaged object has the name of a managed object, for example
// because it was created before the Tenant.
var errNameTaken = errors.New("an object with this name exists but does not belong to the Tenant: delete it")

// tenantSelector selects the RoleBindings and Roles that Tenants and TenantMembers specify.
const tenantSelector = tenant.ManagedLabel + "=" + managed.SourceTenant

// listBindings returns the stored RoleBindings in a namespace that a Tenant and TenantMembers
// specify, keyed by name.
func (e *Engine) listBindings(ctx context.Context, namespace string) (map[string]*rbacv1.RoleBinding, error) {
	list, err := e.Client.RbacV1().RoleBindings(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: tenantSelector})
	if err != nil {
		return nil, err
	}
	stored := map[string]*rbacv1.RoleBinding{}
	for i := range list.Items {
		stored[list.Items[i].Name] = &list.Items[i]
	}
	return stored, nil
}

// apply creates, updates and deletes the managed RoleBindings in a namespace. It removes rights
// before it adds rights. taken is the error for RoleBindings that cannot be created because
// unmanaged RoleBindings have the same names.
func (e *Engine) apply(
	ctx context.Context, ns *corev1.Namespace, stored map[string]*rbacv1.RoleBinding, desired *desiredState,
) (taken, err error) {
	done, err := e.revoke(ctx, ns, stored, desired)
	bindings := desired.bindingsIn(ns)
	for i := range bindings {
		if b := &bindings[i]; !done[b.Name] {
			failed := e.applyBinding(ctx, stored[b.Name], inNamespace(b, ns.Name))
			if errors.Is(failed, errNameTaken) {
				taken = errors.Join(taken, failed)
			} else {
				err = errors.Join(err, failed)
			}
		}
	}
	return taken, err
}

// revoke deletes the managed bindings in a namespace that should not exist, and updates the
// bindings that give more rights than they should. It returns the names of the updated bindings.
func (e *Engine) revoke(
	ctx context.Context, ns *corev1.Namespace, stored map[string]*rbacv1.RoleBinding, desired *desiredState,
) (done map[string]bool, err error) {
	done = map[string]bool{}
	wanted := map[string]bool{}
	bindings := desired.bindingsIn(ns)
	for i := range bindings {
		want := inNamespace(&bindings[i], ns.Name)
		wanted[want.Name] = true
		if b := stored[want.Name]; b != nil && losesSubjects(b, want) {
			done[want.Name] = true
			err = errors.Join(err, e.applyBinding(ctx, b, want))
		}
	}
	for name, b := range stored {
		if !wanted[name] {
			err = errors.Join(err, e.removeBinding(ctx, b))
		}
	}
	return done, err
}

// losesSubjects reports whether an update from stored to want removes a subject or changes the
// role.
func losesSubjects(stored, want *rbacv1.RoleBinding) bool {
	return stored.RoleRef != want.RoleRef || slices.ContainsFunc(stored.Subjects, func(s rbacv1.Subject) bool {
		return !slices.Contains(want.Subjects, s)
	})
}

// tenantOf returns the tenant in the label of an object. Writes of the object wait in this
// tenant's queue, see [writeQueue].
func tenantOf(object metav1.Object) tenant.ID {
	id, _ := tenant.Parse(object.GetLabels()[tenant.Label]) // the zero ID has a queue too
	return id
}

// removeBinding deletes a binding. Because of the UID precondition, it does not delete a binding
// with the same name that was created later.
func (e *Engine) removeBinding(ctx context.Context, b *rbacv1.RoleBinding) error {
	if err := e.writes.wait(ctx, tenantOf(b), revokes); err != nil {
		return err
	}
	err := e.Client.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// applyBinding creates or updates a binding. stored is nil if no managed binding with this name was
// found.
func (e *Engine) applyBinding(ctx context.Context, stored, want *rbacv1.RoleBinding) error {
	if stored != nil && isSame(stored, want) {
		return nil
	}
	if stored != nil && stored.RoleRef != want.RoleRef { // RoleRef is immutable
		if err := e.removeBinding(ctx, stored); err != nil {
			return err
		}
		stored = nil
	}
	c := adds
	if stored != nil && losesSubjects(stored, want) {
		c = revokes
	}
	if err := e.writes.wait(ctx, tenantOf(want), c); err != nil {
		return err
	}
	bindings := e.Client.RbacV1().RoleBindings(want.Namespace)
	if stored != nil {
		want.ResourceVersion = stored.ResourceVersion
		_, err := bindings.Update(ctx, want, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
		return err
	}
	_, err := bindings.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, getErr := bindings.Get(ctx, want.Name, metav1.GetOptions{})
	if getErr != nil || existing.Labels[tenant.ManagedLabel] != "" {
		return err // the managed binding was created after the list was read, or was deleted
	}
	return fmt.Errorf("RoleBinding %s: %w", want.Name, errNameTaken)
}

// markPrepared records on a Namespace that it is prepared, and removes the annotation because of
// which Pods wait. The UID in the patch ensures that the Namespace was not deleted and created
// again.
func (e *Engine) markPrepared(ctx context.Context, ns *corev1.Namespace, desired *desiredState) error {
	hash := desired.hash(ns)
	_, held := ns.Annotations[tenant.HeldAnnotation]
	metadata := map[string]any{"uid": ns.UID}
	annotations := map[string]any{}
	if ns.Annotations[tenant.PreparedAnnotation] != hash {
		annotations[tenant.PreparedAnnotation] = nil
		if hash != "" {
			annotations[tenant.PreparedAnnotation] = hash
		}
	}
	if held {
		annotations[tenant.HeldAnnotation] = nil
	}
	if desired.isUnrecorded(ns) && len(desired.labels) == 0 {
		// Another engine may have recorded labels that this cache does not contain yet. Because
		// of the resource version, the patch then fails.
		metadata["resourceVersion"] = ns.ResourceVersion
		annotations[tenant.GivenLabelsAnnotation] = namespace.AddedLabels{}.String()
	}
	if len(annotations) == 0 {
		return nil
	}
	metadata["annotations"] = annotations
	return e.patchNamespace(ctx, ns, adds, metadata)
}

// patchNamespace waits in the [writeQueue], and then patches the metadata of a Namespace. The
// write has the class of.
func (e *Engine) patchNamespace(ctx context.Context, ns *corev1.Namespace, of class, metadata map[string]any) error {
	if err := e.writes.wait(ctx, tenantOf(ns), of); err != nil {
		return err
	}
	return e.sendPatch(ctx, ns, metadata)
}

func (e *Engine) sendPatch(ctx context.Context, ns *corev1.Namespace, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = e.Client.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// applyObjects creates, updates and deletes the objects of templates and Publications in a
// namespace.
func (e *Engine) applyObjects(
	ctx context.Context, ns *corev1.Namespace, stored map[object]*unstructured.Unstructured, desired *objects,
) error {
	var failed error
	for key, u := range stored {
		if desired.removes(key, u) {
			failed = errors.Join(failed, e.removeObject(ctx, key, u))
		}
	}
	byName := func(a, b object) int {
		return strings.Compare(a.resource.Resource+a.name, b.resource.Resource+b.name)
	}
	for _, key := range slices.SortedFunc(maps.Keys(desired.wanted), byName) {
		want := desired.wanted[key]
		err := e.applyObject(ctx, key, stored[key], want)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s %s: %w", want.GetKind(), key.name, err)
		// After a permanent error, the next attempts also fail until the cause is removed.
		permanent := errors.Is(err, errNameTaken) || apierrors.IsInvalid(err) ||
			apierrors.IsForbidden(err) && e.hasTried(ns.Name)
		if want.publication != nil {
			desired.refused[want.publication.publication.Name] = err
		}
		switch {
		case !permanent:
			failed = errors.Join(failed, err)
		case want.publication == nil, want.publication.publication.Hold && isHeld(ns):
			desired.err = errors.Join(desired.err, err)
		}
	}
	return failed
}

// isHeld reports whether Pods in a namespace wait until it is prepared.
func isHeld(ns *corev1.Namespace) bool {
	_, held := ns.Annotations[tenant.HeldAnnotation]
	return held
}

// maxForbiddenTries is the number of retries of a namespace after which a forbidden write is
// treated as a permanent error. After that, only the drift check retries the write.
const maxForbiddenTries = 8

// hasTried reports whether a namespace has been retried at least maxForbiddenTries times.
func (e *Engine) hasTried(namespace string) bool {
	return e.unprepared.NumRequeues(namespace)+e.updates.NumRequeues(namespace) >= maxForbiddenTries
}

// removeObject deletes an object. Because of the UID precondition, it does not delete an object
// with the same name that was created later.
func (e *Engine) removeObject(ctx context.Context, key object, u *unstructured.Unstructured) error {
	if err := e.writes.wait(ctx, tenantOf(u), adds); err != nil {
		return err
	}
	err := e.Dynamic.Resource(key.resource).Namespace(u.GetNamespace()).Delete(ctx, key.name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(u.GetUID()))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// applyObject creates or updates an object. stored is nil if no managed object with this name was
// found.
func (e *Engine) applyObject(ctx context.Context, key object, stored *unstructured.Unstructured, want wanted) error {
	if stored != nil {
		return e.updateObject(ctx, key, stored, want.Unstructured)
	}
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	all := e.Dynamic.Resource(key.resource).Namespace(want.GetNamespace())
	_, err := all.Create(ctx, want.Unstructured, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, getErr := all.Get(ctx, key.name, metav1.GetOptions{})
	if getErr != nil {
		return err // for example, the existing object was deleted after the create request
	}
	if isProvisioned(existing) {
		return e.updateObject(ctx, key, existing, want.Unstructured)
	}
	if existing.GetLabels()[tenant.ManagedLabel] != "" {
		return errNameTaken // a Tenant or TenantMembers specify the existing object
	}
	if want.publication == nil || !want.publication.publication.Replace {
		return errNameTaken
	}
	if existing, err = e.adopt(ctx, existing, want); err != nil {
		return err
	}
	return e.updateObject(ctx, key, existing, want.Unstructured)
}

// isProvisioned reports whether a template or a Publication defines an object, according to the
// object's label.
func isProvisioned(u *unstructured.Unstructured) bool {
	source := u.GetLabels()[tenant.ManagedLabel]
	return source == managed.SourceTemplate || source == managed.SourcePublication
}

// adopt sets the labels of a copy of a Publication on an existing object, so that the engine may
// replace it. The admission policy of the webhook service does not allow the engine to delete an
// object without these labels.
func (e *Engine) adopt(
	ctx context.Context, stored *unstructured.Unstructured, want wanted,
) (*unstructured.Unstructured, error) {
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return nil, err
	}
	next := stored.DeepCopy()
	all := map[string]string{}
	maps.Copy(all, stored.GetLabels())
	for _, key := range []string{tenant.Label, tenant.ManagedLabel, tenant.PublicationLabel} {
		all[key] = want.GetLabels()[key]
	}
	next.SetLabels(all)
	annotations := map[string]string{}
	maps.Copy(annotations, stored.GetAnnotations())
	annotations[tenant.PublishedAnnotation] = "replacing" // not a hash, because the object does not have the content yet
	next.SetAnnotations(annotations)
	return e.Dynamic.Resource(want.publication.content.Resource).Namespace(want.GetNamespace()).Update(ctx, next,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
}

// updateObject updates a managed object if it differs from want. If the server rejects the
// update, for example because a field is immutable, updateObject deletes the object and creates
// it again. It does not delete the object if the server would reject the new object.
func (e *Engine) updateObject(ctx context.Context, key object, stored, want *unstructured.Unstructured) error {
	if isSameObject(stored, want) {
		return nil
	}
	all := e.Dynamic.Resource(key.resource).Namespace(want.GetNamespace())
	next := want.DeepCopy()
	next.SetResourceVersion(stored.GetResourceVersion())
	next.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) // resets the field managers
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	_, err := all.Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsInvalid(err) {
		return err
	}
	_, dry := all.Create(ctx, want, metav1.CreateOptions{
		FieldManager: v1alpha1.FieldManager,
		DryRun:       []string{metav1.DryRunAll},
	})
	if !apierrors.IsAlreadyExists(dry) {
		return err // the object itself is invalid
	}
	if err := e.removeObject(ctx, key, stored); err != nil {
		return err
	}
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	_, err = all.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return errNameTaken
	}
	return err
}

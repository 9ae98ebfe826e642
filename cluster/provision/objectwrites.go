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
	ctx context.Context, ns *corev1.Namespace, is map[object]*unstructured.Unstructured, gives *objects,
) error {
	var failed error
	for key, u := range is {
		if gives.removes(key, u) {
			failed = errors.Join(failed, e.removeObject(ctx, key, u))
		}
	}
	byName := func(a, b object) int {
		return strings.Compare(a.resource.Resource+a.name, b.resource.Resource+b.name)
	}
	for _, key := range slices.SortedFunc(maps.Keys(gives.wanted), byName) {
		want := gives.wanted[key]
		err := e.putObject(ctx, key, is[key], want)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s %s: %w", want.GetKind(), key.name, err)
		// Another attempt has the same result until the cause is removed.
		stays := errors.Is(err, errTaken) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && e.hasTried(ns.Name)
		if want.by != nil {
			gives.refused[want.by.of.Name] = err
		}
		switch {
		case !stays:
			failed = errors.Join(failed, err)
		case want.by == nil, want.by.of.Hold && isHeld(ns):
			gives.wrong = errors.Join(gives.wrong, err)
		}
	}
	return failed
}

// isHeld reports whether Pods wait in a namespace.
func isHeld(ns *corev1.Namespace) bool {
	_, held := ns.Annotations[tenant.HeldAnnotation]
	return held
}

// triesOfForbidden is the number of attempts to write an object that the server forbids. After
// that, only the drift pass tries again.
const triesOfForbidden = 8

// hasTried reports whether a namespace was retried triesOfForbidden times.
func (e *Engine) hasTried(namespace string) bool {
	return e.first.NumRequeues(namespace)+e.later.NumRequeues(namespace) >= triesOfForbidden
}

// removeObject deletes an object. Its UID precondition protects a later object of the same name.
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

// putObject creates or updates an object. is is nil if no managed object of this name was found.
func (e *Engine) putObject(ctx context.Context, key object, is *unstructured.Unstructured, want wanted) error {
	if is != nil {
		return e.updateObject(ctx, key, is, want.Unstructured)
	}
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	all := e.Dynamic.Resource(key.resource).Namespace(want.GetNamespace())
	_, err := all.Create(ctx, want.Unstructured, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, getErr := all.Get(ctx, key.name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return err // it was deleted meanwhile
	case isGivenKind(there):
	case there.GetLabels()[tenant.ManagedLabel] != "":
		return errTaken // an object of a Tenant or its TenantMembers
	case want.by != nil && want.by.of.Replace:
		if there, err = e.adopt(ctx, there, want); err != nil {
			return err
		}
	default:
		return errTaken
	}
	return e.updateObject(ctx, key, there, want.Unstructured)
}

// isGivenKind reports whether an object is of a template or a Publication.
func isGivenKind(u *unstructured.Unstructured) bool {
	source := u.GetLabels()[tenant.ManagedLabel]
	return source == managed.SourceTemplate || source == managed.SourcePublication
}

// adopt makes an existing object a copy, so that the engine may then replace it. The policy of the
// webhook service does not let the engine delete an object without these labels.
func (e *Engine) adopt(
	ctx context.Context, is *unstructured.Unstructured, want wanted,
) (*unstructured.Unstructured, error) {
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return nil, err
	}
	next := is.DeepCopy()
	all := map[string]string{}
	maps.Copy(all, is.GetLabels())
	for _, key := range []string{tenant.Label, tenant.ManagedLabel, tenant.PublicationLabel} {
		all[key] = want.GetLabels()[key]
	}
	next.SetLabels(all)
	said := map[string]string{}
	maps.Copy(said, is.GetAnnotations())
	said[tenant.PublishedAnnotation] = "replacing" // no hash, because its content is not that of the copy
	next.SetAnnotations(said)
	return e.Dynamic.Resource(want.by.content.Resource).Namespace(want.GetNamespace()).Update(ctx, next,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
}

// updateObject updates a managed object if it differs. An object with an immutable difference is
// deleted and created, if the server would accept the new object.
func (e *Engine) updateObject(ctx context.Context, key object, is, want *unstructured.Unstructured) error {
	if isGiven(is, want) {
		return nil
	}
	all := e.Dynamic.Resource(key.resource).Namespace(want.GetNamespace())
	next := want.DeepCopy()
	next.SetResourceVersion(is.GetResourceVersion())
	next.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) // resets the managers
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
	if err := e.removeObject(ctx, key, is); err != nil {
		return err
	}
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	_, err = all.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return errTaken
	}
	return err
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	errSuspension = errors.New("spec.suspension: an update that omits the field does not resume the tenant: " +
		"use kubectl tenant resume, or set the field to an empty string")
	errCancelAnnotation = errors.New("the annotation " + tenant.TakeBackAnnotation +
		" would cancel the deletion: remove it first")
)

// suspensionOf returns spec.suspension of a Tenant, and reports whether the object has the field.
func suspensionOf(obj runtime.Object) (value any, has bool) {
	u, ok := obj.(runtime.Unstructured)
	if !ok {
		return nil, false
	}
	spec, _ := u.UnstructuredContent()["spec"].(map[string]any)
	value, has = spec["suspension"]
	return value, has
}

// omitsSuspension reports whether an update omits the suspension of a suspended tenant. The
// manifest of a Tenant in Git does not have the field, so a tool that replaces the object would
// resume the tenant.
func omitsSuspension(old, obj runtime.Object) bool {
	before, _ := suspensionOf(old)
	_, ok := suspensionOf(obj)
	return before != nil && before != "" && !ok
}

// restoreSuspension restores the suspension if an update omits it. An object without a spec stays
// unchanged, and [plugin.checkUpdate] denies it.
func restoreSuspension(ctx context.Context, old, obj runtime.Object) {
	if !omitsSuspension(old, obj) {
		return
	}
	u, ok := obj.(runtime.Unstructured)
	if !ok {
		return
	}
	content := u.UnstructuredContent()
	spec, ok := content["spec"].(map[string]any)
	if !ok {
		return
	}
	spec["suspension"], _ = suspensionOf(old)
	u.SetUnstructuredContent(content)
	warning.AddWarning(ctx, "", "spec.suspension was omitted and remains: use kubectl tenant resume to resume the tenant")
}

func cancelsDeletion(m metav1.Object) bool {
	_, ok := m.GetAnnotations()[tenant.TakeBackAnnotation]
	return ok
}

// removeCancelAnnotation removes the annotation that cancels a deletion from a Tenant that is not
// being deleted. Otherwise, a later deletion would be canceled immediately.
func removeCancelAnnotation(ctx context.Context, obj metav1.Object) {
	if obj.GetDeletionTimestamp() != nil || !cancelsDeletion(obj) {
		return
	}
	plugins.SetAnnotation(obj, tenant.TakeBackAnnotation, nil)
	warning.AddWarning(ctx, "", "the annotation "+tenant.TakeBackAnnotation+
		" was removed: set it while the Tenant is being deleted")
}

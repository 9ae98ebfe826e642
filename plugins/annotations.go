// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
)

// StoredMetadata returns the metadata of the old and the new object of a write. oldObj is nil if
// the write is not an update. Both are nil if the server does not store the object as sent.
func StoredMetadata(a admission.Attributes) (oldObj, newObj metav1.Object, err error) {
	if IsVirtual(a) || a.GetOperation() == admission.Create && a.GetSubresource() != "" {
		return nil, nil, nil
	}
	if newObj, err = meta.Accessor(a.GetObject()); err != nil {
		return nil, nil, ErrObject
	}
	if a.GetOperation() == admission.Update {
		if oldObj, err = meta.Accessor(a.GetOldObject()); err != nil {
			return nil, nil, ErrObject
		}
	}
	return oldObj, newObj, nil
}

// SetAnnotation sets an annotation, or removes it if value is nil. It replaces the map of
// annotations with a copy, because the map may be shared.
func SetAnnotation(object metav1.Object, key string, value *string) {
	old, ok := object.GetAnnotations()[key]
	if value == nil && !ok || value != nil && ok && old == *value {
		return
	}
	annotations := make(map[string]string, len(object.GetAnnotations())+1)
	for k, v := range object.GetAnnotations() {
		annotations[k] = v
	}
	delete(annotations, key)
	if value != nil {
		annotations[key] = *value
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
}

// RestoreAnnotations reverts the changes that an update makes to annotations. It warns the caller
// of each reverted change. For removed annotations, [WarnRestored] specifies which callers are
// warned.
func RestoreAnnotations(ctx context.Context, a admission.Attributes, oldObj, newObj metav1.Object, keys ...string) {
	for _, key := range keys {
		old, oldOK := oldObj.GetAnnotations()[key]
		now, ok := newObj.GetAnnotations()[key]
		switch {
		case oldOK && !ok:
			SetAnnotation(newObj, key, &old)
			WarnRestored(ctx, a, "", "annotation", key)
		case oldOK && now != old:
			SetAnnotation(newObj, key, &old)
			warnNotChanged(ctx, key)
		case !oldOK && ok:
			SetAnnotation(newObj, key, nil)
			warnNotChanged(ctx, key)
		}
	}
}

func warnNotChanged(ctx context.Context, key string) {
	warning.AddWarning(ctx, "", "the annotation "+key+" is managed by the server and was not changed")
}

// CheckUnchanged returns an error that names every annotation that an update adds, changes or
// removes.
func CheckUnchanged(oldObj, newObj metav1.Object, keys ...string) error {
	var errs Errors
	for _, key := range keys {
		old, oldOK := oldObj.GetAnnotations()[key]
		if now, ok := newObj.GetAnnotations()[key]; oldOK != ok || now != old {
			errs.Add(fmt.Errorf("the annotation %s is immutable", key))
		}
	}
	return errs.Err()
}

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

// Stored returns the metadata of the object that a write stores. For an update, was is the metadata
// of the old object. is is nil if the server does not store the object as sent.
func Stored(a admission.Attributes) (was, is metav1.Object, err error) {
	if IsVirtual(a) || a.GetOperation() == admission.Create && a.GetSubresource() != "" {
		return nil, nil, nil
	}
	if is, err = meta.Accessor(a.GetObject()); err != nil {
		return nil, nil, ErrObject
	}
	if a.GetOperation() == admission.Update {
		if was, err = meta.Accessor(a.GetOldObject()); err != nil {
			return nil, nil, ErrObject
		}
	}
	return was, is, nil
}

// SetAnnotation sets an annotation, or removes it if value is nil. It replaces the map of
// annotations with a copy, because the map may be shared.
func SetAnnotation(object metav1.Object, key string, value *string) {
	old, had := object.GetAnnotations()[key]
	if value == nil && !had || value != nil && had && old == *value {
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

// Keep restores annotations that an update changes, adds or removes. It warns the caller of each
// one. For removed annotations, see [WarnRestored].
func Keep(ctx context.Context, a admission.Attributes, was, is metav1.Object, keys ...string) {
	for _, key := range keys {
		old, had := was.GetAnnotations()[key]
		now, has := is.GetAnnotations()[key]
		switch {
		case had && !has:
			SetAnnotation(is, key, &old)
			WarnRestored(ctx, a, "", "annotation", key)
		case had && now != old:
			SetAnnotation(is, key, &old)
			warnKept(ctx, key)
		case !had && has:
			SetAnnotation(is, key, nil)
			warnKept(ctx, key)
		}
	}
}

func warnKept(ctx context.Context, key string) {
	warning.AddWarning(ctx, "", "the annotation "+key+" is managed by the server and was not changed")
}

// Kept returns an error that names every annotation that an update adds, changes or removes.
func Kept(was, is metav1.Object, keys ...string) error {
	var refused Refusals
	for _, key := range keys {
		old, had := was.GetAnnotations()[key]
		if now, has := is.GetAnnotations()[key]; had != has || now != old {
			refused.Add(fmt.Errorf("the annotation %s is immutable", key))
		}
	}
	return refused.Err()
}

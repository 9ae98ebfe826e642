// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"errors"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Strict returns u as the type T. It returns an [Invalid] if u does not decode, or if it has a
// field outside its status that T does not have.
//
// It is for kinds that grant access, such as AccessGrant. A later release may add a field that
// restricts what an object allows. A release that ignored this field would allow more.
func Strict[T any, P Pointer[T]](u *unstructured.Unstructured) metav1.Object {
	out, invalid := decode[T, P](u)
	if invalid != nil {
		return invalid
	}
	withoutStatus := maps.Clone(u.Object)
	delete(withoutStatus, "status")
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(withoutStatus, P(new(T)), true)
	if err != nil {
		return newInvalid(u, err)
	}
	out.SetManagedFields(nil)
	return out
}

// NewStrictInformer returns an informer like [NewInformer] that decodes objects with [Strict].
func NewStrictInformer[T any, P Pointer[T]](
	client dynamic.Interface, resource schema.GroupVersionResource,
) (cache.SharedIndexInformer, error) {
	return newInformer(client, resource, Strict[T, P])
}

// withoutValues removes the values of the object from an error of the decoder. An error of
// package time quotes the text that it cannot parse. The function drops the text from the first
// quotation mark on.
func withoutValues(err error) error {
	text, _, found := strings.Cut(err.Error(), `"`)
	if !found {
		return err
	}
	return errors.New(strings.TrimSpace(text) + ": the value is invalid")
}

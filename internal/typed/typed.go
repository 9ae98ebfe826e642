// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package typed reads and writes the objects of one kind as a Go type through a dynamic client.
//
// The generated clients in tenant/client cannot read a list if one object in it does not decode.
// Tenants can write objects of some kinds, so one invalid object could stop every controller. In
// this package, an object that does not decode becomes an [Invalid], and all other objects are
// read.
package typed

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/listinformer"
)

// Pointer is the pointer to the Go type of a kind.
type Pointer[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// Invalid represents an object that does not decode. It has the object's metadata. If the metadata
// does not decode either, it has only the name, namespace, UID and resource version. [Decode],
// [FromInformer] and the methods of [Client] return it as the error for such an object.
type Invalid struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Tenant is spec.tenant or spec.id of the object. It is empty if neither is a string.
	Tenant string
	// Err is the error of the decoder. It never contains values of the object.
	Err error
}

// DeepCopyObject implements [runtime.Object].
func (i *Invalid) DeepCopyObject() runtime.Object {
	out := *i
	i.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// Error implements error.
func (i *Invalid) Error() string {
	return fmt.Sprintf("%s %s does not decode: %v", i.Kind, i.Name, i.Err)
}

// Unwrap returns i.Err.
func (i *Invalid) Unwrap() error { return i.Err }

// Decode returns u as the type T. Fields that T does not have are dropped. The error is an
// [Invalid].
func Decode[T any, P Pointer[T]](u *unstructured.Unstructured) (P, error) {
	out, invalid := decode[T, P](u)
	if invalid != nil {
		return nil, invalid
	}
	return out, nil
}

func decode[T any, P Pointer[T]](u *unstructured.Unstructured) (P, *Invalid) {
	out := P(new(T))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, newInvalid(u, withoutValues(err))
	}
	return out, nil
}

// NewInformer returns an informer of a resource in all namespaces. Its objects have the type T or
// are [Invalid]. It calls trim before it stores an object of type T. If trim is nil, the informer
// only removes managedFields. For the first list of the informer, see [listinformer.New].
func NewInformer[T any, P Pointer[T]](
	client dynamic.Interface, resource schema.GroupVersionResource, trim func(P),
) (cache.SharedIndexInformer, error) {
	return newInformer(client, resource, func(u *unstructured.Unstructured) metav1.Object {
		out, invalid := decode[T, P](u)
		if invalid != nil {
			return invalid
		}
		out.SetManagedFields(nil)
		if trim != nil {
			trim(out)
		}
		return out
	})
}

func newInformer(
	client dynamic.Interface, resource schema.GroupVersionResource, store func(*unstructured.Unstructured) metav1.Object,
) (cache.SharedIndexInformer, error) {
	informer := listinformer.New(client, resource)
	err := informer.SetTransform(func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return store(u), nil
		}
		return obj, nil // already transformed, or a tombstone
	})
	return informer, err
}

func newInvalid(u *unstructured.Unstructured, err error) *Invalid {
	out := &Invalid{Err: err}
	out.SetGroupVersionKind(u.GroupVersionKind())
	for _, field := range []string{"id", "tenant"} {
		if id, ok, _ := unstructured.NestedString(u.Object, "spec", field); ok {
			out.Tenant = id
		}
	}
	metadata, _ := u.Object["metadata"].(map[string]any)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(metadata, &out.ObjectMeta) != nil {
		out.ObjectMeta = metav1.ObjectMeta{
			Name:            u.GetName(),
			Namespace:       u.GetNamespace(),
			UID:             u.GetUID(),
			ResourceVersion: u.GetResourceVersion(),
		}
	}
	out.SetManagedFields(nil)
	return out
}

// FromInformer converts obj, which is from an informer, to the type P. For a deleted object, it
// returns the last known state. If the informer has an [Invalid] instead, FromInformer returns it
// as the error.
func FromInformer[T any, P Pointer[T]](obj any) (P, error) {
	if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = deleted.Obj
	}
	switch obj := obj.(type) {
	case P:
		return obj, nil
	case *Invalid:
		return nil, obj
	}
	return nil, fmt.Errorf("an informer has an object of the type %T", obj)
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"context"
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Client reads and writes objects of one kind. It writes with the field manager
// [v1alpha1.FieldManager].
//
// It has no Update method. An update by a release that does not know a field of the object's spec
// would remove the field.
type Client[T any, P Pointer[T]] struct {
	resource dynamic.NamespaceableResourceInterface
}

// NewClient returns a client for a resource.
func NewClient[T any, P Pointer[T]](client dynamic.Interface, resource schema.GroupVersionResource) Client[T, P] {
	return Client[T, P]{client.Resource(resource)}
}

func (c Client[T, P]) forNamespace(namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.resource
	}
	return c.resource.Namespace(namespace)
}

// Get returns an object.
func (c Client[T, P]) Get(ctx context.Context, name cache.ObjectName) (P, error) {
	u, err := c.forNamespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return Decode[T, P](u)
}

// ForEach lists the objects that options select in all namespaces, page by page. It calls f for
// each object that decodes, and invalid for each other object.
func (c Client[T, P]) ForEach(
	ctx context.Context,
	options metav1.ListOptions,
	f func(P),
	invalid func(*Invalid),
) error {
	for {
		list, err := c.resource.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			object, decodeErr := decode[T, P](&list.Items[i])
			if decodeErr != nil {
				invalid(decodeErr)
				continue
			}
			f(object)
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// Create creates an object.
func (c Client[T, P]) Create(ctx context.Context, object P) (P, error) {
	u, err := encode(object)
	if err != nil {
		return nil, err
	}
	u, err = c.forNamespace(object.GetNamespace()).
		Create(ctx, u, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return nil, err
	}
	return Decode[T, P](u)
}

// UpdateStatus replaces the status of an object. It fails with a conflict if the object has changed
// since it was read. It drops status fields that only a later release has. The controller of that
// release computes them again.
func (c Client[T, P]) UpdateStatus(ctx context.Context, object P) (P, error) {
	u, err := encode(object)
	if err != nil {
		return nil, err
	}
	u, err = c.forNamespace(object.GetNamespace()).UpdateStatus(ctx, u,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return nil, err
	}
	return Decode[T, P](u)
}

// Patch patches an object, or the subresource at the given path.
func (c Client[T, P]) Patch(
	ctx context.Context, name cache.ObjectName, kind types.PatchType, patch []byte, subresources ...string,
) (P, error) {
	u, err := c.forNamespace(name.Namespace).Patch(ctx, name.Name, kind, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager}, subresources...)
	if err != nil {
		return nil, err
	}
	return Decode[T, P](u)
}

// PatchRead applies a merge patch to an object, or to the subresource at the given path. read is
// the object as the caller read it. PatchRead fails with a conflict if the object has changed since
// then.
func (c Client[T, P]) PatchRead(
	ctx context.Context, read metav1.Object, patch map[string]any, subresources ...string,
) (P, error) {
	metadata := map[string]any{"uid": read.GetUID(), "resourceVersion": read.GetResourceVersion()}
	if more, ok := patch["metadata"].(map[string]any); ok {
		maps.Copy(metadata, more)
	}
	patch = maps.Clone(patch)
	patch["metadata"] = metadata
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return c.Patch(ctx, cache.MetaObjectToName(read), types.MergePatchType, text, subresources...)
}

// Delete deletes the object that the caller read. It does not delete a newer object with the same
// name.
func (c Client[T, P]) Delete(ctx context.Context, read metav1.Object) error {
	return c.forNamespace(read.GetNamespace()).Delete(ctx, read.GetName(),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(read.GetUID()))})
}

func encode(object runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: content}, err
}

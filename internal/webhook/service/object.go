// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/internal/turns"
)

// treeMemoryFactor is the memory that an object uses when it is decoded as a tree of small maps,
// as a multiple of the size of its JSON text.
const treeMemoryFactor = 48

// objects decodes the objects of reviews for plugins. An object of a built-in kind has its Go type.
// Any other object is a [customObject], or a tree of maps if plugins read its content. The memory
// for these trees is limited.
type objects struct {
	readsContent func(schema.GroupKind) bool
	share        int64 // memory for the trees of all reviews, in bytes
	maxMemory    int64 // maximum memory for the trees of one review, in bytes; may exceed share
	trees        *semaphore.Weighted
}

func newObjects(readsContent func(schema.GroupKind) bool, share, maxMemory int64) *objects {
	return &objects{readsContent, share, maxMemory, semaphore.NewWeighted(share)}
}

// read decodes the objects of a review. The result is nil for each missing object. The caller must
// call done when it no longer needs the objects.
func (o *objects) read(
	ctx context.Context, kind schema.GroupVersionKind, raw ...[]byte,
) (out []runtime.Object, done func(), err error) {
	done = func() {}
	weight := int64(0)
	if o.readsContent(kind.GroupKind()) && !scheme.Scheme.Recognizes(kind) {
		for i, text := range raw {
			weight += int64(len(text)) * treeMemoryFactor
			if i == 0 { // plugins change a copy of the new object
				weight += int64(len(text)) * treeMemoryFactor
			}
		}
		if weight > o.maxMemory {
			return nil, done, errTooLarge
		}
		weight = min(weight, o.share)
		if err := o.trees.Acquire(ctx, weight); err != nil {
			return nil, done, turns.ErrBusy
		}
		done = func() { o.trees.Release(weight) }
	}
	read := func(raw []byte) (runtime.Object, error) { return readTyped(kind, raw) }
	if weight > 0 {
		read = readTree
	}
	for _, text := range raw {
		object, err := readObject(text, read)
		if err != nil {
			done()
			return nil, func() {}, err
		}
		out = append(out, object)
	}
	return out, done, nil
}

// readObject decodes one object. It returns nil if the text is empty or null.
func readObject(raw []byte, read func([]byte) (runtime.Object, error)) (runtime.Object, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	if raw[0] != '{' {
		return nil, errReview
	}
	return read(raw)
}

// readTree decodes an object as a tree of maps.
func readTree(raw []byte) (runtime.Object, error) {
	out := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &out.Object); err != nil || out.Object == nil {
		return nil, errReview
	}
	return out, nil
}

// readTyped decodes an object as its Go type, or as a [customObject] if the kind has no Go type.
func readTyped(kind schema.GroupVersionKind, raw []byte) (runtime.Object, error) {
	out, err := scheme.Scheme.New(kind)
	if err != nil {
		out = &customObject{}
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, errors.Join(errReview, errObject)
	}
	return out, nil
}

// errObject is the error for an object that cannot be decoded as the kind that the review names.
var errObject = errors.New("cannot decode the object in the review")

// customObject is an object of a kind without a Go type. Its metadata is decoded, but its other
// fields are decoded only if a plugin reads them. For most objects, no tree of maps is built.
type customObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Rest contains the text of all other fields. Plugins compare this text, so objects with
	// different fields are never equal.
	Rest jsontext.Value `json:",embed"`
	// Content is the decoded Rest. It is nil until it is first needed.
	Content map[string]any `json:"-"`
}

var _ runtime.Unstructured = &customObject{}

// GetObjectKind implements [runtime.Object].
func (o *customObject) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

// DeepCopyObject implements [runtime.Object].
func (o *customObject) DeepCopyObject() runtime.Object {
	return &customObject{o.TypeMeta, *o.DeepCopy(), o.Rest, runtime.DeepCopyJSON(o.Content)}
}

// UnstructuredContent implements [runtime.Unstructured]. It panics if Rest cannot be decoded, so
// that no plugin treats Rest as empty.
func (o *customObject) UnstructuredContent() map[string]any {
	if o.Content == nil {
		o.Content = map[string]any{}
		if len(o.Rest) > 0 {
			if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Rest, &o.Content); err != nil {
				panic(errObject)
			}
		}
	}
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.ObjectMeta)
	if err != nil {
		panic(errObject)
	}
	o.Content["apiVersion"], o.Content["kind"], o.Content["metadata"] = o.APIVersion, o.Kind, metadata
	return o.Content
}

// SetUnstructuredContent implements [runtime.Unstructured]. No code calls it.
func (o *customObject) SetUnstructuredContent(map[string]any) { panic(errObject) }

// NewEmptyInstance implements [runtime.Unstructured].
func (o *customObject) NewEmptyInstance() runtime.Unstructured { return &unstructured.Unstructured{} }

// IsList implements [runtime.Unstructured].
func (o *customObject) IsList() bool { return false }

// EachListItem implements [runtime.Unstructured].
func (o *customObject) EachListItem(func(runtime.Object) error) error { return errObject }

// EachListItemWithAlloc implements [runtime.Unstructured].
func (o *customObject) EachListItemWithAlloc(func(runtime.Object) error) error { return errObject }

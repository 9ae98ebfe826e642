// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
)

// requestRecordKey is the context key of a request's [requestRecord].
type requestRecordKey struct{}

// requestRecord records the object of a request before other admission plugins change it.
type requestRecord struct {
	mu     sync.Mutex
	write  write
	object runtime.Object
	// generatedNames is the number of creations with generated names in the request.
	generatedNames int
}

// write identifies a write of a request.
type write struct {
	operation              admission.Operation
	kind                   schema.GroupVersionKind
	resource               schema.GroupVersionResource
	subresource, namespace string
	// name is empty if the server generates the name from the prefix generate.
	name, generate string
	// uid and version are those of the old object of an update.
	uid     types.UID
	version string
}

// writeOf returns the identity of a write. It returns false if the object or the old object of an
// update is missing, or if the object has neither a name nor a generateName.
func writeOf(a admission.Attributes) (write, bool) {
	newObj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return write{}, false
	}
	w := write{
		operation:   a.GetOperation(),
		kind:        a.GetKind(),
		resource:    a.GetResource(),
		subresource: a.GetSubresource(),
		namespace:   a.GetNamespace(),
		name:        a.GetName(),
		generate:    newObj.GetGenerateName(),
	}
	if w.name != "" {
		w.generate = ""
	}
	if w.operation == admission.Update {
		oldObj, err := meta.Accessor(a.GetOldObject())
		if err != nil {
			return write{}, false
		}
		w.uid, w.version = oldObj.GetUID(), oldObj.GetResourceVersion()
	}
	return w, w.name != "" || w.generate != ""
}

// WithRequested returns a context in which [RecordRequested] can record the object of one request.
// A server MUST call it once for each request.
func WithRequested(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestRecordKey{}, &requestRecord{})
}

// RecordRequested records a copy of the object of a write. It MUST be called before any plugin,
// policy or webhook of the cluster changes the object. After a conflict, the server applies a patch
// again and repeats admission. The second call of RecordRequested then replaces the record.
//
// The result of copyOf may share memory with the object. A plugin that changes shared memory also
// changes the record. The plugin's changes are then attributed to the client.
func RecordRequested(ctx context.Context, a admission.Attributes, copyOf func(runtime.Object) runtime.Object) {
	r, ok := ctx.Value(requestRecordKey{}).(*requestRecord)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write = write{}
	r.object = nil
	w, ok := writeOf(a)
	if !ok {
		return
	}
	if w.name == "" {
		// A request normally creates one object with a generated name. If it creates several, the
		// record of one cannot be distinguished from the record of another, so none is recorded.
		if r.generatedNames++; r.generatedNames > 1 {
			return
		}
	}
	r.write, r.object = w, copyOf(a.GetObject())
}

// Requested returns the object of a write as the client sent it, or nil if it was not recorded.
// If it is nil, a plugin MUST treat the whole object of a as sent by the client. The result MUST
// NOT be changed.
func Requested(ctx context.Context, a admission.Attributes) runtime.Object {
	r, ok := ctx.Value(requestRecordKey{}).(*requestRecord)
	if !ok {
		return nil
	}
	w, ok := writeOf(a)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.object != nil && r.write.name == "" && w.operation == admission.Create {
		// The server has generated the name in the meantime.
		newObj, err := meta.Accessor(a.GetObject())
		if err != nil {
			return nil
		}
		w.name, w.generate = "", newObj.GetGenerateName()
	}
	if r.object == nil || r.write != w {
		return nil
	}
	return r.object
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package request records the object that a client sent. Other plugins use the record to ignore the
// changes of the plugins, policies and webhooks of the cluster.
package request

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

// Name is the name of the plugin.
const Name = "TenantRequest"

// Options configure the plugin.
type Options struct {
	// Kinds are recorded in addition to Namespaces and the built-in kinds with Pod templates.
	Kinds map[schema.GroupKind]bool
}

// New returns the plugin. It does not change or deny any object. It MUST run before every other
// plugin that changes objects.
func New(o Options) admission.MutationInterface {
	return &plugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		Options: o,
		builtIn: workload.New(nil),
	}
}

type plugin struct {
	*admission.Handler
	Options
	builtIn workload.Kinds
	// indexes caches the results of indexesOf by type.
	indexes sync.Map
}

// Admit implements [admission.MutationInterface]. The server calls Admit again after a webhook
// changed the object. Such a call does not replace the first record of the write.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if again := a.GetReinvocationContext(); again != nil && again.IsReinvoke() {
		return nil
	}
	if p.governs(a) {
		plugins.RecordRequested(ctx, a, p.copyOf(a.GetKind().GroupKind()))
	}
	return nil
}

// placementFields are the fields of a PodSpec that select where a Pod runs and that contain
// pointers, maps or slices. The server's plugin RuntimeClass changes such values in place.
var placementFields = []string{
	"NodeSelector",
	"Affinity",
	"Tolerations",
	"TopologySpreadConstraints",
	"RuntimeClassName",
}

// copyOf returns the function that copies objects of a kind. A deep copy of a Pod takes longer than
// most plugins, and few clients select where their Pods run. The function therefore makes a shallow
// copy of an object that has none of the placementFields.
func (p *plugin) copyOf(kind schema.GroupKind) func(runtime.Object) runtime.Object {
	paths, hasTemplates := p.builtIn[kind]
	return func(object runtime.Object) runtime.Object {
		value := reflect.ValueOf(object)
		_, isUntyped := object.(runtime.Unstructured)
		if !hasTemplates || isUntyped || value.Kind() != reflect.Pointer || p.hasPlacement(value.Elem(), paths[0]) {
			return object.DeepCopyObject()
		}
		out := reflect.New(value.Elem().Type())
		out.Elem().Set(value.Elem())
		return out.Interface().(runtime.Object)
	}
}

// hasPlacement reports whether an object has one of the placementFields. It also returns true if
// the type refers to its template by a pointer.
func (p *plugin) hasPlacement(object reflect.Value, path []string) bool {
	found, known := p.indexes.Load(object.Type())
	if !known {
		found = indexesOf(object.Type(), path)
		p.indexes.Store(object.Type(), found)
	}
	for _, index := range found.([][]int) {
		if !object.FieldByIndex(index).IsZero() {
			return true
		}
	}
	return len(found.([][]int)) == 0
}

// indexesOf returns the indexes of the placementFields, or nil if the type does not contain all of
// them.
func indexesOf(object reflect.Type, path []string) [][]int {
	var prefix []int
	for _, name := range append(slices.Clone(path), "spec") {
		if object.Kind() != reflect.Struct {
			return nil
		}
		f, ok := object.FieldByName(strings.ToUpper(name[:1]) + name[1:])
		if !ok {
			return nil
		}
		prefix = append(prefix, f.Index...)
		object = f.Type
	}
	var out [][]int
	for _, name := range placementFields {
		f, ok := object.FieldByName(name)
		if !ok {
			return nil
		}
		out = append(out, append(slices.Clone(prefix), f.Index...))
	}
	return out
}

// governs reports whether a plugin may need the recorded object of a write.
func (p *plugin) governs(a admission.Attributes) bool {
	if a.GetResource().GroupResource() == corev1.Resource("namespaces") {
		return true // every subresource can change labels and annotations
	}
	if a.GetSubresource() == "status" {
		return false
	}
	kind := a.GetKind().GroupKind()
	_, recorded := p.Kinds[kind]
	_, hasTemplates := p.builtIn[kind]
	return recorded || hasTemplates
}

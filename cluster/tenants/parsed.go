// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/typed"
)

// parsedObjects caches the parsed objects of one kind, keyed by name.
type parsedObjects[V any] struct {
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration

	mu      sync.RWMutex
	valid   map[string]*V // values are never changed in place
	invalid map[string]invalidObject
	changed func(name string)
}

// invalidObject is an object that does not decode or that parse rejects.
type invalidObject struct {
	object metav1.Object
	err    error
}

// newParsedObjects returns a cache of the objects of one kind. The cache is empty until its
// informer runs. It logs objects that do not decode or that parse rejects, and stores them as
// invalid.
func newParsedObjects[V, T any, P typed.Pointer[T]](
	client dynamic.Interface, of schema.GroupVersionResource, parse func(P) (*V, error),
) (*parsedObjects[V], error) {
	k := &parsedObjects[V]{valid: map[string]*V{}, invalid: map[string]invalidObject{}}
	var err error
	if k.informer, err = typed.NewInformer[T, P](client, of, nil); err != nil {
		return nil, err
	}
	set := func(obj any) {
		name, _ := cache.ObjectToName(obj)
		object, err := typed.FromInformer[T, P](obj)
		var parsed *V
		if err == nil {
			parsed, err = parse(object)
		}
		if err != nil {
			klog.Background().Error(err, "Ignoring an invalid object", "resource", of.Resource, "name", name.Name)
			of, _ := obj.(metav1.Object)
			k.put(name.Name, nil, invalidObject{of, err})
			return
		}
		k.put(name.Name, parsed, invalidObject{})
	}
	k.registration, err = k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, now any) { set(now) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				k.put(name.Name, nil, invalidObject{})
			}
		},
	})
	return k, err
}

// put stores a parsed object, or an invalid object and the reason. If parsed and wrong are zero,
// it removes the object.
func (k *parsedObjects[V]) put(name string, parsed *V, wrong invalidObject) {
	k.mu.Lock()
	delete(k.valid, name)
	delete(k.invalid, name)
	switch {
	case parsed != nil:
		k.valid[name] = parsed
	case wrong.object != nil:
		k.invalid[name] = wrong
	}
	changed := k.changed
	k.mu.Unlock()
	if changed != nil {
		changed(name)
	}
}

// get returns the parsed object with the given name, or nil if it does not exist or is invalid.
func (k *parsedObjects[V]) get(name string) *V {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.valid[name]
}

// getInvalid returns the invalid object with the given name, or the zero value if it does not
// exist or is valid.
func (k *parsedObjects[V]) getInvalid(name string) invalidObject {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.invalid[name]
}

// all returns all valid objects in no particular order.
func (k *parsedObjects[V]) all() []*V {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Values(k.valid))
}

// onChange sets the function that is called with the name of each object that is created, changed
// or deleted. If nil, no function is called.
func (k *parsedObjects[V]) onChange(changed func(name string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changed = changed
}

package tenants

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/typed"
)

// kept has what was parsed of the objects of a kind, by name.
type kept[V any] struct {
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration

	mu      sync.RWMutex
	named   map[string]*V // never changed
	changed func(name string)
}

// newKept follows the objects of a kind as soon as the informer runs. An object that does not
// decode, or that parse refuses, is ignored.
func newKept[V, T any, P typed.Pointer[T]](
	client dynamic.Interface, of schema.GroupVersionResource, parse func(P) (*V, error),
) (*kept[V], error) {
	k := &kept[V]{named: map[string]*V{}}
	var err error
	if k.informer, err = typed.NewInformer[T, P](client, of, nil); err != nil {
		return nil, err
	}
	set := func(obj any) {
		name, _ := cache.ObjectToName(obj)
		object, err := typed.From[T, P](obj)
		var parsed *V
		if err == nil {
			parsed, err = parse(object)
		}
		if err != nil {
			klog.Background().Error(err, "Ignoring an invalid object", "resource", of.Resource, "name", name.Name)
			parsed = nil
		}
		k.put(name.Name, parsed)
	}
	k.handled, err = k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, now any) { set(now) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				k.put(name.Name, nil)
			}
		},
	})
	return k, err
}

// put stores what was parsed of an object, or nil if the object does not exist.
func (k *kept[V]) put(name string, parsed *V) {
	k.mu.Lock()
	if parsed != nil {
		k.named[name] = parsed
	} else {
		delete(k.named, name)
	}
	changed := k.changed
	k.mu.Unlock()
	if changed != nil {
		changed(name)
	}
}

// get returns what was parsed of an object, or nil if there is none.
func (k *kept[V]) get(name string) *V {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.named[name]
}

// all returns what was parsed of all objects, in no order.
func (k *kept[V]) all() []*V {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Values(k.named))
}

// onChange sets the function that is called for each object that is created, changes or is deleted.
// If nil, none is called.
func (k *kept[V]) onChange(changed func(name string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changed = changed
}

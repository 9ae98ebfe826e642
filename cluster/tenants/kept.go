package tenants

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/listinformer"
)

// kept are the objects of a kind, as they are understood, by their names.
type kept[T any] struct {
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration
	read     func(runtime.Object) (*T, error)

	mu    sync.RWMutex
	named map[string]*T // never changed
	told  func(name string)
}

// newKept follows those that client sees as soon as the informer runs.
func newKept[T any](
	client dynamic.Interface, of schema.GroupVersionResource, read func(runtime.Object) (*T, error),
) (*kept[T], error) {
	k := &kept[T]{read: read, named: map[string]*T{}, informer: listinformer.New(client, of)}
	var err error
	k.handled, err = k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    k.set,
		UpdateFunc: func(_, is any) { k.set(is) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				k.put(name.Name, nil)
			}
		},
	})
	return k, err
}

func (k *kept[T]) set(obj any) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return
	}
	read, err := k.read(u)
	if err != nil { // a later release's
		klog.Background().Info("An object is not understood, and counts as if it were not there", "kind", u.GetKind(),
			"name", u.GetName(), "err", err)
		read = nil
	}
	k.put(u.GetName(), read)
}

// put takes over what an object says, nil for one that is not there.
func (k *kept[T]) put(name string, is *T) {
	k.mu.Lock()
	if is != nil {
		k.named[name] = is
	} else {
		delete(k.named, name)
	}
	told := k.told
	k.mu.Unlock()
	if told != nil {
		told(name)
	}
}

// get returns one, nil where there is none.
func (k *kept[T]) get(name string) *T {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.named[name]
}

// onChange has told be told of each that comes, changes or goes; nil for nobody.
func (k *kept[T]) onChange(told func(name string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = told
}

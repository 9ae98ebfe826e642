// Package tenants holds the Tenants of a cluster: which tenants there are, and how far their callers may go.
package tenants

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// definedEvery is how often it is looked whether the kind is defined.
const definedEvery = 200 * time.Millisecond

func resource() schema.GroupVersionResource { return v1alpha1.Resource(v1alpha1.ResourceTenants) }

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// Store holds the Tenants that a client sees. Safe for concurrent use.
//
// What is not known is [authz.AccessUnknown]: until the Tenants were read once. A Tenant that goes since its definition does is
// kept in mind, until its like is made anew or the process ends: who was closed stays so.
type Store struct {
	client   dynamic.Interface
	defined  func() (is, known bool)
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration
	gone     workqueue.TypedRateLimitingInterface[string] // names that an end was seen of
	synced   atomic.Bool
	less     atomic.Pointer[func(tenant.ID)]

	count *metrics.GaugeVec

	mu     sync.RWMutex
	access map[tenant.ID]authz.Access
	named  map[string]named // by the name of the object
}

// named is the Tenant of a name.
type named struct {
	id   tenant.ID
	made metav1.Time
}

// New returns the store of the Tenants that client sees while [Store.Run] runs. defined reports whether their definition is
// there: without it there are none.
func New(client dynamic.Interface, defined func() (is, known bool)) (*Store, error) {
	s := &Store{client: client, defined: defined, access: map[tenant.ID]authz.Access{}, named: map[string]named{}, count: newCount(),
		informer: dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(resource()).Informer(),
		gone:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	if err := s.informer.SetTransform(slim); err != nil {
		return nil, err
	}
	var err error
	s.handled, err = s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.set, UpdateFunc: func(_, is any) { s.set(is) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				s.gone.Add(name.Name)
			}
		}})
	return s, err
}

// slim keeps of a Tenant what is looked at.
func slim(obj any) (any, error) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return obj, nil // a tombstone
	}
	out := &unstructured.Unstructured{Object: map[string]any{"spec": u.Object["spec"]}}
	if status, has := u.Object["status"]; has {
		out.Object["status"] = status
	}
	out.SetName(u.GetName())
	out.SetUID(u.GetUID())
	out.SetGeneration(u.GetGeneration())
	out.SetCreationTimestamp(u.GetCreationTimestamp())
	out.SetResourceVersion(u.GetResourceVersion())
	return out, nil
}

// AccessOf returns the tenant of a Tenant and how far its callers may go; the zero ID for one that counts for nothing: of another
// name than its tenant's, or of no tenant.
func AccessOf(u *unstructured.Unstructured) (tenant.ID, authz.Access) {
	text, _, _ := unstructured.NestedString(u.Object, "spec", "id")
	id, err := tenant.Parse(text)
	if err != nil || id.IsSystem() || id.ObjectName() != u.GetName() {
		return tenant.ID{}, authz.AccessUnknown
	}
	access := authz.AccessOpen
	for _, field := range []string{"access", "suspension"} {
		value, _, err := unstructured.NestedString(u.Object, "spec", field)
		switch v1alpha1.TenantAccess(value) {
		case "", v1alpha1.TenantAccessOpen:
		case v1alpha1.TenantAccessReadOnly:
			access = min(access, authz.AccessReadOnly)
		default: // a later release's
			access = authz.AccessClosed
		}
		if err != nil {
			access = authz.AccessClosed
		}
	}
	return id, access
}

// OnLess has f told of each tenant whose callers may go less far than before, or whose Tenant is gone. One f at a time.
func (s *Store) OnLess(f func(tenant.ID)) { s.less.Store(&f) }

// Follow has f told of each tenant whose Tenant is there, comes, goes or changes, until stop is called. What goes counts on
// until it is known why: see [Store.Tenant].
func (s *Store) Follow(f func(tenant.ID)) (stop func(), err error) {
	tell := func(obj any) {
		if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
			obj = gone.Obj
		}
		if u, is := obj.(*unstructured.Unstructured); is {
			if id, _ := AccessOf(u); !id.IsZero() {
				f(id)
			}
		}
	}
	registered, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(was, is any) {
		before, _ := was.(*unstructured.Unstructured)
		now, _ := is.(*unstructured.Unstructured)
		if before == nil || now == nil || before.GetUID() != now.GetUID() || before.GetGeneration() != now.GetGeneration() { // and not of a status
			tell(was)
			tell(is)
		}
	}})
	return func() { _ = s.informer.RemoveEventHandler(registered) }, err
}

// Tenant returns the Tenant of a tenant, nil where there is none; false where that is not known, or it is not understood. It
// has no more of the metadata than name, UID and generation, and is the caller's.
func (s *Store) Tenant(id tenant.ID) (t *v1alpha1.Tenant, known bool) {
	if !s.HasSynced() {
		return nil, false
	}
	// First the cache, which is ahead of what was made of it.
	obj, exists, err := s.informer.GetStore().GetByKey(id.ObjectName())
	if u, is := obj.(*unstructured.Unstructured); err == nil && exists && is {
		if of, _ := AccessOf(u); of == id {
			t, err = v1alpha1.TenantOf(u)
			return t, err == nil
		}
	}
	if defined, _ := s.defined(); !defined { // who begins then does not know whom it took with it
		return nil, false
	}
	return nil, err == nil && s.Of(id) == authz.AccessNone // else it is gone, and it is not known yet why
}

// Run follows the Tenants until ctx ends, as soon as they are defined. Once per Store.
func (s *Store) Run(ctx context.Context) {
	for access := range accesses() {
		s.counts(access, 0)
	}
	go func() {
		<-ctx.Done()
		s.gone.ShutDown()
	}()
	if wait.PollUntilContextCancel(ctx, definedEvery, true, func(context.Context) (bool, error) {
		is, _ := s.defined()
		return is, nil
	}) != nil {
		return
	}
	go s.informer.RunWithContext(ctx)
	for {
		name, shutdown := s.gone.Get()
		if shutdown {
			return
		}
		if err := s.end(ctx, name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("A Tenant was deleted, and counts until it is known whether its definition is", "tenant", name, "err", err)
			s.gone.AddRateLimited(name)
		} else {
			s.gone.Forget(name)
		}
		s.gone.Done(name)
	}
}

// HasSynced reports whether the Tenants of the start are known: that there are none, too.
func (s *Store) HasSynced() bool {
	if s.synced.Load() {
		return true
	}
	if s.handled.HasSynced() {
		s.synced.Store(true)
		return true
	}
	is, known := s.defined()
	return known && !is
}

// Of returns how far callers of a tenant may go: [authz.AccessNone] where it has no Tenant.
func (s *Store) Of(id tenant.ID) authz.Access {
	if !s.HasSynced() {
		return authz.AccessUnknown
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	access, exists := s.access[id]
	if !exists {
		return authz.AccessNone
	}
	return access
}

// TenantOf returns the tenant that a Tenant is of, the zero ID for one that is not known.
func (s *Store) TenantOf(name string) tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.named[name].id
}

func (s *Store) set(obj any) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return
	}
	id, access := AccessOf(u)
	s.replace(u.GetName(), id)
	if id.IsZero() {
		klog.Background().Info("A Tenant counts for nothing: it is of no tenant, or not named as its tenant's must be", "tenant", u.GetName())
		return
	}
	s.mu.Lock()
	before, existed := s.access[id]
	s.access[id], s.named[u.GetName()] = access, named{id, u.GetCreationTimestamp()}
	s.mu.Unlock()
	if !existed {
		before = authz.AccessOpen // where no Tenant is needed; where one is nobody was let in
	} else {
		s.counts(before, -1)
	}
	s.counts(access, 1)
	if access < before {
		s.tell(id)
	}
}

// replace forgets the tenant whose Tenant had a name that is another's by now: the definition cannot tell to whom a name belongs of an
// ID that is no DNS label.
func (s *Store) replace(name string, by tenant.ID) {
	s.mu.Lock()
	last, had := s.named[name]
	if !had || last.id == by {
		s.mu.Unlock()
		return
	}
	before := s.access[last.id]
	delete(s.access, last.id)
	delete(s.named, name)
	s.mu.Unlock()
	s.counts(before, -1)
	s.tell(last.id)
}

func (s *Store) tell(id tenant.ID) {
	if f := s.less.Load(); f != nil {
		(*f)(id)
	}
}

// end forgets a Tenant that is gone, and not for its definition's sake.
func (s *Store) end(ctx context.Context, name string) error {
	definition, err := s.client.Resource(definitions()).Get(ctx, resource().GroupResource().String(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && definition.GetDeletionTimestamp() != nil:
		return nil
	case err != nil:
		return err
	}
	s.mu.Lock()
	if _, found, err := s.informer.GetStore().GetByKey(name); err != nil || found { // made anew
		s.mu.Unlock()
		return err
	}
	ended, counted := s.named[name]
	if created := definition.GetCreationTimestamp(); !counted || ended.made.Before(&created) { // it went with the definition before this one
		s.mu.Unlock()
		return nil
	}
	before := s.access[ended.id]
	delete(s.access, ended.id)
	delete(s.named, name)
	s.mu.Unlock()
	s.counts(before, -1)
	s.tell(ended.id)
	return nil
}

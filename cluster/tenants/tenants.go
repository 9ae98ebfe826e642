// Package tenants holds the Tenants of a cluster: which tenants there are, and how
// far their callers may go.
package tenants

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/internal/listinformer"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// definedEvery is how often it is looked whether the kind is defined.
	definedEvery = 200 * time.Millisecond
	// retryAtFirst and retryAtLast are after how long it is asked again why a Tenant goes:
	// who goes counts meanwhile.
	retryAtFirst = 100 * time.Millisecond
	retryAtLast  = 10 * time.Second
)

func resource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
}

func retiredResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)
}

// Definitions is the resource of the definitions of custom resources.
func Definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// Store holds the Tenants that a client sees, and those that were deleted. Safe for concurrent use.
//
// What is not known is [authz.AccessUnknown]: until the Tenants were read once. A Tenant that
// goes since its definition does is kept in mind, until its like is made anew or the process
// ends: who was closed stays so.
type Store struct {
	client   dynamic.Interface
	defined  func(schema.GroupResource) (is, known bool)
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration
	changed  workqueue.TypedRateLimitingInterface[string] // names of which an end was seen, or begins
	synced   atomic.Bool
	replaced atomic.Bool // a Tenant has replaced another
	less     atomic.Pointer[func(tenant.ID)]
	retired  *retired
	// These are no matter of identity: nothing waits for them but what is made of them.
	templates *kept[template.Template]
	members   *kept[v1alpha1.TenantMembers]

	count *metrics.GaugeVec

	mu    sync.RWMutex
	live  map[tenant.ID]*live
	named map[string]tenant.ID // by the name of the object
}

// live is what counts of a Tenant. It is never changed.
type live struct {
	access      authz.Access // that it says
	uid         types.UID
	made        metav1.Time
	ending      bool // it is being deleted, and not for its definition's sake
	goes        bool // it has been deleted, for whatever sake
	undated     bool
	replaces    string                        // the UID of the one before
	spaces      v1alpha1.TenantNamespacesSpec // not to be changed
	memberRoles []string
	admins      []rbacv1.Subject // not to be changed
}

// effective is how far callers may go: who is about to end gives back what he has.
func (l *live) effective() authz.Access {
	if l.ending {
		return min(l.access, authz.AccessReadOnly)
	}
	return l.access
}

// New returns the store of the Tenants that client sees while [Store.Run] runs. defined reports
// whether a definition of the project's kinds is there: without it there are none.
func New(client dynamic.Interface, defined func(schema.GroupResource) (is, known bool)) (*Store, error) {
	s := &Store{
		client:   client,
		defined:  defined,
		live:     map[tenant.ID]*live{},
		named:    map[string]tenant.ID{},
		count:    newCount(),
		informer: listinformer.New(client, resource()),
		changed: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast),
		),
	}
	if err := s.informer.SetTransform(slim); err != nil {
		return nil, err
	}
	var err error
	if s.handled, err = s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.set,
		UpdateFunc: func(_, is any) { s.set(is) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				s.changed.Add(name.Name)
			}
		},
	}); err != nil {
		return nil, err
	}
	if s.retired, err = newRetired(client, s.tell, func(name string) { s.changed.Add(retiredPrefix + name) }); err != nil {
		return nil, err
	}
	if s.templates, err = newKept(client, templateResource(), template.Parse); err != nil {
		return nil, err
	}
	s.members, err = newKept(client, membersResource(), MembersOf)
	return s, err
}

// OnLess has f told of each tenant whose callers may go less far than before, or whose Tenant
// is gone. One f at a time.
func (s *Store) OnLess(f func(tenant.ID)) { s.less.Store(&f) }

// Follow has f told of each tenant whose Tenant is there, comes, goes or changes, until stop is
// called. What goes counts on until it is known why: see [Store.Tenant].
func (s *Store) Follow(f func(tenant.ID)) (stop func(), err error) {
	return s.FollowObjects(func(u *unstructured.Unstructured) {
		if id, _ := AccessOf(u); !id.IsZero() {
			f(id)
		}
	})
}

// FollowObjects is [Store.Follow] of Tenants as they are stored, those too that count for nothing.
// They have no more than is looked at, and must not be changed.
func (s *Store) FollowObjects(f func(*unstructured.Unstructured)) (stop func(), err error) {
	tell := func(obj any) {
		if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
			obj = gone.Obj
		}
		if u, is := obj.(*unstructured.Unstructured); is {
			f(u)
		}
	}
	registered, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		DeleteFunc: tell,
		UpdateFunc: func(was, is any) {
			before, _ := was.(*unstructured.Unstructured)
			now, _ := is.(*unstructured.Unstructured)
			if before == nil || now == nil || before.GetUID() != now.GetUID() || before.GetGeneration() != now.GetGeneration() ||
				(before.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
				before.GetAnnotations()[tenant.TakeBackAnnotation] != now.GetAnnotations()[tenant.TakeBackAnnotation] {
				// and not of a status
				tell(was)
				tell(is)
			}
		},
	})
	return func() { _ = s.informer.RemoveEventHandler(registered) }, err
}

// Tenant returns the Tenant of a tenant, nil where there is none; false where that is not known, or
// it is not understood. It has no more of the metadata than is looked at, and is the caller's.
func (s *Store) Tenant(id tenant.ID) (t *v1alpha1.Tenant, known bool) {
	if !s.HasSynced() {
		return nil, false
	}
	// First the cache, which is ahead of what was made of it.
	obj, exists, err := s.informer.GetStore().GetByKey(id.ObjectName())
	if u, is := obj.(*unstructured.Unstructured); err == nil && exists && is {
		if of, _ := AccessOf(u); of == id {
			t, err = TenantOf(u)
			return t, err == nil
		}
	}
	// who begins then does not know whom it took with it
	if defined, _ := s.defined(resource().GroupResource()); !defined {
		return nil, false
	}
	access := s.Of(id)
	// else it is gone, and it is not known yet why
	return nil, err == nil && (access == authz.AccessNone || access == authz.AccessRetired)
}

// Run follows the Tenants until ctx ends, as soon as they are defined. Once per Store.
func (s *Store) Run(ctx context.Context) {
	for access := range accesses() {
		s.counts(access, 0)
	}
	go func() {
		<-ctx.Done()
		s.changed.ShutDown()
	}()
	go s.follow(ctx, retiredResource(), s.retired.informer)
	go s.follow(ctx, templateResource(), s.templates.informer)
	go s.follow(ctx, membersResource(), s.members.informer)
	if !s.follow(ctx, resource(), s.informer) {
		return
	}
	for {
		name, shutdown := s.changed.Get()
		if shutdown {
			return
		}
		if err := s.look(ctx, name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("A Tenant was deleted, and counts until it is known whether its definition is",
				"tenant", name, "err", err)
			s.changed.AddRateLimited(name)
		} else {
			s.changed.Forget(name)
		}
		s.changed.Done(name)
	}
}

// follow starts an informer as soon as its kind is defined, and reports false if
// that was not before the end.
func (s *Store) follow(ctx context.Context, of schema.GroupVersionResource, informer cache.SharedIndexInformer) bool {
	if wait.PollUntilContextCancel(ctx, definedEvery, true, func(context.Context) (bool, error) {
		is, _ := s.defined(of.GroupResource())
		return is, nil
	}) != nil {
		return false
	}
	go informer.RunWithContext(ctx)
	return true
}

// HasSynced reports whether the Tenants of the start are known, and those that were deleted:
// that there are none, too.
func (s *Store) HasSynced() bool {
	if s.synced.Load() {
		return true
	}
	if s.handled.HasSynced() && s.retired.handled.HasSynced() {
		s.synced.Store(true)
		return true
	}
	return s.knows(resource(), s.handled) && s.knows(retiredResource(), s.retired.handled)
}

// knows reports whether all of a kind was read, or is not defined.
func (s *Store) knows(of schema.GroupVersionResource, handled cache.ResourceEventHandlerRegistration) bool {
	is, known := s.defined(of.GroupResource())
	return handled.HasSynced() || known && !is
}

// Of returns how far callers of a tenant may go: [authz.AccessNone] where it has no Tenant,
// [authz.AccessRetired] where that was deleted.
func (s *Store) Of(id tenant.ID) authz.Access {
	if !s.HasSynced() {
		return authz.AccessUnknown
	}
	switch is := s.of(id); {
	case is != nil:
		return is.effective()
	case len(s.retired.of(id)) > 0:
		return authz.AccessRetired
	}
	return authz.AccessNone
}

// of returns what counts of a tenant's Tenant, nil where it has none.
func (s *Store) of(id tenant.ID) *live {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live[id]
}

// TenantOf returns the tenant that a Tenant is of, the zero ID for one that is not known.
func (s *Store) TenantOf(name string) tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.named[name]
}

// Lineage returns what is known of a tenant beside its name.
func (s *Store) Lineage(id tenant.ID) tenant.Lineage {
	retired := s.retired.of(id)
	is := s.of(id)
	if is == nil {
		return tenant.Lineage{Retired: retired}
	}
	if is.replaces != "" && !slices.ContainsFunc(retired, func(r tenant.Retired) bool { return r.UID == is.replaces }) {
		// Whatever became of what it left: who replaces somebody knows that there was one.
		retired = append([]tenant.Retired{{UID: is.replaces, At: is.made.Time}}, retired...)
	}
	return tenant.Lineage{
		UID:           string(is.uid),
		Created:       is.made.Time,
		Ending:        is.ending,
		AcceptUndated: is.undated,
		Retired:       retired,
	}
}

// Accepts reports whether a credential that was issued at a time can be a tenant's own, see
// [tenant.Lineage.Accepts]. It costs nothing where no tenant was deleted.
func (s *Store) Accepts(id tenant.ID, issued time.Time) bool {
	if s.retired.none.Load() && !s.replaced.Load() {
		return true
	}
	lineage := s.Lineage(id)
	return lineage.Accepts(issued)
}

// IDs returns the tenants that have a Tenant.
func (s *Store) IDs() []tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.live))
}

// Spaces returns what the Tenant of a tenant says of its namespaces. It must not be changed.
func (s *Store) Spaces(id tenant.ID) v1alpha1.TenantNamespacesSpec {
	if is := s.of(id); is != nil {
		return is.spaces
	}
	return v1alpha1.TenantNamespacesSpec{}
}

func (s *Store) set(obj any) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return
	}
	id, access := AccessOf(u)
	s.replace(u.GetName(), id)
	if id.IsZero() {
		klog.Background().Info("A Tenant counts for nothing: it is of no tenant, or not named as its tenant's must be",
			"tenant", u.GetName())
		return
	}
	now := &live{access: access, uid: u.GetUID(), made: u.GetCreationTimestamp()}
	now.goes = u.GetDeletionTimestamp() != nil
	now.replaces, _, _ = unstructured.NestedString(u.Object, "spec", "replaces")
	now.undated, _, _ = unstructured.NestedBool(u.Object, "spec", "acceptUndated")
	now.spaces = NamespacesOf(u)
	now.memberRoles, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "memberRoles")
	now.admins = AdminsOf(u)
	if now.replaces != "" {
		s.replaced.Store(true)
	}
	s.mu.Lock()
	was := s.live[id]
	// whom this process has not seen before ends until it is known why
	now.ending = now.goes && (was == nil || was.uid != now.uid || was.ending)
	s.live[id], s.named[u.GetName()] = now, id
	s.mu.Unlock()
	s.changedTo(id, was, now)
	if now.goes && (was == nil || was.uid != now.uid || !was.goes) {
		s.changed.Add(u.GetName())
	}
}

// changedTo counts what became of a tenant's Tenant, nil for none, and tells of
// callers that may go less far.
func (s *Store) changedTo(id tenant.ID, was, now *live) {
	before := authz.AccessOpen // where no Tenant is needed; where one is nobody was let in
	if was != nil {
		before = was.effective()
		s.counts(before, -1)
	}
	if now != nil {
		s.counts(now.effective(), 1)
	}
	if now == nil || now.effective() < before ||
		was != nil && (was.uid != now.uid || !was.ending && now.ending || was.undated && !now.undated) {
		s.tell(id)
	}
}

// replace forgets the tenant whose Tenant had a name that is another's by now: the definition
// cannot tell to whom a name belongs of an ID that is no DNS label.
func (s *Store) replace(name string, by tenant.ID) {
	s.mu.RLock()
	last, had := s.named[name]
	s.mu.RUnlock()
	if !had || last == by {
		return
	}
	s.mu.Lock()
	was := s.live[last]
	delete(s.live, last)
	delete(s.named, name)
	s.mu.Unlock()
	s.changedTo(last, was, nil)
}

func (s *Store) tell(id tenant.ID) {
	if f := s.less.Load(); f != nil {
		(*f)(id)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenants reads the Tenants of a cluster and determines the access of their callers.
package tenants

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// definedEvery is the interval at which the store checks whether a kind is defined.
	definedEvery = 200 * time.Millisecond
	// retryAtFirst and retryAtLast are the first and the longest delay before the store checks
	// again whether a Tenant was deleted with its definition. Until the check succeeds, the
	// Tenant applies.
	retryAtFirst = 100 * time.Millisecond
	retryAtLast  = 10 * time.Second
)

func resource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
}

func retiredResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)
}

// Definitions returns the resource of CustomResourceDefinitions.
func Definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// Store caches the Tenants of a cluster and the RetiredTenants of deleted tenants. It is safe for
// concurrent use.
//
// Until the Tenants have been read once, [Store.Access] returns [authz.AccessUnknown]. If a Tenant
// is deleted with its CustomResourceDefinition, the store retains the Tenant until it is created
// again or the process ends. Callers of the tenant therefore do not gain access.
type Store struct {
	client       dynamic.Interface
	tenants      typed.Client[v1alpha1.Tenant, *v1alpha1.Tenant]
	defined      func(schema.GroupResource) (is, known bool)
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
	// changed contains the names of Tenants that are being deleted or were deleted, and of
	// deleted RetiredTenants.
	changed    workqueue.TypedRateLimitingInterface[string]
	synced     atomic.Bool
	replaced   atomic.Bool // a Tenant with spec.replaces was read
	lostAccess atomic.Pointer[func(tenant.ID)]
	retired    *retired
	// templates, members and publications do not affect identity. Authentication and authorization do
	// not wait for them to be read.
	templates    *parsedObjects[template.Template]
	members      *parsedObjects[v1alpha1.TenantMembers]
	publications *parsedObjects[publication.Publication]

	count *metrics.GaugeVec

	mu     sync.RWMutex
	states map[tenant.ID]*tenantState
	named  map[string]tenant.ID // keyed by the name of the Tenant
	// invalid has the Tenants that do not decode and whose ID is not known, keyed by name.
	// [Store.state] finds them by name, because a tenant ID determines the name of its Tenant.
	invalid map[string]*tenantState
}

// New returns a store that is empty until [Store.Run] is called. defined reports whether the server
// defines a kind of the project. An undefined kind has no objects.
func New(client dynamic.Interface, defined func(schema.GroupResource) (is, known bool)) (*Store, error) {
	s := &Store{
		client:  client,
		defined: defined,
		states:  map[tenant.ID]*tenantState{},
		named:   map[string]tenant.ID{},
		invalid: map[string]*tenantState{},
		count:   newCount(),
		tenants: typed.NewClient[v1alpha1.Tenant](client, resource()),
		changed: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast),
		),
	}
	var err error
	if s.informer, err = typed.NewInformer(client, resource(), trim); err != nil {
		return nil, err
	}
	if s.registration, err = s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	if s.retired, err = newRetired(client, s.notifyLostAccess, func(name string) {
		s.changed.Add(retiredPrefix + name)
	}); err != nil {
		return nil, err
	}
	if s.templates, err = newParsedObjects(client, templateResource(), template.Parse); err != nil {
		return nil, err
	}
	s.members, err = newParsedObjects(client, membersResource(),
		func(m *v1alpha1.TenantMembers) (*v1alpha1.TenantMembers, error) { return m, nil })
	if err != nil {
		return nil, err
	}
	s.publications, err = newParsedObjects(client, publicationResource(), publication.Parse)
	return s, err
}

// OnLostAccess sets f, which replaces an earlier function. The store calls f for each tenant
// whose callers may have lost access, for example because the Tenant was suspended, deleted or
// replaced.
func (s *Store) OnLostAccess(f func(tenant.ID)) { s.lostAccess.Store(&f) }

// Follow calls f for each tenant that has a Tenant, and each time a Tenant is created, changed or
// deleted, until stop is called. It ignores changes that affect only the status. When f is called
// for a deletion, [Store.Tenant] may not know yet whether the tenant still has a Tenant.
func (s *Store) Follow(f func(tenant.ID)) (stop func(), err error) {
	return s.FollowObjects(func(object metav1.Object) {
		if id := s.idOf(object); !id.IsZero() {
			f(id)
		}
	})
}

// idOf returns the tenant ID of a Tenant object, or the zero ID if it is unknown.
func (s *Store) idOf(object metav1.Object) tenant.ID {
	if t, ok := object.(*v1alpha1.Tenant); ok {
		id, _ := AccessOf(t)
		return id
	}
	if id := s.TenantOf(object.GetName()); !id.IsZero() {
		return id
	}
	return IDOfName(object.GetName())
}

// FollowObjects is like [Store.Follow], but calls f with the objects. Each object is a
// [v1alpha1.Tenant] or a [typed.Invalid]. FollowObjects includes Tenants whose spec.id is invalid.
// f MUST NOT change the objects.
func (s *Store) FollowObjects(f func(metav1.Object)) (stop func(), err error) {
	call := func(obj any) {
		if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = deleted.Obj
		}
		if object, ok := obj.(metav1.Object); ok {
			f(object)
		}
	}
	registered, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    call,
		DeleteFunc: call,
		UpdateFunc: func(was, is any) {
			before, _ := was.(metav1.Object)
			now, _ := is.(metav1.Object)
			if before != nil && now != nil && !onlyStatus(before, now) {
				call(was)
				call(is)
			}
		},
	})
	return func() { _ = s.informer.RemoveEventHandler(registered) }, err
}

// onlyStatus reports whether two versions of a Tenant have the same spec, labels and deletion
// state. It compares only the annotations that the store retains.
func onlyStatus(before, now metav1.Object) bool {
	_, wasValid := before.(*v1alpha1.Tenant)
	_, isValid := now.(*v1alpha1.Tenant)
	return wasValid == isValid && before.GetUID() == now.GetUID() && before.GetGeneration() == now.GetGeneration() &&
		(before.GetDeletionTimestamp() == nil) == (now.GetDeletionTimestamp() == nil) &&
		maps.Equal(before.GetLabels(), now.GetLabels()) &&
		before.GetAnnotations()[tenant.TakeBackAnnotation] == now.GetAnnotations()[tenant.TakeBackAnnotation] &&
		before.GetAnnotations()[tenant.KeystoneAnnotation] == now.GetAnnotations()[tenant.KeystoneAnnotation]
}

// Tenant returns a copy of a tenant's Tenant, or nil if the tenant has no Tenant. The second
// result is false if the Tenants have not been read or the Tenant does not decode. It is also
// false if it is not known whether the Tenant was deleted with its definition. The copy lacks
// metadata that no caller reads.
func (s *Store) Tenant(id tenant.ID) (t *v1alpha1.Tenant, known bool) {
	if !s.HasSynced() {
		return nil, false
	}
	// The cache of the informer may be newer than the state that the event handlers have stored.
	obj, exists, err := s.informer.GetStore().GetByKey(id.ObjectName())
	if err != nil {
		return nil, false
	}
	if exists {
		t, err := typed.FromInformer[v1alpha1.Tenant](obj)
		if err != nil {
			return nil, false
		}
		if of, _ := AccessOf(t); of == id {
			return t.DeepCopy(), true
		}
	}
	// If the kind is not defined, the Tenant may have been deleted with its definition.
	if defined, _ := s.defined(resource().GroupResource()); !defined {
		return nil, false
	}
	// If the tenant still has another access, processDeletion has not handled the deletion yet.
	access := s.Access(id)
	return nil, access == authz.AccessNone || access == authz.AccessRetired
}

// Run watches the Tenants and the other objects in the store until ctx ends. The informer of each
// kind starts when its CustomResourceDefinition exists. It must be called only once.
func (s *Store) Run(ctx context.Context) {
	for access := range accesses() {
		s.addCount(access, 0)
	}
	go func() {
		<-ctx.Done()
		s.changed.ShutDown()
	}()
	go s.startInformer(ctx, retiredResource(), s.retired.informer)
	go s.startInformer(ctx, templateResource(), s.templates.informer)
	go s.startInformer(ctx, membersResource(), s.members.informer)
	go s.startInformer(ctx, publicationResource(), s.publications.informer)
	if !s.startInformer(ctx, resource(), s.informer) {
		return
	}
	for {
		name, shutdown := s.changed.Get()
		if shutdown {
			return
		}
		if err := s.processDeletion(ctx, name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("A Tenant was deleted. It applies until the state of its "+
				"CustomResourceDefinition is known",
				"tenant", name, "err", err)
			s.changed.AddRateLimited(name)
		} else {
			s.changed.Forget(name)
		}
		s.changed.Done(name)
	}
}

// startInformer waits until the kind of an informer is defined, and then starts the informer. It
// returns false if ctx ends before the kind is defined.
func (s *Store) startInformer(
	ctx context.Context,
	of schema.GroupVersionResource,
	informer cache.SharedIndexInformer,
) bool {
	if wait.PollUntilContextCancel(ctx, definedEvery, true, func(context.Context) (bool, error) {
		defined, _ := s.defined(of.GroupResource())
		return defined, nil
	}) != nil {
		return false
	}
	go informer.RunWithContext(ctx)
	return true
}

// HasSynced reports whether the Tenants and RetiredTenants have been read once. It ignores kinds
// that the server is known not to define.
func (s *Store) HasSynced() bool {
	if s.synced.Load() {
		return true
	}
	if s.registration.HasSynced() && s.retired.registration.HasSynced() {
		s.synced.Store(true)
		return true
	}
	return s.isReady(resource(), s.registration) && s.isReady(retiredResource(), s.retired.registration)
}

// isReady reports whether all objects of a kind have been read, or the kind is known not to be
// defined.
func (s *Store) isReady(of schema.GroupVersionResource, handled cache.ResourceEventHandlerRegistration) bool {
	defined, known := s.defined(of.GroupResource())
	return handled.HasSynced() || known && !defined
}

// Access returns the access of a tenant's callers. It returns [authz.AccessUnknown] until the
// Tenants have been read. If the tenant has no Tenant, it returns [authz.AccessRetired] if a
// RetiredTenant reserves the ID, and otherwise [authz.AccessNone].
func (s *Store) Access(id tenant.ID) authz.Access {
	if !s.HasSynced() {
		return authz.AccessUnknown
	}
	switch state := s.state(id); {
	case state != nil:
		return state.effective()
	case len(s.retired.earlier(id)) > 0:
		return authz.AccessRetired
	}
	return authz.AccessNone
}

// AccessWithoutTenant returns the access of the callers of a tenant without a Tenant, if the
// configuration does not require a Tenant. It returns [authz.AccessOpen] unless the record of a
// canceled deletion specifies a stricter access.
func (s *Store) AccessWithoutTenant(id tenant.ID) authz.Access { return s.retired.limit(id) }

// state returns the stored state of a tenant's Tenant, or nil if the tenant has no Tenant.
func (s *Store) state(id tenant.ID) *tenantState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if state := s.states[id]; state != nil || len(s.invalid) == 0 {
		return state
	}
	return s.invalid[id.ObjectName()]
}

// TenantOf returns the tenant ID of the Tenant object with the given name, or the zero ID if the
// ID is not known.
func (s *Store) TenantOf(name string) tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.named[name]
}

// BelongsTo reports whether the Tenant object with the given name belongs to a tenant. If no such
// Tenant exists, it reports whether a Tenant of this tenant would have this name. It returns false
// if the ID of the Tenant is unknown, or if the Tenant is not stored yet and the Tenants have not
// been read.
func (s *Store) BelongsTo(name string, id tenant.ID) bool {
	if of := s.TenantOf(name); !of.IsZero() {
		return of == id
	}
	if id.IsZero() || name != id.ObjectName() || !s.HasSynced() {
		return false
	}
	_, exists, err := s.informer.GetStore().GetByKey(name)
	return err == nil && !exists
}

// Lineage returns the current Tenant and the deleted tenants with the given ID.
func (s *Store) Lineage(id tenant.ID) tenant.Lineage {
	retired := s.retired.earlier(id)
	state := s.state(id)
	if state == nil {
		return tenant.Lineage{Retired: retired}
	}
	if state.replaces != "" &&
		!slices.ContainsFunc(retired, func(r tenant.Retired) bool { return r.UID == state.replaces }) {
		// spec.replaces names an earlier Tenant, even if its RetiredTenant is missing.
		retired = append([]tenant.Retired{{UID: state.replaces, DeletionEnded: state.created.Time}}, retired...)
	}
	return tenant.Lineage{
		UID:           string(state.uid),
		Created:       state.created.Time,
		Terminating:   state.ending,
		AcceptUndated: state.acceptUndated,
		Retired:       retired,
	}
}

// Accepts reports whether a tenant accepts a credential that was issued at the given time. See
// [tenant.Lineage.Accepts]. It is fast if no tenant was deleted or replaced.
func (s *Store) Accepts(id tenant.ID, issued time.Time) bool {
	if s.retired.isEmpty.Load() && !s.replaced.Load() {
		return true
	}
	lineage := s.Lineage(id)
	return lineage.Accepts(issued)
}

// IDs returns the IDs of all tenants that have a Tenant. It omits Tenants that do not decode and
// whose ID is not known.
func (s *Store) IDs() []tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.states))
}

// NamespaceSettings returns spec.namespaces of a tenant's Tenant. Callers MUST NOT change it.
func (s *Store) NamespaceSettings(id tenant.ID) v1alpha1.TenantNamespacesSpec {
	if state := s.state(id); state != nil {
		return state.namespaces
	}
	return v1alpha1.TenantNamespacesSpec{}
}

func (s *Store) set(obj any) {
	object, id, now := s.read(obj)
	if object == nil {
		return
	}
	name := object.GetName()
	s.mu.Lock()
	last, was := s.entry(name)
	if now != nil {
		// If this process first observes the Tenant while the Tenant is being deleted, it assumes that
		// the tenant ends. [Store.processDeletion] corrects this if the Tenant is deleted with its
		// definition.
		now.ending = now.deleting && (was == nil || was.uid != now.uid || was.ending)
	}
	s.put(name, id, now)
	if now != nil && now.replaces != "" {
		s.replaced.Store(true)
	}
	s.mu.Unlock()
	if was != nil && last != id && !last.IsZero() {
		// The schema in the CustomResourceDefinition cannot compare the name with an ID that is
		// not a DNS label. The Tenant with this name may therefore belong to a different tenant
		// now.
		s.stateChanged(last, was, nil)
		was = nil
	}
	if was != nil || now != nil {
		s.stateChanged(id, was, now)
	}
	if now == nil {
		klog.Background().Info("Ignoring a Tenant: spec.id is invalid or does not match metadata.name",
			"tenant", name)
	}
	if invalid, ok := object.(*typed.Invalid); ok {
		klog.Background().Error(invalid.Err, "Failed to decode a Tenant, so all requests of its tenant are "+
			"denied", "tenant", name)
	}
	if now != nil && now.deleting && (was == nil || was.uid != now.uid || !was.deleting) {
		s.changed.Add(name)
	}
}

// stateChanged updates the metric after a change of a Tenant. was is nil if the Tenant is new, and
// now is nil if the Tenant was deleted. If callers of the tenant may lose access, it calls the
// function of [Store.OnLostAccess], unless the ID is zero.
func (s *Store) stateChanged(id tenant.ID, was, now *tenantState) {
	before := authz.AccessOpen // if the server does not require a Tenant
	if was != nil {
		before = was.effective()
		s.addCount(before, -1)
	}
	if now != nil {
		s.addCount(now.effective(), 1)
	}
	if id.IsZero() {
		return
	}
	if now == nil || now.effective() < before ||
		was != nil && (was.uid != now.uid || !was.ending && now.ending || was.acceptUndated && !now.acceptUndated) {
		s.notifyLostAccess(id)
	}
}

func (s *Store) notifyLostAccess(id tenant.ID) {
	if f := s.lostAccess.Load(); f != nil {
		(*f)(id)
	}
}

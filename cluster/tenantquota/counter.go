// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// countAfter is the delay between a change and the count, so that one count covers several
	// changes.
	countAfter = 250 * time.Millisecond
	// countCycle is the interval at which the usage of every quota is counted, even if nothing has
	// changed.
	countCycle = time.Minute
	// rememberDeleted is how long the deletion of an object is remembered. During this time, a
	// count releases reservations for the object. Later, such reservations remain until they
	// expire.
	rememberDeleted = 15 * time.Minute
)

// errCounting reports that the objects or the DeviceClasses have not been read yet.
var errCounting = errors.New("the list of objects is not complete yet")

// Counter measures the usage of tenants and writes the result to their quotas. A count releases the
// usage of deleted objects, and expired reservations for writes that were not stored. Counter
// watches all objects of each resource that a quota limits or has limited.
type Counter struct {
	quotas     *Store
	client     dynamic.Interface
	mapper     meta.ResettableRESTMapper
	namespaces *Namespaces
	queue      workqueue.TypedRateLimitingInterface[string]

	mu        sync.Mutex
	informers map[schema.GroupResource]cache.SharedIndexInformer // nil if the server does not serve the resource
	deleted   map[types.UID]time.Time                            // the time at which each object was deleted
}

// NewCounter returns a counter for the given store, which must be running.
func NewCounter(quotas *Store, mapper meta.ResettableRESTMapper, namespaces *Namespaces) *Counter {
	return &Counter{
		quotas:     quotas,
		client:     quotas.client,
		mapper:     mapper,
		namespaces: namespaces,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second),
		),
		informers: map[schema.GroupResource]cache.SharedIndexInformer{},
		deleted:   map[types.UID]time.Time{},
	}
}

// Run updates the usage until ctx ends. It must be called only once, after the namespaces have
// synced.
func (c *Counter) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	add := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.queue.Add(name.Name)
		}
	}
	handler, err := c.quotas.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, now any) { add(now) },
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to watch TenantQuotas, usage is not counted")
		return
	}
	defer func() { _ = c.quotas.informer.RemoveEventHandler(handler) }() // the informer may have ended
	registration, err := c.namespaces.informer.AddEventHandler(c.followNamespaces())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to watch namespaces, usage is not counted")
		return
	}
	defer func() { _ = c.namespaces.informer.RemoveEventHandler(registration) }()
	go wait.UntilWithContext(ctx, func(context.Context) {
		c.forget()
		for _, name := range c.quotas.informer.GetStore().ListKeys() {
			c.queue.Add(name)
		}
	}, countCycle)
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		switch err := c.count(ctx, name); {
		case err == nil:
			c.queue.Forget(name)
		case ctx.Err() == nil:
			if !errors.Is(err, quota.ErrConflict) && !errors.Is(err, errCounting) {
				klog.FromContext(ctx).Info("Failed to count the usage of a TenantQuota, will retry", "quota", name, "err", err)
			}
			c.queue.AddRateLimited(name)
		}
		c.queue.Done(name)
	}
}

// forget removes old entries of deleted, and resources that the server did not serve, so that the
// next count checks them again.
func (c *Counter) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, at := range c.deleted {
		if time.Since(at) > rememberDeleted {
			delete(c.deleted, uid)
		}
	}
	for of, informer := range c.informers {
		if informer == nil {
			delete(c.informers, of)
		}
	}
}

func (c *Counter) isDeleted(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, gone := c.deleted[uid]
	return gone
}

// count updates the usage of the quota with the given name. If it is a default quota and the
// tenant has another quota, count deletes it.
func (c *Counter) count(ctx context.Context, name string) error {
	obj, _, err := c.quotas.informer.GetStore().GetByKey(name)
	known, ok := obj.(metav1.Object)
	if err != nil || !ok {
		return err
	}
	siblings, err := c.quotas.quotasOf(tenantOf(obj))
	if err != nil {
		return err
	}
	if isDefault(known) && slices.ContainsFunc(siblings, isOwn) {
		return c.quotas.deleteDefault(ctx, known)
	}
	object, err := typed.FromInformer[v1alpha1.TenantQuota](c.quotas.newest(known))
	if err != nil {
		klog.FromContext(ctx).Error(err, "A TenantQuota is invalid, so its tenant cannot create objects",
			"quota", name, "tenant", tenantOf(obj))
		return nil // a fix causes an event
	}
	was := stateOf(object)
	objects, counted, unknown := c.objects(ctx, object)
	now := time.Now()
	state, used := was.Recount(objects, c.isDeleted, counted, now)
	breakdown := make([]v1alpha1.NamespaceUsage, 0, len(used))
	for _, namespace := range slices.Sorted(maps.Keys(used)) {
		delete(used[namespace], quota.NamespaceCount) // the count of the namespace itself is always 1
		if len(used[namespace]) == 0 {
			continue
		}
		breakdown = append(breakdown, v1alpha1.NamespaceUsage{Namespace: namespace, Used: used[namespace]})
	}
	if soonest := earliest(state.Reserved); !soonest.IsZero() {
		c.queue.AddAfter(name, soonest.Sub(now)+time.Millisecond)
	}
	if upstreamquota.Equals(was.Used, state.Used) && len(was.Reserved) == len(state.Reserved) &&
		equality.Semantic.DeepEqual(object.Status.Namespaces, breakdown) {
		return unknown
	}
	return errors.Join(unknown, c.quotas.write(ctx, was, state, breakdown))
}

func earliest(all []quota.Reservation) time.Time {
	var out time.Time
	for _, r := range all {
		if out.IsZero() || r.Expires.Before(out) {
			out = r.Expires
		}
	}
	return out
}

// objects returns the objects that a quota limits, and the names of the limits whose objects it
// has read. If it cannot read a resource, it omits the limits that depend on this resource and
// returns an error.
func (c *Counter) objects(
	ctx context.Context, q *v1alpha1.TenantQuota,
) (out []quota.CountedObject, counted []corev1.ResourceName, unknown error) {
	own, err := c.namespaces.OwnedBy(q.Spec.Tenant)
	if err != nil {
		return nil, nil, err
	}
	var classes quota.Classes
	if slices.ContainsFunc(slices.Collect(maps.Keys(q.Spec.Hard)), quota.IsDevice) {
		if classes, err = c.quotas.Classes(); err != nil {
			return nil, nil, errCounting
		}
	}
	read := map[schema.GroupResource]bool{}
	for name := range q.Spec.Hard {
		resources := quota.Resources(name)
		ok := len(resources) > 0
		for _, of := range resources {
			if _, done := read[of]; !done {
				objects, err := c.stored(ctx, of, q.Spec.Tenant, own, classes)
				unknown = errors.Join(unknown, err)
				read[of] = err == nil
				out = append(out, objects...)
			}
			ok = ok && read[of]
		}
		if ok {
			counted = append(counted, name)
		}
	}
	return out, counted, unknown
}

// stored returns the objects of a resource in the namespaces of a tenant.
func (c *Counter) stored(
	ctx context.Context, of schema.GroupResource, id string, namespaces []string, classes quota.Classes,
) ([]quota.CountedObject, error) {
	if of == corev1.Resource("namespaces") {
		return c.namespaces.count(id)
	}
	informer, err := c.informer(ctx, of)
	switch {
	case err != nil:
		return nil, err
	case informer == nil:
		return nil, nil
	case !informer.HasSynced():
		return nil, errCounting
	}
	var out []quota.CountedObject
	for _, ns := range namespaces {
		objects, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, ns)
		if err != nil {
			return nil, err
		}
		for _, obj := range objects {
			if o, ok := obj.(*countedObject); ok {
				out = append(out, quota.CountedObject{
					UID:       o.UID,
					Namespace: o.Namespace,
					Version:   o.ResourceVersion,
					Usage:     classes.Extend(o.now()),
				})
			}
		}
	}
	return out, nil
}

// countedObject contains the metadata and the usage of an object.
type countedObject struct {
	metav1.ObjectMeta
	usage corev1.ResourceList
	// deletionEnd is the end of the grace period of an object that is being deleted. Otherwise, it is
	// zero.
	deletionEnd time.Time
	// final is the usage after deletionEnd.
	final corev1.ResourceList
}

// now returns the current usage.
func (o *countedObject) now() corev1.ResourceList {
	if !o.deletionEnd.IsZero() && time.Now().After(o.deletionEnd) {
		return o.final
	}
	return o.usage
}

// informer returns the informer of a resource. It starts a new informer if necessary. It returns
// nil if the server does not serve the resource.
func (c *Counter) informer(ctx context.Context, of schema.GroupResource) (cache.SharedIndexInformer, error) {
	c.mu.Lock()
	known, ok := c.informers[of]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	resource, err := c.mapper.ResourceFor(of.WithVersion(""))
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		resource, err = c.mapper.ResourceFor(of.WithVersion(""))
	}
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	var informer cache.SharedIndexInformer // nil if the server does not serve the resource
	if err == nil {
		informer = dynamicinformer.NewDynamicSharedInformerFactory(c.client, 0).ForResource(resource).Informer()
		if err := informer.SetTransform(func(obj any) (any, error) { return countable(of, obj) }); err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(c.follow()); err != nil {
			return nil, err
		}
		go informer.RunWithContext(ctx)
	}
	c.mu.Lock() // no other goroutine adds an informer, because count does not run concurrently
	defer c.mu.Unlock()
	c.informers[of] = informer
	return informer, nil
}

// countable converts an object of a resource to a [countedObject], so that the informer caches
// only the usage.
func countable(of schema.GroupResource, obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // a tombstone
	}
	out := &countedObject{ObjectMeta: metav1.ObjectMeta{
		Namespace:       u.GetNamespace(),
		Name:            u.GetName(),
		UID:             u.GetUID(),
		ResourceVersion: u.GetResourceVersion(),
	}}
	var err error
	if out.usage, err = quota.Usage(of, u, nil, time.Now()); err != nil {
		return nil, err
	}
	if at, grace := u.GetDeletionTimestamp(), u.GetDeletionGracePeriodSeconds(); at != nil && grace != nil {
		out.deletionEnd = at.Add(time.Duration(*grace) * time.Second)
		out.final, err = quota.Usage(of, u, nil, out.deletionEnd.Add(time.Second))
	}
	return out, err
}

// requeue queues the quotas of a tenant after countAfter.
func (c *Counter) requeue(id string) {
	quotas, err := c.quotas.informer.GetIndexer().IndexKeys(byTenant, id)
	if err != nil {
		return
	}
	for _, q := range quotas {
		c.queue.AddAfter(q, countAfter)
	}
}

// followNamespaces returns a handler that queues the quotas of a tenant when the tenant gains or
// loses a namespace.
func (c *Counter) followNamespaces() cache.ResourceEventHandler {
	changed := func(obj any) {
		if id := labelOf(obj); id != "" {
			c.requeue(id)
		}
	}
	gone := func(obj any) {
		if ns, ok := obj.(*corev1.Namespace); ok {
			c.recordDeleted(ns.UID)
			changed(ns)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, after any) {
			was, _ := before.(*corev1.Namespace)
			now, _ := after.(*corev1.Namespace)
			if was == nil || now == nil || was.UID == now.UID && labelOf(before) == labelOf(after) {
				return
			}
			if changed(before); was.UID != now.UID {
				gone(before)
			}
			changed(after)
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			gone(obj)
		},
	}
}

// follow returns a handler that queues the quotas of a tenant when an object in its namespaces is
// created, deleted or changes its usage.
func (c *Counter) follow() cache.ResourceEventHandler {
	changed := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.requeue(c.namespaces.owner(name.Namespace)) // if the namespace is not known yet, the next cycle adds the object
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, after any) {
			was, _ := before.(*countedObject)
			now, _ := after.(*countedObject)
			if was != nil && now != nil && was.UID != now.UID {
				c.recordDeleted(was.UID)
			}
			if was == nil || now == nil || was.UID != now.UID || !upstreamquota.Equals(was.usage, now.usage) {
				changed(after)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(*countedObject); ok {
				c.recordDeleted(o.UID)
				changed(o)
			}
		},
	}
}

func (c *Counter) recordDeleted(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted[uid] = time.Now()
}

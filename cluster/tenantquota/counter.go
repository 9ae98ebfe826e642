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

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// countAfter gathers the changes of a tenant's objects into one count.
	countAfter = 250 * time.Millisecond
	// countCycle is how often every quota is counted, whatever changed.
	countCycle = time.Minute
	// rememberGone is how long it is known that an object was deleted; a longer
	// reservation waits to expire.
	rememberGone = 15 * time.Minute
)

// errCounting says that the objects are not all known yet.
var errCounting = errors.New("the objects are not all known yet")

// Counter counts what the objects of tenants use, and writes it into their quotas: that gives back
// what was deleted, and what was reserved for a write that was not stored. Of the resources that
// some quota limits, or has limited, it follows all objects.
type Counter struct {
	quotas     *Store
	client     dynamic.Interface
	mapper     meta.ResettableRESTMapper
	namespaces *Namespaces
	queue      workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	counting map[schema.GroupResource]cache.SharedIndexInformer // nil for a kind that the server does not have
	gone     map[types.UID]time.Time
}

// NewCounter returns a counter for quotas that run.
func NewCounter(quotas *Store, mapper meta.ResettableRESTMapper, namespaces *Namespaces) *Counter {
	return &Counter{
		quotas:     quotas,
		client:     quotas.client,
		mapper:     mapper,
		namespaces: namespaces,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second),
		),
		counting: map[schema.GroupResource]cache.SharedIndexInformer{},
		gone:     map[types.UID]time.Time{},
	}
}

// Run counts until ctx ends. Once per Counter. The namespaces must have been read by then.
func (c *Counter) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	add := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.queue.Add(name.Name)
		}
	}
	handler, err := c.quotas.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, is any) { add(is) },
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Quotas are not counted")
		return
	}
	defer func() { _ = c.quotas.informer.RemoveEventHandler(handler) }() // it may have ended
	spaces, err := c.namespaces.informer.AddEventHandler(c.followNamespaces())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Namespaces are not counted")
		return
	}
	defer func() { _ = c.namespaces.informer.RemoveEventHandler(spaces) }()
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
				klog.FromContext(ctx).Info("A quota could not be counted", "quota", name, "err", err)
			}
			c.queue.AddRateLimited(name)
		}
		c.queue.Done(name)
	}
}

// forget drops what was deleted long ago, and looks again for kinds that there were not.
func (c *Counter) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, at := range c.gone {
		if time.Since(at) > rememberGone {
			delete(c.gone, uid)
		}
	}
	for of, informer := range c.counting {
		if informer == nil {
			delete(c.counting, of)
		}
	}
}

func (c *Counter) isGone(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, gone := c.gone[uid]
	return gone
}

// count counts one quota.
func (c *Counter) count(ctx context.Context, name string) error {
	obj, found, err := c.quotas.informer.GetStore().GetByKey(name)
	u, is := obj.(*unstructured.Unstructured)
	if err != nil || !found || !is {
		return err
	}
	was, object, err := stateOf(c.quotas.newest(u))
	if err != nil {
		return err
	}
	if siblings, err := c.quotas.of(object.Spec.Tenant); err != nil {
		return err
	} else if isDefault(u) && !slices.ContainsFunc(siblings, isDefault) {
		return c.quotas.drop(ctx, u) // the tenant has one of its own now
	}
	objects, counted, unknown := c.objects(ctx, object)
	now := time.Now()
	state, used := was.Recount(objects, c.isGone, counted, now)
	breakdown := make([]v1alpha1.NamespaceUsage, 0, len(used))
	for _, namespace := range slices.Sorted(maps.Keys(used)) {
		delete(used[namespace], quota.NamespaceCount) // what a namespace is worth everybody knows
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

// objects returns what the tenant of a quota has of what is limited, and which names that are: of a
// resource that cannot be read now nothing is counted, and the error says so.
func (c *Counter) objects(
	ctx context.Context, q *v1alpha1.TenantQuota,
) (out []quota.Counted, counted []corev1.ResourceName, unknown error) {
	own, err := c.namespaces.Of(q.Spec.Tenant)
	if err != nil {
		return nil, nil, err
	}
	read := map[schema.GroupResource]bool{}
	for name := range q.Spec.Hard {
		of, known := quota.Resource(name)
		if !known {
			continue
		}
		ok, done := read[of]
		if !done {
			objects, err := c.stored(ctx, of, q.Spec.Tenant, own)
			unknown = errors.Join(unknown, err)
			ok, read[of] = err == nil, err == nil
			out = append(out, objects...)
		}
		if ok {
			counted = append(counted, name)
		}
	}
	return out, counted, unknown
}

// stored returns the objects of a resource in the namespaces of a tenant.
func (c *Counter) stored(
	ctx context.Context, of schema.GroupResource, id string, namespaces []string,
) ([]quota.Counted, error) {
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
	var out []quota.Counted
	for _, ns := range namespaces {
		objects, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, ns)
		if err != nil {
			return nil, err
		}
		for _, obj := range objects {
			if o, is := obj.(*countedObject); is {
				out = append(out, quota.Counted{
					UID:       o.UID,
					Namespace: o.Namespace,
					Version:   o.ResourceVersion,
					Usage:     o.now(),
				})
			}
		}
	}
	return out, nil
}

// countedObject is what is kept of an object.
type countedObject struct {
	metav1.ObjectMeta
	usage corev1.ResourceList
	// Where it is being deleted: when it is over, whether or not it goes, and what it uses then.
	over  time.Time
	final corev1.ResourceList
}

// now is what it uses.
func (o *countedObject) now() corev1.ResourceList {
	if !o.over.IsZero() && time.Now().After(o.over) {
		return o.final
	}
	return o.usage
}

// informer returns the informer of a resource, and starts it where it is new; nil for a resource
// that the server does not have, of which there is nothing.
func (c *Counter) informer(ctx context.Context, of schema.GroupResource) (cache.SharedIndexInformer, error) {
	c.mu.Lock()
	known, has := c.counting[of]
	c.mu.Unlock()
	if has {
		return known, nil
	}
	resource, err := c.mapper.ResourceFor(of.WithVersion(""))
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		resource, err = c.mapper.ResourceFor(of.WithVersion(""))
	}
	var informer cache.SharedIndexInformer
	switch {
	case meta.IsNoMatchError(err):
	case err != nil:
		return nil, err
	default:
		informer = dynamicinformer.NewDynamicSharedInformerFactory(c.client, 0).ForResource(resource).Informer()
		if err := informer.SetTransform(func(obj any) (any, error) { return countable(of, obj) }); err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(c.follow()); err != nil {
			return nil, err
		}
		go informer.RunWithContext(ctx)
	}
	c.mu.Lock() // this is the one place that adds, and one count runs at a time
	defer c.mu.Unlock()
	c.counting[of] = informer
	return informer, nil
}

func countable(of schema.GroupResource, obj any) (any, error) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
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
		out.over = at.Add(time.Duration(*grace) * time.Second)
		out.final, err = quota.Usage(of, u, nil, out.over.Add(time.Second))
	}
	return out, err
}

// again counts again what the quotas of a tenant limit.
func (c *Counter) again(id string) {
	quotas, err := c.quotas.informer.GetIndexer().IndexKeys(byTenant, id)
	if err != nil {
		return
	}
	for _, q := range quotas {
		c.queue.AddAfter(q, countAfter)
	}
}

// followNamespaces counts again whose namespaces came or went.
func (c *Counter) followNamespaces() cache.ResourceEventHandler {
	changed := func(obj any) {
		if id := labelOf(obj); id != "" {
			c.again(id)
		}
	}
	gone := func(obj any) {
		if ns, is := obj.(*corev1.Namespace); is {
			c.noteGone(ns.UID)
			changed(ns)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(was, is any) {
			before, _ := was.(*corev1.Namespace)
			now, _ := is.(*corev1.Namespace)
			if before == nil || now == nil || before.UID == now.UID && labelOf(was) == labelOf(is) {
				return
			}
			if changed(was); before.UID != now.UID {
				gone(was)
			}
			changed(is)
		},
		DeleteFunc: func(obj any) {
			if unknown, is := obj.(cache.DeletedFinalStateUnknown); is {
				obj = unknown.Obj
			}
			gone(obj)
		},
	}
}

// follow counts again what changed.
func (c *Counter) follow() cache.ResourceEventHandler {
	changed := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.again(c.namespaces.owner(name.Namespace)) // of a namespace that is not known yet the cycle finds it
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(was, is any) {
			before, _ := was.(*countedObject)
			now, _ := is.(*countedObject)
			if before != nil && now != nil && before.UID != now.UID {
				c.noteGone(before.UID)
			}
			if before == nil || now == nil || before.UID != now.UID || !upstreamquota.Equals(before.usage, now.usage) {
				changed(is)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, is := obj.(cache.DeletedFinalStateUnknown); is {
				obj = unknown.Obj
			}
			if o, is := obj.(*countedObject); is {
				c.noteGone(o.UID)
				changed(o)
			}
		},
	}
}

func (c *Counter) noteGone(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[uid] = time.Now()
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package accessgrant reads the AccessGrants of a cluster for [accessgrant.Grants]. It also writes the
// status of each AccessGrant, which reports whether the grantor still has the rights that it
// grants.
package accessgrant

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// cycle is the interval at which the rights of each grantor are checked. It is also the
	// precision of status.lastUsed.
	cycle = time.Minute
	// recheckAfter is how long a grantor must lack rights before the status reports this. A server
	// may observe an AccessGrant before the RoleBinding that gives the grantor its rights.
	recheckAfter = 3 * time.Second
)

// Controller watches AccessGrants. It adds the valid ones to an index and writes the status of all.
// A grant that does not decode, or that has a field that this release does not know, allows
// nothing.
type Controller struct {
	client       dynamic.Interface
	reads        *reads
	lineage      func(tenant.ID) tenant.Lineage
	now          func() time.Time
	index        *accessgrant.Index
	informer     cache.SharedIndexInformer
	registration atomic.Pointer[cache.ResourceEventHandlerRegistration]
	states       *states

	mu           sync.Mutex
	used         map[cache.ObjectName]time.Time // the time of the last use that is not in the status yet
	lackingSince map[cache.ObjectName]time.Time // when a check first found that the grantor lacks rights
}

// New returns a controller that has no grants until [Controller.Run] or [Controller.Sync] is
// called. lineage returns the history of a tenant ID, see [accessgrant.Grants]. If lineage is nil, no ID
// is reused. If now is nil, the clock is [time.Now].
func New(
	client dynamic.Interface, lineage func(tenant.ID) tenant.Lineage, now func() time.Time,
) (*Controller, error) {
	if now == nil {
		now = time.Now
	}
	informer, err := typed.NewStrictInformer[v1alpha1.AccessGrant](client, accessGrants())
	if err != nil {
		return nil, err
	}
	return &Controller{
		client: client,
		reads: newReads(func(ctx context.Context, name cache.ObjectName) (*accessgrant.Grant, error) {
			return read(ctx, client, name)
		}),
		lineage:      lineage,
		now:          now,
		index:        accessgrant.NewIndex(),
		informer:     informer,
		states:       newStates(),
		used:         map[cache.ObjectName]time.Time{},
		lackingSince: map[cache.ObjectName]time.Time{},
	}, nil
}

func accessGrants() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants)
}

// Grants returns the grants for the boundary of package authz. Each grant is read from the server
// before it allows a request.
func (c *Controller) Grants() *accessgrant.Grants {
	return &accessgrant.Grants{
		Index:   c.index,
		Live:    c.reads.readLive,
		Lineage: c.lineage,
		Now:     c.now,
		Used:    c.recordUse,
	}
}

// Run watches the grants and writes their status until ctx ends. It must be called only once. Run
// uses auth to check whether grantors have the rights that they grant. It calls changed with the
// namespace of each grant that was deleted or was changed so that it may allow different requests.
func (c *Controller) Run(ctx context.Context, auth authorizer.Authorizer, changed func(namespace string)) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	defer queue.ShutDown()
	handled, err := c.informer.AddEventHandler(c.handler(ctx, queue.Add, changed))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to watch AccessGrants")
		return
	}
	c.registration.Store(&handled)
	go c.informer.RunWithContext(ctx)
	go wait.UntilWithContext(ctx, func(context.Context) {
		c.updateStates()
		for _, key := range c.informer.GetStore().ListKeys() {
			if name, err := cache.ParseObjectName(key); err == nil {
				queue.Add(name)
			}
		}
	}, cycle)
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		err := c.writeStatus(ctx, auth, name)
		if errors.Is(err, errRecheck) {
			queue.Forget(name)
			queue.AddAfter(name, recheckAfter)
		} else if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Failed to update the status of an AccessGrant, will retry", "grant", name, "err", err)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// handler returns the event handler of the informer. It calls enqueue for each new or changed
// grant. It calls changed with the namespace of a grant that was deleted or was changed so that it
// may allow different requests.
func (c *Controller) handler(
	ctx context.Context, enqueue func(cache.ObjectName), changed func(namespace string),
) cache.ResourceEventHandler {
	add := func(obj any) {
		if object, ok := obj.(metav1.Object); ok {
			c.set(ctx, object)
			c.states.set(cache.MetaObjectToName(object), stateOf(obj, c.now()))
			enqueue(cache.MetaObjectToName(object))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: add,
		UpdateFunc: func(before, after any) {
			add(after)
			if object, ok := after.(metav1.Object); ok && !sameRights(before, after) {
				changed(object.GetNamespace())
			}
		},
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				c.index.Delete(name.Namespace, name.Name)
				c.states.set(name, "")
				changed(name.Namespace)
				c.popUse(name)
				c.clearLacking(name)
			}
		},
	}
}

// HasSynced reports whether the grants that existed when Run began are in the index, and not only
// in the cache of the informer.
func (c *Controller) HasSynced() bool {
	handled := c.registration.Load()
	return handled != nil && (*handled).HasSynced()
}

// Sync adds the current grants to the index once. Use it instead of [Controller.Run] for a snapshot
// of a cluster.
func (c *Controller) Sync(ctx context.Context) error {
	list, err := c.client.Resource(accessGrants()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		c.set(ctx, typed.Strict[v1alpha1.AccessGrant](&list.Items[i]))
	}
	return nil
}

// set adds a grant to the index, or removes it from the index if it allows nothing.
func (c *Controller) set(ctx context.Context, object metav1.Object) {
	valid, err := grantOf(object)
	if err != nil {
		klog.FromContext(ctx).Info("An AccessGrant is invalid and allows nothing",
			"grant", cache.MetaObjectToName(object), "err", err)
	}
	if valid == nil {
		c.index.Delete(object.GetNamespace(), object.GetName())
		return
	}
	c.index.Set(valid)
}

// recordUse records the time at which a grant was used.
func (c *Controller) recordUse(used *accessgrant.Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used[cache.NewObjectName(used.Namespace, used.Name)] = c.now()
}

// Package accessgrant follows the AccessGrants of a cluster for the boundary, and keeps their
// status: whether the grantor may still do itself what it grants.
package accessgrant

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz/grant"
	"github.com/kubetenant/kubetenant/internal/listinformer"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// cycle is the time after which each grant's grantor is checked again, and the precision of
// status.lastUsed.
const (
	cycle = time.Minute
	// doubt is how long a grantor must not be allowed before that is written: a server learns of a
	// RoleBinding and of the grant that was made with it in no order.
	doubt = 3 * time.Second
)

// Controller follows the AccessGrants that a client sees.
type Controller struct {
	client   dynamic.Interface
	reads    *reads
	lineage  func(tenant.ID) tenant.Lineage
	now      func() time.Time
	index    *grant.Index
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	used    map[cache.ObjectName]time.Time // since the last look
	doubted map[cache.ObjectName]time.Time // since when a grantor seems not to be allowed any more
}

// New returns a controller that knows nothing before [Controller.Run] or [Controller.Sync]. lineage
// tells who has the names of tenants, see [grant.Grants]. A nil now is time.Now.
func New(client dynamic.Interface, lineage func(tenant.ID) tenant.Lineage, now func() time.Time) *Controller {
	if now == nil {
		now = time.Now
	}
	return &Controller{
		client: client,
		reads: newReads(func(ctx context.Context, name cache.ObjectName) (*grant.Grant, error) {
			return read(ctx, client, name)
		}),
		lineage:  lineage,
		now:      now,
		index:    grant.NewIndex(),
		informer: listinformer.New(client, accessGrants()),
		used:     map[cache.ObjectName]time.Time{},
		doubted:  map[cache.ObjectName]time.Time{},
	}
}

func accessGrants() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants)
}

// Grants are what a boundary asks: those that count, each read again live before it does.
func (g *Controller) Grants() *grant.Grants {
	return &grant.Grants{
		Index:   g.index,
		Live:    g.reads.live,
		Lineage: g.lineage,
		Now:     g.now,
		Used:    g.noteUse,
	}
}

// Run follows the grants, and writes their status, until ctx ends. may says what grantors may do
// themselves. changed is told of the namespace of each grant that allows something else than
// before, or nothing any more. Once per Controller.
func (g *Controller) Run(ctx context.Context, may authorizer.Authorizer, changed func(namespace string)) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	defer queue.ShutDown()
	informer := g.informer
	if _, err := informer.AddEventHandler(g.handler(ctx, queue.Add, changed)); err != nil {
		klog.FromContext(ctx).Error(err, "Grants are not followed")
		return
	}
	go informer.RunWithContext(ctx)
	go wait.UntilWithContext(ctx, func(context.Context) {
		for _, obj := range informer.GetStore().List() {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				queue.Add(cache.MetaObjectToName(u))
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
		err := g.writeStatus(ctx, may, name)
		if errors.Is(err, errDoubted) {
			queue.Forget(name)
			queue.AddAfter(name, doubt)
		} else if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("The status of a grant could not be written", "grant", name, "err", err)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// handler takes over what an informer tells of grants.
func (g *Controller) handler(
	ctx context.Context, look func(cache.ObjectName), changed func(namespace string),
) cache.ResourceEventHandler {
	add := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			g.set(ctx, u)
			look(cache.MetaObjectToName(u))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: add,
		UpdateFunc: func(was, is any) {
			add(is)
			before, _ := was.(*unstructured.Unstructured)
			now, _ := is.(*unstructured.Unstructured)
			if before != nil && now != nil && !sameRights(before, now) {
				changed(now.GetNamespace())
			}
		},
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				g.index.Delete(name.Namespace, name.Name)
				changed(name.Namespace)
				g.takeUse(name)
				g.trusts(name)
			}
		},
	}
}

// HasSynced reports whether the grants that there were when Run began are known.
func (g *Controller) HasSynced() bool { return g.informer.HasSynced() }

// Sync takes over the grants as they are now, once: for a cluster that does not change.
func (g *Controller) Sync(ctx context.Context) error {
	list, err := g.client.Resource(accessGrants()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		g.set(ctx, &list.Items[i])
	}
	return nil
}

// set indexes a grant that counts.
func (g *Controller) set(ctx context.Context, u *unstructured.Unstructured) {
	counts, err := grantOf(u)
	if err != nil {
		klog.FromContext(ctx).Info("A grant is not understood and counts for nothing", "namespace", u.GetNamespace(),
			"grant", u.GetName(), "err", err)
	}
	if counts == nil {
		g.index.Delete(u.GetNamespace(), u.GetName())
		return
	}
	g.index.Set(counts)
}

// noteUse remembers that a grant was used.
func (g *Controller) noteUse(used *grant.Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used[cache.NewObjectName(used.Namespace, used.Name)] = g.now()
}

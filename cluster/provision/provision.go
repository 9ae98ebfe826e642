// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package provision creates the content that a Tenant specifies in each of the tenant's namespaces,
// such as the RoleBindings of the tenant's admins. It also prepares namespaces that are created
// later. It restores managed objects that were changed, and deletes managed objects that the Tenant
// no longer specifies.
package provision

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// workers is the number of workers of each queue of namespaces. A worker waits up to 100 ms for
	// each read of a namespace, because consistent reads from the watch cache can take this long
	// (KEP-2340). With this number of workers, the engine can still use the whole write rate. One
	// tenant never occupies the last sparedWorkers workers of a queue.
	workers       = 20
	sparedWorkers = 2
	// statusWorkers is the number of workers that write TenantQuotas and the statuses of Tenants.
	statusWorkers = 4
	// writesPerSecond is the maximum rate of all writes together.
	writesPerSecond = 200
	// pagesPerSecond is the maximum rate of the list requests that the drift checks send.
	pagesPerSecond = 1
	// retryAtFirst and retryAtLast are the first and the longest delay before a retry.
	retryAtFirst = 100 * time.Millisecond
	retryAtLast  = time.Minute
	// driftEvery is the interval at which the engine checks whether managed objects have changed.
	driftEvery = 10 * time.Minute
	// inputTimeout is the maximum time that the engine waits at its start until templates,
	// TenantMembers and Publications have been read.
	inputTimeout = 10 * time.Second
	// statusAfter is the delay before a status is written, so that one write covers several changes.
	statusAfter = time.Second
)

// Definitions reports which definitions of the project's kinds cannot be used.
type Definitions interface {
	// Undefined returns the problem of a resource's definition, or "" if the definition can be used.
	Undefined(resource string) string
	// OnChange calls f when the problems change, until stop is called.
	OnChange(f func()) (stop func())
}

// Options configure an [Engine]. All fields are required, except DerivesRights, Unseen, Rules,
// Published and Shared.
type Options struct {
	// Client and Dynamic write as [tenant.ManagerUser].
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Tenants reads the Tenants. It must be running.
	Tenants *tenants.Store
	// Namespaces is the informer of all Namespaces.
	Namespaces cache.SharedIndexInformer
	// Owned returns the names of the namespaces whose label [tenant.Label] has the given value.
	Owned func(label string) ([]string, error)
	// OwnerOf returns the tenant that owns a Namespace. See package authz.
	OwnerOf     func(*corev1.Namespace) tenant.ID
	Definitions Definitions
	// DerivesRights reports whether the server gives tenants' callers the ClusterRoles of
	// [tenants.Rights] without bindings. If so, the engine creates these ClusterRoles. If nil,
	// the engine does not create them.
	DerivesRights func() bool
	// Metadata reads the metadata of the objects that may be published, as [tenant.ManagerUser].
	Metadata metadata.Interface
	// Unseen is a namespace in which admission does not check all writes. The engine does not
	// publish objects from this namespace. If empty, admission checks the writes in all
	// namespaces.
	Unseen string
	// Rules returns the rules for Publications. If nil, only the built-in kinds may be published.
	Rules func() *publication.Rules
	// Published contains the metrics about Publications. If nil, the engine does not set them.
	Published *PublicationMetrics
	// Shared returns the cluster-scoped resources that the configuration shares with all tenants.
	// If nil, no resources are shared.
	Shared func() []schema.GroupResource
}

// Engine prepares namespaces. Only one Engine of a cluster may run at a time.
type Engine struct {
	Options
	lister    corelisters.NamespaceLister
	subjects  rolebinding.Subjects
	tenants   typed.Client[v1alpha1.Tenant, *v1alpha1.Tenant]
	quotas    typed.Client[v1alpha1.TenantQuota, *v1alpha1.TenantQuota]
	writes    *writeQueue
	pages     flowcontrol.RateLimiter // limits the rate of list requests of the drift checks
	published *publisher
	events    *tenants.Recorder

	revocations *queue                                          // namespaces that may have rights to revoke
	unprepared  *queue                                          // namespaces that are not recorded as prepared
	updates     *queue                                          // other namespaces that may need changes
	statuses    workqueue.TypedRateLimitingInterface[tenant.ID] // Tenants whose status may have changed

	comparing sync.Mutex
	granted   map[tenant.ID][]uint64 // hashes of the rights that each Tenant gave after its last change
	seed      maphash.Seed           // seed of the hashes in granted

	mu      sync.Mutex
	busy    map[string]bool    // namespaces that a worker processes
	failed  map[string]error   // the error of the last attempt, keyed by namespace
	drifted map[string]bool    // namespaces to check even if they are marked as prepared
	managed map[tenant.ID]bool // tenants whose last observed TenantQuota was managed
}

// New returns an engine that does nothing until [Engine.Run] is called.
func New(o Options) *Engine {
	e := &Engine{
		Options:  o,
		lister:   corelisters.NewNamespaceLister(o.Namespaces.GetIndexer()),
		tenants:  typed.NewClient[v1alpha1.Tenant](o.Dynamic, resourceOf(v1alpha1.ResourceTenants)),
		quotas:   typed.NewClient[v1alpha1.TenantQuota](o.Dynamic, resourceOf(v1alpha1.ResourceTenantQuotas)),
		busy:     map[string]bool{},
		failed:   map[string]error{},
		drifted:  map[string]bool{},
		managed:  map[tenant.ID]bool{},
		writes:   newWriteQueue(flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond)),
		granted:  map[tenant.ID][]uint64{},
		seed:     maphash.MakeSeed(),
		statuses: newStatusQueue(),
		pages:    flowcontrol.NewTokenBucketRateLimiter(pagesPerSecond, 1),
	}
	e.published = newPublisher(e)
	e.revocations = newQueue(workers, e.ownerOf)
	e.unprepared = newQueue(workers, e.ownerOf)
	e.updates = newQueue(workers, e.ownerOf)
	e.subjects.ReferencedOwner = func(_ context.Context, _ tenant.ID, name string) (tenant.ID, error) {
		return e.ownerOf(name), nil
	}
	return e
}

func resourceOf(name string) schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(name)
}

// ownerOf returns the tenant that owns the namespace with the given name, or the zero ID if the
// namespace is unknown or unowned.
func (e *Engine) ownerOf(name string) tenant.ID {
	ns, err := e.lister.Get(name)
	if err != nil {
		return tenant.ID{}
	}
	return e.OwnerOf(ns)
}

func newStatusQueue() workqueue.TypedRateLimitingInterface[tenant.ID] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[tenant.ID](retryAtFirst, retryAtLast)
	return workqueue.NewTypedRateLimitingQueue(limiter)
}

var errSync = errors.New("the caches of namespaces, Tenants and their objects did not sync")

// Run prepares namespaces until ctx ends. It must be called only once. It fails if the caches do
// not sync.
func (e *Engine) Run(ctx context.Context) error {
	shutDown := func() {
		e.revocations.ShutDown()
		e.unprepared.ShutDown()
		e.updates.ShutDown()
		e.statuses.ShutDown()
	}
	defer shutDown()
	if !cache.WaitForCacheSync(ctx.Done(), e.Namespaces.HasSynced, e.Tenants.HasSynced) {
		return errSync
	}
	events, stopEvents := tenants.NewRecorder(ctx, e.Client)
	defer stopEvents()
	e.events = events
	e.awaitInputs(ctx)
	namespaces, err := e.Namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    e.namespaceAdded,
		UpdateFunc: e.namespaceUpdated,
		DeleteFunc: e.namespaceDeleted,
	})
	if err != nil {
		return err
	}
	defer func() { _ = e.Namespaces.RemoveEventHandler(namespaces) }()
	stop, err := e.Tenants.Follow(e.tenantChanged)
	if err != nil {
		return err
	}
	defer stop()
	e.Tenants.OnInputChange(e.tenantChanged)
	defer e.Tenants.OnInputChange(nil)
	defer e.Definitions.OnChange(func() {
		for _, id := range e.Tenants.IDs() {
			e.queueStatus(id)
		}
	})()
	var running sync.WaitGroup
	running.Go(func() { e.writes.run(ctx) })
	for range workers {
		running.Go(func() { work(ctx, e.revocations, retryVerbosity, e.revokeFirst) })
		running.Go(func() { work(ctx, e.unprepared, retryVerbosity, e.prepare) })
		running.Go(func() { work(ctx, e.updates, retryVerbosity, e.prepare) })
	}
	for range statusWorkers {
		running.Go(func() { work(ctx, e.statuses, 0, e.writeStatus) })
	}
	running.Go(func() { e.published.run(ctx) })
	running.Go(func() { wait.UntilWithContext(ctx, e.checkDrift, driftEvery) })
	running.Go(func() { wait.UntilWithContext(ctx, e.checkObjectDrift, driftEvery) })
	running.Go(func() { e.followRights(ctx) })
	<-ctx.Done()
	shutDown()
	running.Wait()
	return nil
}

// awaitInputs waits at most inputTimeout until the templates, the TenantMembers, and the
// Publications with their sources have been read. The engine works without them, but it changes
// nothing in the namespaces of a tenant whose TenantMembers it cannot read.
func (e *Engine) awaitInputs(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, inputTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(soon.Done(), e.Tenants.InputsSynced) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Cannot read NamespaceTemplates, TenantMembers and Publications, the objects in " +
			"namespaces of tenants that need them stay as they are until they can be read")
	}
	e.published.resolveAll(soon)
}

// retryVerbosity is the log verbosity of errors that the status of a Tenant or an event also
// reports. Other errors are reported only in the log, with verbosity 0.
const retryVerbosity = 2

// workQueue is the part of a queue that its workers use.
type workQueue[T any] interface {
	Get() (item T, shutdown bool)
	Done(item T)
	AddRateLimited(item T)
	Forget(item T)
}

// work processes the items of a queue until it is shut down. It logs each failure and retries the
// item later.
func work[T any](ctx context.Context, queue workQueue[T], verbosity int, do func(context.Context, T) error) {
	for {
		item, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := do(ctx, item); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(verbosity).Info("Failed to provision the objects of a Tenant or to update its status, "+
				"will retry",
				"for", item, "err", err)
			queue.AddRateLimited(item)
		} else {
			queue.Forget(item)
		}
		queue.Done(item)
	}
}

func (e *Engine) namespaceAdded(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		e.prepareSoon(ns)
		e.ownerChanged(e.OwnerOf(ns))
	}
}

// prepareSoon queues a tenant's namespace. New namespaces, which are not recorded as prepared,
// have a separate queue, so that they do not wait for updates of other namespaces.
func (e *Engine) prepareSoon(ns *corev1.Namespace) {
	if ns.Labels[tenant.Label] == "" {
		return
	}
	if ns.Annotations[tenant.PreparedAnnotation] == "" {
		e.unprepared.Add(ns.Name)
	} else {
		e.updates.Add(ns.Name)
	}
}

func (e *Engine) namespaceUpdated(was, is any) {
	before, _ := was.(*corev1.Namespace)
	now, _ := is.(*corev1.Namespace)
	if before == nil || now == nil {
		return
	}
	if before.UID != now.UID || before.Labels[tenant.Label] != now.Labels[tenant.Label] {
		e.ownerChanged(e.OwnerOf(before))
		e.namespaceAdded(now)
	} else if losesKeystoneRoles(before, now) {
		e.revocations.Add(now.Name)
	} else if !maps.Equal(before.Labels, now.Labels) ||
		before.Annotations[tenant.PreparedAnnotation] != now.Annotations[tenant.PreparedAnnotation] ||
		before.Annotations[tenant.GivenLabelsAnnotation] != now.Annotations[tenant.GivenLabelsAnnotation] ||
		before.Annotations[tenant.KeystoneAnnotation] != now.Annotations[tenant.KeystoneAnnotation] ||
		!before.DeletionTimestamp.Equal(now.DeletionTimestamp) {
		e.prepareSoon(now)
	}
}

// ownerChanged queues the status of a tenant that gained or lost a namespace. If its Tenant or
// TenantMembers name service accounts, it also queues all namespaces of the tenant. A service
// account belongs to the owner of its namespace, so it may now have another tenant.
func (e *Engine) ownerChanged(id tenant.ID) {
	if id.IsZero() || id.IsSystem() {
		return
	}
	t, _ := e.Tenants.Tenant(id)
	members, _ := e.Tenants.Members(id)
	if t != nil && hasServiceAccounts(&t.Spec) || members != nil && anyServiceAccount(members.Spec.Bindings) {
		e.tenantChanged(id)
	}
	e.queueStatus(id)
}

func (e *Engine) namespaceDeleted(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		e.setResult(ns.Name, nil)
		e.ownerChanged(e.OwnerOf(ns))
	}
}

func (e *Engine) tenantChanged(id tenant.ID) {
	names, err := e.Owned(id.String())
	if err != nil {
		klog.Background().Error(err, "Failed to list the namespaces of a tenant", "tenant", id)
	}
	next := e.updates
	if len(names) > 0 && e.losesRights(id) {
		next = e.revocations
	}
	for _, name := range names {
		next.Add(name)
	}
	e.queueStatus(id)
}

// queueStatus queues an update of the status of a tenant's Tenant.
func (e *Engine) queueStatus(id tenant.ID) {
	if !id.IsZero() && !id.IsSystem() {
		e.statuses.AddAfter(id, statusAfter)
	}
}

// setResult records the error of the last attempt to prepare a namespace. If err is nil, it removes
// the recorded error and the drift mark.
func (e *Engine) setResult(namespace string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.failed[namespace] = err
		return
	}
	delete(e.failed, namespace)
	delete(e.drifted, namespace)
}

// begin reserves a namespace for the caller until end is called. It returns false if another worker
// has reserved the namespace.
func (e *Engine) begin(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy[name] {
		return false
	}
	e.busy[name] = true
	return true
}

func (e *Engine) end(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.busy, name)
}

// popDrifted reports whether a namespace is marked as drifted, and removes the mark.
func (e *Engine) popDrifted(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	drifted := e.drifted[name]
	delete(e.drifted, name)
	return drifted
}

func (e *Engine) markDrifted(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drifted[name] = true
}

// failures returns the recorded errors for the namespaces with the given names, sorted by name.
func (e *Engine) failures(names []string) (failed []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		if err := e.failed[name]; err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", name, err))
		}
	}
	slices.Sort(failed)
	return failed
}

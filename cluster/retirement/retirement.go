// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package retirement deletes tenants. A finalizer retains a deleted Tenant until the objects of
// its tenant are deleted. With the deletion policy Orphan, the namespaces of the tenant remain.
// Each step of the deletion can be repeated, so another process can continue the deletion at any
// time. After the deletion, a RetiredTenant reserves the ID, so that a later tenant with this ID
// inherits nothing.
package retirement

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// writesPerSecond is the maximum rate of writes.
	writesPerSecond = 50
	// retryAtFirst and retryAtLast are the first and the longest delay before a retry.
	retryAtFirst = 100 * time.Millisecond
	retryAtLast  = time.Minute
)

// Options configure the engine. All fields are required.
type Options struct {
	// Client and Dynamic write as [tenant.ManagerUser]. They MUST read from the server and not from a
	// cache.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Tenants reads the Tenants. It must be running.
	Tenants *tenants.Store
	// IsReserved reports whether a namespace is a system namespace, which is not deleted with a
	// tenant. See package authz.
	IsReserved func(namespace string) bool
	// Undefined returns the problem of a resource's definition, or "" if the definition can be used.
	Undefined func(resource string) string
	// References returns the bindings that name a tenant, except RoleBindings in namespaces of
	// tenants. See [tenants.References].
	References func(ctx context.Context, id tenant.ID, namespaces []string) ([]string, error)
}

// Engine deletes tenants. Only one Engine of a cluster may run at a time.
type Engine struct {
	Options
	writes  flowcontrol.RateLimiter
	queue   workqueue.TypedRateLimitingInterface[string] // names of Tenants
	begun   map[string]time.Time                         // when this process started deletions, keyed by UID
	events  *tenants.Recorder
	tenants typed.Client[v1alpha1.Tenant, *v1alpha1.Tenant]
	retired typed.Client[v1alpha1.RetiredTenant, *v1alpha1.RetiredTenant]
	quotas  typed.Client[v1alpha1.TenantQuota, *v1alpha1.TenantQuota]
	members typed.Client[v1alpha1.TenantMembers, *v1alpha1.TenantMembers]
	usages  typed.Client[v1alpha1.TenantUsage, *v1alpha1.TenantUsage]
}

// New returns an engine that does nothing until [Engine.Run] is called.
func New(o Options) *Engine {
	return &Engine{
		Options: o,
		writes:  flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond),
		begun:   map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast),
		),
		tenants: typed.NewClient[v1alpha1.Tenant](o.Dynamic, resource(v1alpha1.ResourceTenants)),
		retired: typed.NewClient[v1alpha1.RetiredTenant](o.Dynamic, resource(v1alpha1.ResourceRetiredTenants)),
		quotas:  typed.NewClient[v1alpha1.TenantQuota](o.Dynamic, resource(v1alpha1.ResourceTenantQuotas)),
		members: typed.NewClient[v1alpha1.TenantMembers](o.Dynamic, resource(v1alpha1.ResourceTenantMembers)),
		usages:  typed.NewClient[v1alpha1.TenantUsage](o.Dynamic, resource(v1alpha1.ResourceTenantUsages)),
	}
}

var errSync = errors.New("the cache of Tenants did not sync")

// Run deletes tenants until ctx ends. It must be called only once. It fails if the cache of
// Tenants does not sync.
func (e *Engine) Run(ctx context.Context) error {
	defer e.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), e.Tenants.HasSynced) {
		return errSync
	}
	events, stopEvents := tenants.NewRecorder(ctx, e.Client)
	defer stopEvents()
	e.events = events
	stop, err := e.Tenants.FollowObjects(func(t metav1.Object) {
		if t.GetDeletionTimestamp() != nil || !hasFinalizer(t) {
			e.queue.Add(t.GetName())
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	go func() {
		<-ctx.Done()
		e.queue.ShutDown()
	}()
	for {
		name, shutdown := e.queue.Get()
		if shutdown {
			return nil
		}
		again, err := e.reconcile(ctx, name)
		switch {
		case err != nil && ctx.Err() == nil:
			klog.FromContext(ctx).Info("Failed to continue the deletion of a Tenant, will retry", "tenant", name, "err", err)
			e.queue.AddRateLimited(name)
		case again > 0:
			e.queue.Forget(name)
			e.queue.AddAfter(name, again)
		default:
			e.queue.Forget(name)
		}
		e.queue.Done(name)
	}
}

func resource(name string) schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(name)
}

// hasFinalizer reports whether a Tenant has the finalizer of the engine.
func hasFinalizer(t metav1.Object) bool { return slices.Contains(t.GetFinalizers(), tenant.Finalizer) }

// reconcile does the next steps for the Tenant with the given name. It returns the time until the
// next check, or zero if no check is needed.
func (e *Engine) reconcile(ctx context.Context, name string) (time.Duration, error) {
	t, err := e.tenants.Get(ctx, cache.ObjectName{Name: name})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	var invalid *typed.Invalid
	if errors.As(err, &invalid) {
		return 0, e.reconcileInvalid(ctx, invalid)
	}
	if err != nil {
		return 0, err
	}
	if t.DeletionTimestamp == nil {
		return 0, e.addFinalizer(ctx, t)
	}
	if !hasFinalizer(t) {
		return 0, nil // only finalizers of other programs remain
	}
	definitionEnds, err := e.isDefinitionDeleted(ctx, t)
	if err != nil {
		return 0, err
	}
	id, _ := tenants.AccessOf(t)
	if definitionEnds || id.IsZero() { // only the Tenant object is deleted
		return 0, e.removeFinalizer(ctx, t)
	}
	return (&deletion{Engine: e, id: id, t: t}).proceed(ctx)
}

// reconcileInvalid retains the finalizer of a Tenant that does not decode, even while the Tenant
// is being deleted. Its ID and its deletion policy are unknown. If the Tenant is deleted with its
// CustomResourceDefinition, reconcileInvalid removes the finalizer.
func (e *Engine) reconcileInvalid(ctx context.Context, t *typed.Invalid) error {
	if t.DeletionTimestamp == nil {
		return e.addFinalizer(ctx, t)
	}
	if !hasFinalizer(t) {
		return nil
	}
	definitionEnds, err := e.isDefinitionDeleted(ctx, t)
	if err != nil {
		return err
	}
	if definitionEnds {
		return e.removeFinalizer(ctx, t)
	}
	return t
}

// isDefinitionDeleted reports whether a Tenant is deleted with its CustomResourceDefinition,
// which is being deleted or does not exist. It also returns true if the Tenant is older than the
// definition, because the Tenant was then deleted with an earlier definition.
func (e *Engine) isDefinitionDeleted(ctx context.Context, t metav1.Object) (bool, error) {
	name := resource(v1alpha1.ResourceTenants).GroupResource().String()
	definition, err := e.Dynamic.Resource(tenants.Definitions()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	tenantCreated, created := t.GetCreationTimestamp(), definition.GetCreationTimestamp()
	return definition.GetDeletionTimestamp() != nil || tenantCreated.Before(&created), nil
}

// addFinalizer adds the finalizer if the Tenant does not have it, for example because the Tenant
// was created without the admission plugin.
func (e *Engine) addFinalizer(ctx context.Context, t metav1.Object) error {
	if hasFinalizer(t) {
		return nil
	}
	return e.setFinalizers(ctx, t, append(slices.Clip(t.GetFinalizers()), tenant.Finalizer))
}

// removeFinalizer removes the finalizer. The server then deletes the Tenant, unless it has other
// finalizers.
func (e *Engine) removeFinalizer(ctx context.Context, t metav1.Object) error {
	others := slices.DeleteFunc(slices.Clone(t.GetFinalizers()), func(f string) bool { return f == tenant.Finalizer })
	return ignoreNotFound(e.setFinalizers(ctx, t, others))
}

// setFinalizers writes the finalizers of a Tenant. It fails with a conflict if the Tenant has
// changed since it was read.
func (e *Engine) setFinalizers(ctx context.Context, t metav1.Object, finalizers []string) error {
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	_, err := e.tenants.PatchRead(ctx, t, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	return err
}

// recordEvent records an event if the reason or the status of the condition has changed.
func (e *deletion) recordEvent(now metav1.Condition) {
	was := meta.FindStatusCondition(e.t.Status.Conditions, now.Type)
	if was != nil && was.Reason == now.Reason && was.Status == now.Status {
		return
	}
	kind := corev1.EventTypeNormal
	if now.Type == v1alpha1.ConditionDeletionHeld || now.Reason == v1alpha1.ReasonStuck ||
		now.Reason == v1alpha1.ReasonDefinition {
		kind = corev1.EventTypeWarning
	}
	e.events.Event(v1alpha1.KindTenant, e.t, kind, &now)
}

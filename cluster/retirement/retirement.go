// Package retirement ends tenants. A Tenant that is deleted stays until all that was its tenant's
// has gone, in an order that can be taken up again after any step; what it leaves is a
// RetiredTenant, by which nobody inherits anything with its name.
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// writesPerSecond bounds what is written.
	writesPerSecond = 50
	// retryAtFirst and retryAtLast are after how long what failed is tried again.
	retryAtFirst = 100 * time.Millisecond
	retryAtLast  = time.Minute
)

// Options configure the engine. All fields are required.
type Options struct {
	// Client and Dynamic write as [tenant.ManagerUser]. What they read is what the server has,
	// not what anybody remembers.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Tenants must be followed.
	Tenants *tenants.Store
	// IsReserved reports whether a namespace must not be deleted with a tenant. See package authz.
	IsReserved func(namespace string) bool
	// Undefined returns the problem of a resource's definition, or "" if the definition can be used.
	Undefined func(resource string) string
	// References returns what in the system tenant's space names a tenant, see [tenants.References].
	References func(ctx context.Context, id tenant.ID, namespaces []string) ([]string, error)
}

// Engine ends tenants. One at a time may of a cluster.
type Engine struct {
	Options
	writes flowcontrol.RateLimiter
	queue  workqueue.TypedRateLimitingInterface[string] // names of Tenants
	begun  map[string]time.Time                         // by UID, which deletions this process has begun
	events *tenants.Recorder
}

// New returns an engine that does nothing before [Engine.Run].
func New(o Options) *Engine {
	return &Engine{
		Options: o,
		writes:  flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond),
		begun:   map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast),
		),
	}
}

var errSync = errors.New("the Tenants could not be read")

// Run ends tenants until ctx ends. Once per Engine. The error says that it could not begin.
func (e *Engine) Run(ctx context.Context) error {
	defer e.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), e.Tenants.HasSynced) {
		return errSync
	}
	events, stopEvents := tenants.NewRecorder(ctx, e.Client)
	defer stopEvents()
	e.events = events
	stop, err := e.Tenants.FollowObjects(func(u *unstructured.Unstructured) {
		if u.GetDeletionTimestamp() != nil || !isFinal(u) {
			e.queue.Add(u.GetName())
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
		again, err := e.look(ctx, name)
		switch {
		case err != nil && ctx.Err() == nil:
			klog.FromContext(ctx).Info("A Tenant that is deleted could not be taken further", "tenant", name, "err", err)
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

func resource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
}

// isFinal reports whether a Tenant bears the finalizer.
func isFinal(u *unstructured.Unstructured) bool {
	return slices.Contains(u.GetFinalizers(), tenant.Finalizer)
}

// look does what is due for the Tenant of a name, and returns after how long it is to be
// looked at again, zero for not.
func (e *Engine) look(ctx context.Context, name string) (time.Duration, error) {
	u, err := e.Dynamic.Resource(resource()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, err
	case u.GetDeletionTimestamp() == nil:
		return 0, e.hold(ctx, u)
	case !isFinal(u):
		return 0, nil // somebody else's finalizer
	}
	ends, err := e.definitionEnds(ctx, u)
	if err != nil {
		return 0, err
	}
	id, _ := tenants.AccessOf(u)
	if ends || id.IsZero() { // nobody asked for a tenant's end
		return 0, e.release(ctx, u)
	}
	t, err := tenants.TenantOf(u)
	if err != nil {
		return 0, err
	}
	return (&end{
		Engine: e,
		id:     id,
		t:      t,
		u:      u,
	}).proceed(ctx)
}

// definitionEnds reports whether a Tenant goes since its definition does, or
// went with the one before.
func (e *Engine) definitionEnds(ctx context.Context, u *unstructured.Unstructured) (bool, error) {
	name := resource().GroupResource().String()
	definition, err := e.Dynamic.Resource(tenants.Definitions()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	made, created := u.GetCreationTimestamp(), definition.GetCreationTimestamp()
	return definition.GetDeletionTimestamp() != nil || made.Before(&created), nil
}

// hold puts the finalizer on a Tenant that is older than the plugin that does.
func (e *Engine) hold(ctx context.Context, u *unstructured.Unstructured) error {
	if isFinal(u) {
		return nil
	}
	u.SetFinalizers(append(u.GetFinalizers(), tenant.Finalizer))
	return e.update(ctx, u)
}

// release takes it off: the Tenant is gone then, unless somebody else holds it.
func (e *Engine) release(ctx context.Context, u *unstructured.Unstructured) error {
	u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == tenant.Finalizer }))
	err := e.update(ctx, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// update writes a Tenant as it was read, and fails where it has changed since.
func (e *Engine) update(ctx context.Context, u *unstructured.Unstructured) error {
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	_, err := e.Dynamic.Resource(resource()).Update(ctx, u, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

// tell records an event where what is being done, or why nothing is, is another than before.
func (e *end) tell(now metav1.Condition) {
	was := meta.FindStatusCondition(e.t.Status.Conditions, now.Type)
	if was != nil && was.Reason == now.Reason && was.Status == now.Status {
		return
	}
	kind := corev1.EventTypeNormal
	if now.Type == v1alpha1.ConditionDeletionHeld || now.Reason == v1alpha1.ReasonStuck ||
		now.Reason == v1alpha1.ReasonDefinition {
		kind = corev1.EventTypeWarning
	}
	e.events.Say(e.t, kind, &now)
}

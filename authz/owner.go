package authz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// liveReadsPerSecond and liveReadBurst bound the reads of namespaces that the cache does not
	// know, for each tenant that asks: enough for every namespace that a busy tenant makes, too few
	// to load the server by asking for names that do not exist, and no tenant uses up another's.
	liveReadsPerSecond = 10
	liveReadBurst      = 30
	// askers bounds for how many tenants a budget is kept; the longest unused begins anew.
	askers = 4096
	// liveReadTimeout bounds one such read; the request waits for it.
	liveReadTimeout = 2 * time.Second
)

// errThrottled says that a namespace is not known yet while its asker has asked for too many such.
var errThrottled = errors.New("too many questions for unknown namespaces")

// Owners knows whose a namespace is, from a cache and, for what that does not hold yet, from a
// live read. Safe for concurrent use.
type Owners struct {
	cached  func(name string) (*corev1.Namespace, error)
	live    func(ctx context.Context, name string) (*corev1.Namespace, error)
	flights singleflight.Group
	mu      sync.Mutex
	budgets *lru.Cache // of tenant.ID to flowcontrol.RateLimiter
}

// NewOwners returns the owners of the namespaces that cached and live know; both answer an
// apierrors.IsNotFound error for one that does not exist. A nil live is never asked.
func NewOwners(cached func(name string) (*corev1.Namespace, error),
	live func(ctx context.Context, name string) (*corev1.Namespace, error)) *Owners {
	return &Owners{cached: cached, live: live, budgets: lru.New(askers)}
}

// budget returns the limiter of the tenant that asks.
func (o *Owners) budget(asker tenant.ID) flowcontrol.RateLimiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	if limiter, known := o.budgets.Get(asker); known {
		return limiter.(flowcontrol.RateLimiter)
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(liveReadsPerSecond, liveReadBurst)
	o.budgets.Add(asker, limiter)
	return limiter
}

// Of returns the tenant that owns the namespace: the one its label names, or without a label the
// system tenant. Nobody owns, and the zero ID is returned for, a namespace whose label is no valid
// tenant, one that does not exist, and one that is not known yet while there are too many such
// questions: the three cannot be told apart. The error says that the lookup failed; the answer is
// not known then.
func (o *Owners) Of(ctx context.Context, namespace string) (tenant.ID, error) {
	return o.of(ctx, tenant.ID{}, namespace)
}

// Certain is [Owners.Of] without a limit to the questions, for who acts on the answer: too many of
// them must not make a namespace nobody's. Callers MUST NOT ask for names that anybody makes up.
func (o *Owners) Certain(ctx context.Context, namespace string) (tenant.ID, error) {
	return o.ofBudget(ctx, tenant.ID{}, namespace, nil)
}

// of is Of for a question of the tenant asker.
func (o *Owners) of(ctx context.Context, asker tenant.ID, namespace string) (tenant.ID, error) {
	return o.ofBudget(ctx, asker, namespace, o.budget)
}

// budgetOf returns the limiter of a tenant that asks. Nil: there is no limit.
type budgetOf func(asker tenant.ID) flowcontrol.RateLimiter

func budgetFor(budget budgetOf, asker tenant.ID) flowcontrol.RateLimiter {
	if budget == nil {
		return nil
	}
	return budget(asker)
}

func (o *Owners) ofBudget(ctx context.Context, asker tenant.ID, namespace string, budget budgetOf) (tenant.ID, error) {
	label, labelled, exists, err := o.label(ctx, asker, namespace, budget)
	switch {
	case errors.Is(err, errThrottled):
		return tenant.ID{}, nil
	case err != nil || !exists:
		return tenant.ID{}, err
	case !labelled:
		return tenant.System(), nil
	}
	id, _ := tenant.Parse(label) // a bad label: owned by nobody
	return id, nil
}

// label returns the tenant label of a namespace as it stands.
func (o *Owners) label(ctx context.Context, asker tenant.ID, namespace string, budget budgetOf) (label string, labelled, exists bool, err error) {
	ns, err := o.cached(namespace)
	switch {
	case err == nil && ns.DeletionTimestamp != nil && o.live != nil:
		// It may be gone by now, and another's in its place.
		ns, err = o.read(ctx, asker.String(), namespace, budgetFor(budget, asker))
	case err != nil && apierrors.IsNotFound(err): // IsNotFound allocates, and most are found
		ns, err = o.read(ctx, asker.String(), namespace, budgetFor(budget, asker))
	}
	if err != nil {
		if apierrors.IsNotFound(err) {
			return "", false, false, nil
		}
		return "", false, false, fmt.Errorf("look up a namespace's owner: %w", err)
	}
	label, labelled = ns.Labels[tenant.Label]
	return label, labelled, true, nil
}

// read asks the server itself, once for all of an asker who ask for the same name at the same time: a
// tenant that has used up its budget must not answer for another. A nil budget has no end.
func (o *Owners) read(ctx context.Context, asker, namespace string, budget flowcontrol.RateLimiter) (*corev1.Namespace, error) {
	if o.live == nil || namespace == "" {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	}
	flight := o.flights.DoChan(fmt.Sprintf("%t/%s/%s", budget != nil, asker, namespace), func() (any, error) {
		if budget != nil && !budget.TryAccept() {
			return nil, errThrottled
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveReadTimeout)
		defer cancel()
		return o.live(ctx, namespace)
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*corev1.Namespace), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

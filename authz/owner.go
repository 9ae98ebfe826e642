package authz

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// liveReadsPerSecond and liveReadBurst bound the reads of namespaces that the cache does not
	// know: enough for every namespace that a busy cluster makes, too few to load the server by
	// asking for names that do not exist.
	liveReadsPerSecond = 20
	liveReadBurst      = 50
	// liveReadTimeout bounds one such read; the request waits for it.
	liveReadTimeout = 2 * time.Second
)

// Owners knows whose a namespace is, from a cache and, for what that does not hold yet, from a
// live read. Safe for concurrent use.
type Owners struct {
	cached  func(name string) (*corev1.Namespace, error)
	live    func(ctx context.Context, name string) (*corev1.Namespace, error)
	limiter flowcontrol.RateLimiter
	flights singleflight.Group
}

// NewOwners returns the owners of the namespaces that cached and live know; both answer an
// apierrors.IsNotFound error for one that does not exist. A nil live is never asked.
func NewOwners(cached func(name string) (*corev1.Namespace, error),
	live func(ctx context.Context, name string) (*corev1.Namespace, error)) *Owners {
	return &Owners{cached: cached, live: live,
		limiter: flowcontrol.NewTokenBucketRateLimiter(liveReadsPerSecond, liveReadBurst)}
}

// Of returns the tenant that owns the namespace: the one its label names, or without a label the
// system tenant. Nobody owns, and the zero ID is returned for, a namespace whose label is no valid
// tenant, one that does not exist, and one that is not known yet while there are too many such
// questions: the three cannot be told apart. The error says that the lookup failed; the answer is
// not known then.
func (o *Owners) Of(ctx context.Context, namespace string) (tenant.ID, error) {
	label, labelled, exists, err := o.label(ctx, namespace)
	switch {
	case err != nil || !exists:
		return tenant.ID{}, err
	case !labelled:
		return tenant.System(), nil
	}
	id, _ := tenant.Parse(label) // a bad label: owned by nobody
	return id, nil
}

// label returns the tenant label of a namespace as it stands.
func (o *Owners) label(ctx context.Context, namespace string) (label string, labelled, exists bool, err error) {
	ns, err := o.cached(namespace)
	if apierrors.IsNotFound(err) {
		ns, err = o.read(ctx, namespace)
	}
	switch {
	case apierrors.IsNotFound(err):
		return "", false, false, nil
	case err != nil:
		return "", false, false, fmt.Errorf("look up a namespace's owner: %w", err)
	}
	label, labelled = ns.Labels[tenant.Label]
	return label, labelled, true, nil
}

// read asks the server itself, once for all who ask for the same name at the same time.
func (o *Owners) read(ctx context.Context, namespace string) (*corev1.Namespace, error) {
	if o.live == nil || namespace == "" {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	}
	flight := o.flights.DoChan(namespace, func() (any, error) {
		if !o.limiter.TryAccept() {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
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

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"

	"github.com/kubetenant/kubetenant/internal/budget"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// liveReadsPerSecond and liveReadBurst are the rate limit and the burst of live reads of
	// namespaces. Each requesting tenant has its own limit, called its budget, so that no tenant
	// can use up the budget of another tenant. A lookup without a requesting tenant uses the budget
	// of the namespace's owner. The budget is enough for every namespace that a busy tenant
	// creates, and too small to overload the server with lookups of missing names.
	liveReadsPerSecond = 10
	liveReadBurst      = 30
	// liveReadTimeout is the timeout of a live read, for which the request waits. It includes the
	// time that a tenant's caller waits for the budget.
	liveReadTimeout = 2 * time.Second
	// missingTTL is how long the result of a live read that found no namespace is cached. A
	// requesting tenant whose budget is used up gets this result again, for example for each of a
	// hundred objects in a missing namespace.
	missingTTL = time.Second
)

// errThrottled reports that the budget of the requester is used up and the namespace is not known
// yet.
var errThrottled = errors.New("too many lookups of unknown namespaces")

// errNoAnswer reports that a live read returned neither a namespace nor an error.
var errNoAnswer = errors.New("the lookup returned neither a namespace nor an error")

// Owners looks up the owners of namespaces. It uses a cache, and live reads for namespaces that are
// terminating or not yet in the cache. It is safe for concurrent use.
type Owners struct {
	cached   func(name string) (*corev1.Namespace, error)
	live     func(ctx context.Context, name string) (*corev1.Namespace, error)
	flights  singleflight.Group
	budgets  *budget.Budgets     // keyed by [requester.budget]
	missing  *utilcache.Expiring // names that a live read did not find, keyed by budget and name
	reserved atomic.Pointer[[]string]
}

// NewOwners returns an [Owners] that looks up namespaces with cached and live. Both return an
// error for which apierrors.IsNotFound is true if a namespace does not exist. If live is nil,
// only the namespaces that cached returns exist.
func NewOwners(cached func(name string) (*corev1.Namespace, error),
	live func(ctx context.Context, name string) (*corev1.Namespace, error),
) *Owners {
	return &Owners{
		cached:  cached,
		live:    live,
		budgets: budget.New(liveReadsPerSecond, liveReadBurst),
		missing: utilcache.NewExpiring(),
	}
}

// Reserve sets the names of the namespaces that the system tenant owns, regardless of their
// labels. It replaces the names of an earlier call, and returns the names that were not reserved
// before.
func (o *Owners) Reserve(names []string) (added []string) {
	names = slices.Clone(names)
	before := o.reserved.Swap(&names)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return before != nil && slices.Contains(*before, name)
	})
}

// IsReserved reports whether the system tenant owns any namespace with this name, regardless of
// its label.
func (o *Owners) IsReserved(namespace string) bool {
	names := o.reserved.Load()
	return names != nil && slices.Contains(*names, namespace)
}

// Of returns the tenant that owns the namespace. It is the system tenant if the name is reserved or
// the namespace has no label, otherwise the tenant in the label. The ID is zero if the label is not
// a valid tenant or the namespace does not exist. It is also zero if the namespace is unknown and
// the budget for lookups is used up. Callers cannot distinguish these cases. The error reports that
// the lookup failed and the owner is unknown.
func (o *Owners) Of(ctx context.Context, namespace string) (tenant.ID, error) {
	return o.find(ctx, requester{}, namespace).owner()
}

// OfForTenant returns the same as [Owners.Of], but uses the budget of tenant id. Use it for names
// that callers of the tenant can invent.
func (o *Owners) OfForTenant(ctx context.Context, id tenant.ID, namespace string) (tenant.ID, error) {
	return o.find(ctx, requester{id: id}, namespace).owner()
}

// OfUnthrottled returns the same as [Owners.Of], but its lookups have no rate limit. It is for
// callers that act on the result, because a used-up budget must not make a namespace look
// unowned. Callers MUST NOT use it for names that a client can invent.
func (o *Owners) OfUnthrottled(ctx context.Context, namespace string) (tenant.ID, error) {
	return o.find(ctx, requester{unlimited: true}, namespace).owner()
}

// Namespace returns the current Namespace object with the given name, or nil if there is none. It
// uses the cache and live reads as [Owners.Of] does. The error reports that the lookup failed or
// was throttled. The caller MUST NOT change the Namespace.
func (o *Owners) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	result := o.find(ctx, requester{}, name)
	return result.ns, result.err
}

// Terminating reports whether the namespace is terminating, according to the cache.
func (o *Owners) Terminating(namespace string) bool {
	ns, err := o.cached(namespace)
	return err == nil && ns.DeletionTimestamp != nil
}

// Held reports whether Pods are denied in a namespace because it is not prepared yet, see
// [tenant.HeldAnnotation]. The error reports that the lookup failed.
func (o *Owners) Held(ctx context.Context, namespace string) (bool, error) {
	result := o.find(ctx, requester{unlimited: true}, namespace)
	if result.ns == nil {
		return false, result.err
	}
	_, held := result.ns.Annotations[tenant.HeldAnnotation]
	return held, nil
}

const (
	unlimitedBudget    = "certain"   // the budget without a limit
	tenantBudgetPrefix = "asked by " // prefix of the budgets of requesting tenants
)

// requester is the tenant that looks up a namespace. If id is zero, no tenant requests the
// lookup.
type requester struct {
	id        tenant.ID
	unlimited bool // without a limit on live reads
}

// budget returns the name of the budget for a lookup. Without a requesting tenant, it is the budget
// of the namespace's owner, according to the cached label or the prefix in the name. Lookups for
// the tenant of a service account and for the owner of an admitted object have no requesting
// tenant.
func (by requester) budget(namespace string, cached *corev1.Namespace) string {
	switch {
	case by.unlimited:
		return unlimitedBudget
	case !by.id.IsZero():
		return tenantBudgetPrefix + by.id.String()
	case cached != nil:
		return "owned by " + cached.Labels[tenant.Label]
	}
	prefix, _, found := strings.Cut(namespace, tenant.NamespaceSeparator)
	if !found { // names without a prefix share one budget, because clients can invent any number of them
		prefix = ""
	}
	return "owned by " + prefix
}

// lookupResult is the result of a namespace lookup. The namespace is nil if it does not exist or if
// there is an error.
type lookupResult struct {
	ns  *corev1.Namespace
	id  tenant.ID // the owner of ns
	err error
}

// missing reports whether the namespace does not exist. If live reads are possible, a live read
// in this lookup or in a recent lookup has confirmed that.
func (f lookupResult) missing() bool { return f.err == nil && f.ns == nil }

// owner returns the tenant that owns the namespace, or the zero ID if the lookup was throttled.
func (f lookupResult) owner() (tenant.ID, error) {
	switch {
	case f.ns != nil:
		return f.id, nil
	case errors.Is(f.err, errThrottled):
		return tenant.ID{}, nil
	}
	return tenant.ID{}, f.err
}

// OwnerOf returns the tenant that owns a Namespace. If its name is reserved, that is the system
// tenant. Otherwise, it is the result of the function [OwnerOf].
func (o *Owners) OwnerOf(ns *corev1.Namespace) tenant.ID {
	if o.IsReserved(ns.Name) {
		return tenant.System()
	}
	return OwnerOf(ns)
}

// OwnerOf returns the tenant that owns a Namespace, according to its label. Without a label, it
// is the system tenant. If the label is empty or not a valid tenant, the ID is zero. The function
// ignores reserved names, see [Owners.OwnerOf].
func OwnerOf(ns *corev1.Namespace) tenant.ID {
	label, ok := ns.Labels[tenant.Label]
	if !ok {
		return tenant.System()
	}
	id, _ := tenant.Parse(label)
	return id
}

// find looks up a namespace.
func (o *Owners) find(ctx context.Context, by requester, namespace string) lookupResult {
	ns, err := o.cached(namespace)
	switch {
	case err == nil && ns.DeletionTimestamp != nil && o.live != nil && !isCachedOnly(ctx):
		// The namespace may be deleted by now, and another tenant may have a new namespace of the
		// same name.
		ns, err = o.read(ctx, by.budget(namespace, ns), namespace)
	case err != nil && apierrors.IsNotFound(err): // IsNotFound allocates, and most lookups succeed
		ns, err = o.read(ctx, by.budget(namespace, nil), namespace)
	}
	if err != nil {
		if apierrors.IsNotFound(err) {
			return lookupResult{}
		}
		return lookupResult{err: fmt.Errorf("look up the owner of a namespace: %w", err)}
	}
	if eventMayPrecede(ctx, ns) {
		return lookupResult{}
	}
	return lookupResult{ns: ns, id: o.OwnerOf(ns)}
}

// read reads a namespace from the server. Concurrent reads of one name share a result only if they
// use the same budget, because a used-up budget must not affect other tenants.
func (o *Owners) read(ctx context.Context, budgetName, namespace string) (*corev1.Namespace, error) {
	if o.live == nil || namespace == "" || isCachedOnly(ctx) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	}
	key := budgetName + "/" + namespace
	flight := o.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveReadTimeout)
		defer cancel()
		if budgetName != unlimitedBudget && !o.budgets.Limiter(budgetName).TryAccept() {
			if _, known := o.missing.Get(key); known {
				return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
			}
			// A lookup for a requesting tenant waits, for example if a client applies many new
			// objects. Other lookups fail.
			if !strings.HasPrefix(budgetName, tenantBudgetPrefix) || o.budgets.Limiter(budgetName).Wait(ctx) != nil {
				return nil, errThrottled
			}
		}
		ns, err := o.live(ctx, namespace)
		switch {
		case err == nil && ns == nil: // live must return an error for a missing namespace
			return nil, errNoAnswer
		case err == nil:
			o.missing.Delete(key)
		case apierrors.IsNotFound(err) && strings.HasPrefix(budgetName, tenantBudgetPrefix):
			// The rate limits also limit the number of these entries.
			o.missing.Set(key, struct{}{}, missingTTL)
		}
		return ns, err
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

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
	// liveReadsPerSecond and liveReadBurst bound the reads of namespaces that the cache does not know,
	// for each tenant that asks, and for each owner where nobody in particular does: enough for every
	// namespace that a busy tenant makes, too few to load the server by asking for names that do not
	// exist, and no tenant uses up another's.
	liveReadsPerSecond = 10
	liveReadBurst      = 30
	// liveReadTimeout bounds one such read, and how long a tenant's caller waits for its turn;
	// the request waits for it.
	liveReadTimeout = 2 * time.Second
	// missingFor is how long a name that a live read did not find is known to be missing for who
	// has used up the budget: who applies a hundred objects in a namespace that does not exist is
	// told so a hundred times.
	missingFor = time.Second
)

// errThrottled says that a namespace is not known yet while its requester has
// asked for too many such.
var errThrottled = errors.New("too many lookups of unknown namespaces")

// errNoAnswer says that a live read returned neither a namespace nor an error.
var errNoAnswer = errors.New("the lookup returned neither a namespace nor an error")

// Owners knows whose a namespace is, from a cache and, for what that does not hold yet, from a
// live read. Safe for concurrent use.
type Owners struct {
	cached  func(name string) (*corev1.Namespace, error)
	live    func(ctx context.Context, name string) (*corev1.Namespace, error)
	flights singleflight.Group
	budgets *budget.Budgets     // by [requester.budget]
	missing *utilcache.Expiring // what was not there a moment ago, by budget and name
	system  atomic.Pointer[[]string]
}

// NewOwners returns the owners of the namespaces that cached and live know; both answer an
// apierrors.IsNotFound error for one that does not exist. A nil live is never asked: what cached
// does not know does not exist then.
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

// Reserve sets the names of the namespaces that the system tenant owns, whatever label they have.
// It replaces the names of an earlier call, and returns the names that were not reserved before.
func (o *Owners) Reserve(names []string) (added []string) {
	names = slices.Clone(names)
	before := o.system.Swap(&names)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return before != nil && slices.Contains(*before, name)
	})
}

// IsReserved reports whether the system tenant owns a namespace of this
// name, whatever label it has.
func (o *Owners) IsReserved(namespace string) bool {
	names := o.system.Load()
	return names != nil && slices.Contains(*names, namespace)
}

// Of returns the tenant that owns the namespace: the one its label names, or without a label the
// system tenant. Nobody owns, and the zero ID is returned for, a namespace whose label is no valid
// tenant, one that does not exist, and one that is not known yet while there are too many such
// lookups: the three cannot be told apart. The error says that the lookup failed; the answer is
// not known then.
func (o *Owners) Of(ctx context.Context, namespace string) (tenant.ID, error) {
	return o.find(ctx, requester{}, namespace).owner()
}

// AskedBy is [Owners.Of] at the cost of a tenant's budget, for names that the
// tenant's callers may make up.
func (o *Owners) AskedBy(ctx context.Context, id tenant.ID, namespace string) (tenant.ID, error) {
	return o.find(ctx, requester{id: id}, namespace).owner()
}

// Certain is [Owners.Of] without a limit to the lookups, for who acts on the answer: too many of
// them must not make a namespace nobody's. Callers MUST NOT ask for names that anybody makes up.
func (o *Owners) Certain(ctx context.Context, namespace string) (tenant.ID, error) {
	return o.find(ctx, requester{certain: true}, namespace).owner()
}

// Namespace returns the Namespace that has the name now. It finds it as [Owners.Of] does and returns
// nil if there is none. The error reports that the lookup failed or was limited. The caller MUST NOT
// change the Namespace.
func (o *Owners) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	is := o.find(ctx, requester{}, name)
	return is.ns, is.err
}

// Terminating reports whether a namespace is known to be going.
func (o *Owners) Terminating(namespace string) bool {
	ns, err := o.cached(namespace)
	return err == nil && ns.DeletionTimestamp != nil
}

// Held reports whether no Pods are to be in a namespace before it was prepared, see
// [tenant.HeldAnnotation]. The error says that it is not known.
func (o *Owners) Held(ctx context.Context, namespace string) (bool, error) {
	is := o.find(ctx, requester{certain: true}, namespace)
	if is.ns == nil {
		return false, is.err
	}
	_, held := is.ns.Annotations[tenant.HeldAnnotation]
	return held, nil
}

const (
	certain = "certain"   // the budget that has no end
	askedBy = "asked by " // begins the budget of a tenant
)

// requester is who looks a namespace up; the zero ID for nobody in particular.
type requester struct {
	id      tenant.ID
	certain bool // without a limit to live reads
}

// budget names the budget of a lookup. Where nobody in particular asks (whose a service account is,
// whose an object that is admitted) it is that of the namespace's owner: who it is known to be, or
// whose prefix the name has.
func (by requester) budget(namespace string, cached *corev1.Namespace) string {
	switch {
	case by.certain:
		return certain
	case !by.id.IsZero():
		return askedBy + by.id.String()
	case cached != nil:
		return "owned by " + cached.Labels[tenant.Label]
	}
	prefix, _, found := strings.Cut(namespace, tenant.NamespaceSeparator)
	if !found { // names without a prefix have one budget, or anybody could make up as many as they like
		prefix = ""
	}
	return "owned by " + prefix
}

// found is what a lookup of a namespace found: nil where there is none, and with an error.
type found struct {
	ns  *corev1.Namespace
	id  tenant.ID // the owner of ns
	err error
}

// missing reports whether there is no such namespace, by a live read where there can be
// one, or one of a moment ago.
func (f found) missing() bool { return f.err == nil && f.ns == nil }

// owner returns whose the namespace is.
func (f found) owner() (tenant.ID, error) {
	switch {
	case f.ns != nil:
		return f.id, nil
	case errors.Is(f.err, errThrottled):
		return tenant.ID{}, nil
	}
	return tenant.ID{}, f.err
}

// OwnerOf returns the tenant that owns a Namespace: the system tenant if the name is reserved, else
// the tenant of the label. See [OwnerOf].
func (o *Owners) OwnerOf(ns *corev1.Namespace) tenant.ID {
	if o.IsReserved(ns.Name) {
		return tenant.System()
	}
	return OwnerOf(ns)
}

// OwnerOf returns the tenant that owns a Namespace, by its label: without one the system
// tenant, and with one that is no valid tenant, an empty one too, nobody. It ignores the
// reserved names: see [Owners.OwnerOf].
func OwnerOf(ns *corev1.Namespace) tenant.ID {
	label, labelled := ns.Labels[tenant.Label]
	if !labelled {
		return tenant.System()
	}
	id, _ := tenant.Parse(label)
	return id
}

// find looks a namespace up.
func (o *Owners) find(ctx context.Context, by requester, namespace string) found {
	ns, err := o.cached(namespace)
	switch {
	case err == nil && ns.DeletionTimestamp != nil && o.live != nil && !isCachedOnly(ctx):
		// It may be gone by now, and another's in its place.
		ns, err = o.read(ctx, by.budget(namespace, ns), namespace)
	case err != nil && apierrors.IsNotFound(err): // IsNotFound allocates, and most are found
		ns, err = o.read(ctx, by.budget(namespace, nil), namespace)
	}
	if err != nil {
		if apierrors.IsNotFound(err) {
			return found{}
		}
		return found{err: fmt.Errorf("look up the owner of a namespace: %w", err)}
	}
	if isPredecessors(ctx, ns) {
		return found{}
	}
	return found{ns: ns, id: o.OwnerOf(ns)}
}

// read asks the server itself, once for all of a budget who ask for the same name at the same time:
// a tenant that has used up its budget must not answer for another.
func (o *Owners) read(ctx context.Context, payer, namespace string) (*corev1.Namespace, error) {
	if o.live == nil || namespace == "" || isCachedOnly(ctx) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	}
	key := payer + "/" + namespace
	flight := o.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveReadTimeout)
		defer cancel()
		if payer != certain && !o.budgets.Of(payer).TryAccept() {
			if _, known := o.missing.Get(key); known {
				return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
			}
			// Whoever applies many new objects one by one waits for its turn; a flood does not.
			if !strings.HasPrefix(payer, askedBy) || o.budgets.Of(payer).Wait(ctx) != nil {
				return nil, errThrottled
			}
		}
		ns, err := o.live(ctx, namespace)
		switch {
		case err == nil && ns == nil: // that there is none is said by an error alone
			return nil, errNoAnswer
		case err == nil:
			o.missing.Delete(key)
		case apierrors.IsNotFound(err) && strings.HasPrefix(payer, askedBy):
			// no more of them than the budgets let be asked for
			o.missing.Set(key, struct{}{}, missingFor)
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

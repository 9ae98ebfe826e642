// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// pageSize is the maximum number of objects in one list request. client-go's pager has the same
	// value (tools/pager, v0.37.1).
	pageSize = 500
	// maxWriters is the maximum number of concurrent writes. It leaves capacity for other clients.
	maxWriters = 8
	// minBackoff is the delay before the first retry. The delay doubles up to maxInterval.
	// maxInterval is also the interval at which Run looks for new resources. minPause is the
	// minimum delay between two rounds.
	minBackoff  = time.Second
	maxInterval = 30 * time.Second
	minPause    = 500 * time.Millisecond
	// minWakeInterval is the minimum interval at which calls of Done for one resource wake Run.
	minWakeInterval = 2 * time.Second
	// secondPassDelay is the delay after which a namespace with a new owner is processed a second
	// time. Until then, a write that was admitted before the change may still be stored
	// (--request-timeout of kube-apiserver, 60 s by default).
	secondPassDelay = 90 * time.Second
	// maxKnownNamespaces is the maximum number of namespaces whose last owner is stored.
	maxKnownNamespaces = 1 << 17
)

// Backfill corrects the tenant labels of objects that were stored without the plugin. Objects in
// a tenant's namespace get their owner's label, and all other objects lose the label. The
// backfill stores no state, because the labels show which objects are done. After an
// interruption, the next backfill has fewer objects to write. Correct objects are only read.
//
// If an object cannot be written, lists of its resource over all namespaces stay denied to the
// owner of the object's namespace, and to the tenant in the object's label. Other tenants are not
// affected.
//
// Every server that writes objects MUST run the plugin during the backfill. Otherwise, the backfill
// would miss objects that are stored without the label. A Backfill is safe for concurrent use.
type Backfill struct {
	objects   metadata.Interface
	resources func() ([]schema.GroupVersionResource, error)
	owner     plugins.OwnerFunc
	wake      chan struct{}

	mu         sync.RWMutex
	incomplete map[schema.GroupResource]tenantSet // for each resource, the tenants with wrongly labeled objects
	resumed    map[schema.GroupResource]bool      // resources with a result from Resume, which is checked again
	retryAt    time.Time                          // when failed writes are retried
	epoch      int                                // the number of calls of Reset
	lastWake   map[schema.GroupResource]time.Time
	lastOwners *lru.Cache           // the last label of a namespace, keyed by its name
	reassigned map[string]time.Time // namespaces with a new owner, and when their second pass is due
}

// errOwner reports that the owner of a namespace could not be looked up. Then no tenant's objects
// are known to have the correct labels.
var errOwner = errors.New("look up the owner of namespace")

// maxProblems is the maximum number of pages of a resource whose errors are reported.
const maxProblems = 10

// tenantSet is a set of tenants.
type tenantSet map[tenant.ID]bool

// NewBackfill returns a backfill. resources returns all namespaced resources that can be listed and
// patched. Writes of these resources MUST pass the plugin. resources may return some resources
// together with an error.
func NewBackfill(
	objects metadata.Interface, resources func() ([]schema.GroupVersionResource, error), owner plugins.OwnerFunc,
) *Backfill {
	return &Backfill{
		objects:    objects,
		resources:  resources,
		owner:      owner,
		wake:       make(chan struct{}, 1),
		incomplete: map[schema.GroupResource]tenantSet{},
		resumed:    map[schema.GroupResource]bool{},
		lastWake:   map[schema.GroupResource]time.Time{},
		lastOwners: lru.New(maxKnownNamespaces),
		reassigned: map[string]time.Time{},
	}
}

// Done reports whether the label of a tenant is on all objects of the tenant, and on no other
// objects of the resource. If the resource was not backfilled yet, Done returns false and may wake
// Run.
func (s *Backfill) Done(resource schema.GroupResource, id tenant.ID) bool {
	s.mu.RLock()
	failed, known := s.incomplete[resource]
	done := known && !failed[id]
	s.mu.RUnlock()
	if !known && s.mayWake(resource) {
		s.Wake()
	}
	return done
}

// Results returns, for each backfilled resource, the tenants for which Done returns false.
func (s *Backfill) Results() map[schema.GroupResource][]tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[schema.GroupResource][]tenant.ID, len(s.incomplete))
	for resource, failed := range s.incomplete {
		out[resource] = slices.Collect(maps.Keys(failed))
	}
	return out
}

// Resume uses earlier results of [Backfill.Results] until each resource is backfilled again.
// Objects that were stored after these results MUST have passed the plugin.
func (s *Backfill) Resume(before map[schema.GroupResource][]tenant.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource, failed := range before {
		if _, known := s.incomplete[resource]; known {
			continue
		}
		s.incomplete[resource] = tenantSet{}
		s.resumed[resource] = true
		for _, id := range failed {
			s.incomplete[resource][id] = true
		}
	}
}

// Reset causes a backfill of every resource. Call it after objects were stored without admission.
func (s *Backfill) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.incomplete)
	clear(s.resumed)
	s.epoch++
	s.Wake()
}

func (s *Backfill) currentEpoch() (epoch int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epoch
}

// recordResult records the result for a resource, unless Reset was called after the backfill of the
// resource began.
func (s *Backfill) recordResult(r schema.GroupResource, failed tenantSet, epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return
	}
	s.incomplete[r] = failed
	delete(s.resumed, r)
}

// dropResumed drops the result from Resume for a resource that cannot be listed now.
func (s *Backfill) dropResumed(r schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed[r] {
		delete(s.resumed, r)
		delete(s.incomplete, r)
	}
}

// mayWake reports whether a call of Done for a resource may wake Run. It limits the rate, because
// some resources can never be listed.
func (s *Backfill) mayWake(resource schema.GroupResource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.lastWake[resource]) < minWakeInterval {
		return false
	}
	s.lastWake[resource] = now
	return true
}

// Wake makes Run look for new resources soon.
func (s *Backfill) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// NamespaceHandler returns the handler of a Namespace informer. If a namespace gets a new owner,
// its objects are corrected. The owner changes if the label is added, changed or removed, or if
// the namespace is deleted and created again for another tenant.
func (s *Backfill) NamespaceHandler() cache.ResourceEventHandler {
	observe := func(obj any) {
		ns, ok := obj.(*corev1.Namespace)
		if !ok {
			return // a deletion, after which the last owner is still remembered
		}
		label := ns.Labels[tenant.Label]
		s.mu.Lock()
		before, known := s.lastOwners.Get(ns.Name)
		s.lastOwners.Add(ns.Name, label)
		reassigned := known && before != label
		if reassigned {
			s.reassigned[ns.Name] = time.Time{}
		}
		s.mu.Unlock()
		if reassigned {
			s.Wake()
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: observe, UpdateFunc: func(_, newObj any) { observe(newObj) }}
}

// Run runs the backfill until ctx ends. Call it only once.
func (s *Backfill) Run(ctx context.Context) {
	backoff := minBackoff
	for ctx.Err() == nil {
		after := maxInterval
		switch err := s.RunOnce(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			klog.FromContext(ctx).Error(err, "Not all objects have the label of their tenant yet: "+
				"tenants with such objects may not list across all namespaces")
			s.mu.Lock()
			s.retryAt = time.Now().Add(backoff)
			s.mu.Unlock()
			after = backoff
			backoff = min(2*backoff, maxInterval)
		case s.isIncomplete(): // the retry is not due yet
			after = min(backoff, maxInterval)
		default:
			backoff = minBackoff
		}
		pause(ctx, minPause, nil) // limits how often Wake can start a round
		pause(ctx, after, s.wake)
	}
}

// pause waits for a duration, for a value from wake or for the end of ctx.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// RunOnce backfills each resource that is due, and the namespaces with a new owner. The error
// names the objects, pages and resources that could not be corrected.
func (s *Backfill) RunOnce(ctx context.Context) error {
	resources, err := s.resources()
	problems := []error{err}
	// Services are first. Controllers copy the labels of a Service onto its EndpointSlices, and
	// would remove a label that the Service does not have.
	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int {
		return strings.Compare(sortKey(a.GroupResource()), sortKey(b.GroupResource()))
	})
	for _, r := range resources {
		if !s.isDue(r.GroupResource()) {
			continue
		}
		epoch := s.currentEpoch()
		failed, err := s.backfillResource(ctx, r, metav1.NamespaceAll)
		if err != nil {
			problems = append(problems, fmt.Errorf("backfill %s: %w", r.GroupResource(), err))
		}
		if failed != nil {
			s.recordResult(r.GroupResource(), failed, epoch)
		} else {
			s.dropResumed(r.GroupResource())
		}
	}
	for _, namespace := range s.dueNamespaces(time.Now()) {
		for _, r := range resources {
			failed, err := s.backfillResource(ctx, r, namespace)
			if err == nil {
				continue
			}
			problems = append(problems, fmt.Errorf("backfill %s of a namespace with a new owner: %w", r.GroupResource(), err))
			s.mu.Lock()
			s.reassigned[namespace] = time.Time{}
			if incomplete := s.incomplete[r.GroupResource()]; incomplete != nil {
				maps.Copy(incomplete, failed)
			}
			s.mu.Unlock()
		}
	}
	return errors.Join(problems...)
}

func sortKey(r schema.GroupResource) string {
	if r == corev1.Resource("services") {
		return ""
	}
	return r.String()
}

// isDue reports whether a resource must be backfilled. This is the case if it was never backfilled,
// if its result comes from Resume, or if a retry is due.
func (s *Backfill) isDue(r schema.GroupResource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	failed, known := s.incomplete[r]
	return !known || s.resumed[r] || len(failed) > 0 && !time.Now().Before(s.retryAt)
}

// isIncomplete reports whether any resource has wrongly labeled objects.
func (s *Backfill) isIncomplete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, failed := range s.incomplete {
		if len(failed) > 0 {
			return true
		}
	}
	return false
}

// dueNamespaces returns the namespaces with objects to correct now. It returns each namespace a
// second time after secondPassDelay.
func (s *Backfill) dueNamespaces(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, at := range s.reassigned {
		switch {
		case at.IsZero():
			s.reassigned[name] = now.Add(secondPassDelay)
		case at.After(now):
			continue
		default:
			delete(s.reassigned, name)
		}
		names = append(names, name)
	}
	return names
}

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
	// writers is the maximum number of concurrent writes. It leaves capacity for other clients.
	writers = 8
	// retryAfter is the delay before the first retry. It doubles up to lookAfter. lookAfter is also
	// the interval at which Run looks for new resources. restBetween is the minimum delay between
	// two rounds.
	retryAfter  = time.Second
	lookAfter   = 30 * time.Second
	restBetween = 500 * time.Millisecond
	// askedAgain is the minimum interval at which calls of Done for one resource wake Run.
	askedAgain = 2 * time.Second
	// againAfter is the delay after which a namespace with a new owner is processed a second time.
	// Until then, a write that was admitted earlier may be stored (--request-timeout of
	// kube-apiserver, 60 s by default).
	againAfter = 90 * time.Second
	// knownNamespaces is the maximum number of namespaces with a remembered owner.
	knownNamespaces = 1 << 17
)

// Sweep is the backfill of the tenant label. It corrects objects that were stored without the
// plugin. Objects in a tenant's namespace get their owner's label, and other objects lose the
// label. The backfill needs no stored state, because the labels are its progress. After an
// interruption, the next backfill has fewer objects to write. Correct objects are only read.
//
// If an object cannot be written, lists over all namespaces stay denied for its own tenant, and for
// the tenant in the label of the object. Other tenants are not affected.
//
// Every server that writes objects MUST run the plugin during the backfill. Otherwise, the backfill
// would miss objects that are stored without the label. It is safe for concurrent use.
type Sweep struct {
	objects   metadata.Interface
	resources func() ([]schema.GroupVersionResource, error)
	owner     plugins.OwnerFunc
	wake      chan struct{}

	mu      sync.RWMutex
	swept   map[schema.GroupResource]tenants // for each resource, the tenants with objects that are not correct
	resumed map[schema.GroupResource]bool    // resources with a result from Resume, which is checked again
	retryAt time.Time                        // when failed writes are retried
	epoch   int                              // the number of calls of Forget
	asked   map[schema.GroupResource]time.Time
	owners  *lru.Cache           // the last label of a namespace, by its name
	changed map[string]time.Time // namespaces with a new owner, and when to correct their objects
}

// errOwner reports that the owner of a namespace could not be looked up. The objects of all tenants
// are then not known to be correct.
var errOwner = errors.New("look up the owner of namespace")

// maxProblems is the maximum number of reported pages with errors for one resource.
const maxProblems = 10

// tenants is a set of tenants.
type tenants map[tenant.ID]bool

// NewSweep returns a backfill. resources returns all namespaced resources that can be listed and
// patched. Writes of these resources MUST pass the plugin. resources may return some resources
// together with an error.
func NewSweep(
	objects metadata.Interface, resources func() ([]schema.GroupVersionResource, error), owner plugins.OwnerFunc,
) *Sweep {
	return &Sweep{
		objects:   objects,
		resources: resources,
		owner:     owner,
		wake:      make(chan struct{}, 1),
		swept:     map[schema.GroupResource]tenants{},
		resumed:   map[schema.GroupResource]bool{},
		asked:     map[schema.GroupResource]time.Time{},
		owners:    lru.New(knownNamespaces),
		changed:   map[string]time.Time{},
	}
}

// Done reports whether all objects of a tenant, and no other objects of the resource, have the
// label of the tenant. If the resource was not backfilled yet, Run looks for it soon.
func (s *Sweep) Done(resource schema.GroupResource, id tenant.ID) bool {
	s.mu.RLock()
	lacking, swept := s.swept[resource]
	open := swept && !lacking[id]
	s.mu.RUnlock()
	if !swept && s.mayWake(resource) {
		s.Wake()
	}
	return open
}

// Swept returns, for each resource that was backfilled, the tenants for which Done returns false.
func (s *Sweep) Swept() map[schema.GroupResource][]tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[schema.GroupResource][]tenant.ID, len(s.swept))
	for resource, lacking := range s.swept {
		out[resource] = slices.Collect(maps.Keys(lacking))
	}
	return out
}

// Resume takes over the earlier results of [Sweep.Swept], until each resource is backfilled again.
// Objects that were stored after these results MUST have passed the plugin.
func (s *Sweep) Resume(before map[schema.GroupResource][]tenant.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource, lacking := range before {
		if _, known := s.swept[resource]; known {
			continue
		}
		s.swept[resource], s.resumed[resource] = tenants{}, true
		for _, id := range lacking {
			s.swept[resource][id] = true
		}
	}
}

// Forget causes a backfill of every resource. Call it after objects were stored without admission.
func (s *Sweep) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.swept)
	clear(s.resumed)
	s.epoch++
	s.Wake()
}

func (s *Sweep) now() (epoch int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epoch
}

// note records the result for a resource, unless Forget was called after its backfill began.
func (s *Sweep) note(r schema.GroupResource, lacking tenants, epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return
	}
	s.swept[r] = lacking
	delete(s.resumed, r)
}

// forgetResumed drops the result from Resume for a resource that cannot be listed now.
func (s *Sweep) forgetResumed(r schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed[r] {
		delete(s.resumed, r)
		delete(s.swept, r)
	}
}

// mayWake reports whether Done for a resource wakes Run. It limits the rate, because some resources
// can never be listed.
func (s *Sweep) mayWake(resource schema.GroupResource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.asked[resource]) < askedAgain {
		return false
	}
	s.asked[resource] = now
	return true
}

// Wake makes Run look for new resources soon.
func (s *Sweep) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Follow returns the handler of a Namespace informer. If a namespace gets a new owner, its objects
// are corrected. The owner changes if the label is added, or if the namespace is deleted and
// created again.
func (s *Sweep) Follow() cache.ResourceEventHandler {
	note := func(obj any) {
		ns, ok := obj.(*corev1.Namespace)
		if !ok {
			return // a deletion, after which the last owner stays known
		}
		label := ns.Labels[tenant.Label]
		s.mu.Lock()
		before, known := s.owners.Get(ns.Name)
		s.owners.Add(ns.Name, label)
		moved := known && before != label
		if moved {
			s.changed[ns.Name] = time.Time{}
		}
		s.mu.Unlock()
		if moved {
			s.Wake()
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, is any) { note(is) }}
}

// Run runs the backfill until ctx ends. Call it only once.
func (s *Sweep) Run(ctx context.Context) {
	backoff := retryAfter
	for ctx.Err() == nil {
		after := lookAfter
		switch err := s.Round(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			klog.FromContext(ctx).Error(err, "Not all objects have the label of their tenant yet: "+
				"tenants with such objects may not list across all namespaces")
			s.mu.Lock()
			s.retryAt = time.Now().Add(backoff)
			s.mu.Unlock()
			after, backoff = backoff, min(2*backoff, lookAfter)
		case s.lacks(): // the retry is not due yet
			after = min(backoff, lookAfter)
		default:
			backoff = retryAfter
		}
		pause(ctx, restBetween, nil) // limits how often Wake can start a round
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

// Round corrects each resource that has objects that are not correct, and the namespaces with a new
// owner. The error names what could not be corrected.
func (s *Sweep) Round(ctx context.Context) error {
	resources, err := s.resources()
	problems := []error{err}
	// Services are first. Controllers copy the labels of a Service onto its EndpointSlices, and
	// would remove a label that the Service does not have.
	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int {
		return strings.Compare(order(a.GroupResource()), order(b.GroupResource()))
	})
	for _, r := range resources {
		if !s.isDue(r.GroupResource()) {
			continue
		}
		epoch := s.now()
		lacking, err := s.sweep(ctx, r, metav1.NamespaceAll)
		if err != nil {
			problems = append(problems, fmt.Errorf("backfill %s: %w", r.GroupResource(), err))
		}
		if lacking != nil {
			s.note(r.GroupResource(), lacking, epoch)
		} else {
			s.forgetResumed(r.GroupResource())
		}
	}
	for _, namespace := range s.due(time.Now()) {
		for _, r := range resources {
			lacking, err := s.sweep(ctx, r, namespace)
			if err == nil {
				continue
			}
			problems = append(problems, fmt.Errorf("backfill %s of a namespace with a new owner: %w", r.GroupResource(), err))
			s.mu.Lock()
			s.changed[namespace] = time.Time{}
			if swept := s.swept[r.GroupResource()]; swept != nil {
				maps.Copy(swept, lacking)
			}
			s.mu.Unlock()
		}
	}
	return errors.Join(problems...)
}

func order(r schema.GroupResource) string {
	if r == corev1.Resource("services") {
		return ""
	}
	return r.String()
}

// isDue reports whether a resource must be backfilled. This is the case if it never was, if its
// result comes from Resume, or if a retry is due.
func (s *Sweep) isDue(r schema.GroupResource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	lacking, swept := s.swept[r]
	return !swept || s.resumed[r] || len(lacking) > 0 && !time.Now().Before(s.retryAt)
}

// lacks reports whether any resource has objects that are not correct.
func (s *Sweep) lacks() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, lacking := range s.swept {
		if len(lacking) > 0 {
			return true
		}
	}
	return false
}

// due returns the namespaces with objects to correct now. It returns each namespace twice.
func (s *Sweep) due(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, at := range s.changed {
		switch {
		case at.IsZero():
			s.changed[name] = now.Add(againAfter)
		case at.After(now):
			continue
		default:
			delete(s.changed, name)
		}
		names = append(names, name)
	}
	return names
}

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
	// pageSize is how many objects are asked for at a time; client-go's pager asks for as many
	// (tools/pager, v0.37.1).
	pageSize = 500
	// writers bounds the writes that run at the same time, so that a sweep leaves room for others.
	writers = 8
	// retryAfter is the time until what failed is tried again; it doubles up to lookAfter, the time
	// until resources that nobody told of are found. restBetween is the least time between two rounds.
	retryAfter  = time.Second
	lookAfter   = 30 * time.Second
	restBetween = 500 * time.Millisecond
	// askedAgain is how often at most asking for one resource makes Run look.
	askedAgain = 2 * time.Second
	// againAfter is when a namespace that changed hands is swept once more: a write that was admitted
	// before may be stored until then (--request-timeout of kube-apiserver, 60 s by default).
	againAfter = 90 * time.Second
	// knownNamespaces bounds of how many names the last owner is remembered.
	knownNamespaces = 1 << 17
)

// Sweep brings the objects that were stored without the plugin in line with it: those in tenant
// space get their owner's label, others lose one that they should not have. It needs no memory of
// its own: the labels are its progress, so a sweep that was cut off goes on by finding less to
// write. What is in line already is only read. An object that cannot be written keeps the lists of
// its own tenant closed, and of the one whose label it bears, and nobody else's.
//
// It MUST run while every server that writes runs the plugin: what is stored behind it without the
// label would never be seen. Safe for concurrent use.
type Sweep struct {
	objects   metadata.Interface
	resources func() ([]schema.GroupVersionResource, error)
	owner     plugins.OwnerFunc
	wake      chan struct{}

	mu      sync.RWMutex
	swept   map[schema.GroupResource]tenants // those whose objects are not all in line
	resumed map[schema.GroupResource]bool    // of which that is what somebody said before, and is looked at again
	retryAt time.Time                        // when what is left is tried again
	epoch   int                              // how often all was forgotten
	asked   map[schema.GroupResource]time.Time
	owners  *lru.Cache           // of a namespace's name to the label it had last
	changed map[string]time.Time // namespaces that changed hands, and when they are due
}

// errOwner says that whose a namespace is could not be looked up: nobody's objects
// are known to be in line.
var errOwner = errors.New("look up the owner of namespace")

// maxProblems bounds how many pages' errors are told of one resource.
const maxProblems = 10

// tenants are a set of them.
type tenants map[tenant.ID]bool

// NewSweep returns a sweep of the resources, all the namespaced ones that can be listed and patched
// here and whose writes pass the plugin. The error of resources may come with some of them.
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

// Done reports whether of a resource all objects of a tenant, and no others, carry its label. Where
// it says no, Run looks for the resource soon.
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

// Swept returns, of each resource that is swept, the tenants for which Done still says no.
func (s *Sweep) Swept() map[schema.GroupResource][]tenant.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[schema.GroupResource][]tenant.ID, len(s.swept))
	for resource, lacking := range s.swept {
		out[resource] = slices.Collect(maps.Keys(lacking))
	}
	return out
}

// Resume takes over what [Sweep.Swept] of another Sweep said, until each resource is swept anew.
// What was stored since MUST have passed the plugin too.
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

// Forget has every resource swept anew: something was stored that admission did not see.
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

// note notes what is left of a resource, unless all was forgotten since its sweep began.
func (s *Sweep) note(r schema.GroupResource, lacking tenants, epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return
	}
	s.swept[r] = lacking
	delete(s.resumed, r)
}

// forgetResumed takes back what somebody said before of a resource that cannot be looked at now.
func (s *Sweep) forgetResumed(r schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed[r] {
		delete(s.resumed, r)
		delete(s.swept, r)
	}
}

// mayWake reports whether asking for a resource makes Run look for it: now and then, since some can
// never be listed.
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

// Follow returns the handler of a Namespace informer: what is in a namespace that changes hands, by
// a label given to it or by being made anew, is swept again.
func (s *Sweep) Follow() cache.ResourceEventHandler {
	note := func(obj any) {
		ns, ok := obj.(*corev1.Namespace)
		if !ok {
			return // of a deletion: its owner is remembered
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

// Run sweeps until ctx ends. Once per Sweep.
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
		case s.lacks(): // somebody woke it before the time
			after = min(backoff, lookAfter)
		default:
			backoff = retryAfter
		}
		pause(ctx, restBetween, nil) // whoever wakes it cannot make it spin
		pause(ctx, after, s.wake)
	}
}

// pause waits for a time, for somebody who wakes, or for the end.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// Round sweeps each resource of which something is not in line, and the namespaces that changed
// hands. The error says what is left.
func (s *Sweep) Round(ctx context.Context) error {
	resources, err := s.resources()
	problems := []error{err}
	// Services first: controllers copy their labels onto slices and would fight one that is missing.
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

// isDue reports whether a resource is to be swept: it never was, or something was left of it and it
// is time to try that again.
func (s *Sweep) isDue(r schema.GroupResource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	lacking, swept := s.swept[r]
	return !swept || s.resumed[r] || len(lacking) > 0 && !time.Now().Before(s.retryAt)
}

// lacks reports whether something is left of some resource.
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

// due returns the namespaces that are to be swept now. Each comes twice.
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

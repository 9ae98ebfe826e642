// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// The states in the metric.
const (
	// stateValid means that the grant allows requests.
	stateValid = "Valid"
	// stateExpired means that the time in spec.expires has passed.
	stateExpired = "Expired"
	// stateRefused means that the condition Accepted is False, normally because the grantor does
	// not have the rights that it grants.
	stateRefused = "Refused"
	// stateInvalid means that the grant is invalid. A grant without a grantor is Invalid until the
	// condition Accepted is set, and then Refused.
	stateInvalid = "Invalid"
	// stateDeleting means that the grant is being deleted.
	stateDeleting = "Deleting"
)

// states records the state of each grant, and the number of grants in each state.
type states struct {
	gauge *metrics.GaugeVec

	mu     sync.Mutex
	known  map[cache.ObjectName]string
	number map[string]int // keyed by state
}

func newStates() *states {
	return &states{
		known:  map[cache.ObjectName]string{},
		number: map[string]int{},
		gauge: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "kubetenant_grants",
			Help: "Number of AccessGrants by state: Valid, Expired, Refused because the grantor does not have the rights that " +
				"it grants, Invalid, or Deleting.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"state"}),
	}
}

// Metrics returns the metric with the number of grants in each state. It shows an expired grant as
// Expired within a minute.
func (c *Controller) Metrics() []metrics.Registerable { return []metrics.Registerable{c.states.gauge} }

// set records the state of a grant. The empty state removes the grant.
func (s *states) set(name cache.ObjectName, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(name, state)
}

// update records the state of a grant if the grant is still known.
func (s *states) update(name cache.ObjectName, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[name] != "" {
		s.replace(name, state)
	}
}

// replace records the state of a grant. The caller MUST hold s.mu.
func (s *states) replace(name cache.ObjectName, state string) {
	before := s.known[name]
	if before == state {
		return
	}
	if before != "" {
		s.number[before]--
		delete(s.known, name)
	}
	if state != "" {
		s.number[state]++
		s.known[name] = state
	}
	s.writeGauge()
}

// writeGauge sets the metric. It has no effect before the metric is registered. The caller MUST
// hold s.mu.
func (s *states) writeGauge() {
	for state, n := range s.number {
		s.gauge.WithLabelValues(state).Set(float64(n))
	}
}

// stateOf returns the state of an object from the informer at the given time.
func stateOf(obj any, now time.Time) string {
	g, err := typed.FromInformer[v1alpha1.AccessGrant](obj)
	if err != nil {
		return stateInvalid
	}
	valid, err := grantOf(obj)
	switch {
	case g.DeletionTimestamp != nil:
		return stateDeleting
	case err != nil:
		return stateInvalid
	case g.Spec.Expires != nil && !now.Before(g.Spec.Expires.Time):
		return stateExpired
	case !Accepted(g):
		return stateRefused
	case valid == nil:
		return stateInvalid
	}
	return stateValid
}

// updateStates records the current states of all known grants, because grants may have expired. It
// also sets the metric, which may have been registered since the last call.
func (c *Controller) updateStates() {
	for _, obj := range c.informer.GetStore().List() {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.states.update(name, stateOf(obj, c.now()))
		}
	}
	c.states.mu.Lock()
	defer c.states.mu.Unlock()
	c.states.writeGauge()
}

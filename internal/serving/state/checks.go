// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/internal/serving"
)

// refresh stores the current results of the checks.
func (s *State) refresh() {
	s.current.Store(s.Check() == nil)
	if s.current.Load() {
		s.passedOnce.Store(true)
	}
	s.ready.Store(s.checkReady() == nil)
}

// Ready reports whether this replica should receive requests. It is cheap.
func (s *State) Ready() bool { return s.ready.Load() }

// Current reports whether the data about the cluster is current and will remain so for a while. It
// is cheap.
func (s *State) Current() bool { return s.current.Load() && s.ready.Load() }

// Check returns why the state cannot be used, or nil if it can.
func (s *State) Check() error {
	return errors.Join(s.checkSynced(), s.checkDefinitions(), s.checkWatches())
}

// checkReady returns why this replica should not receive requests. Until Check has passed once, it
// returns the result of Check, so that an incomplete installation does not replace one that works.
// Afterwards, it ignores missing definitions. Otherwise, all replicas would become unready
// together, and kube-apiserver would also deny the system tenant.
func (s *State) checkReady() error {
	if !s.passedOnce.Load() {
		return errors.Join(s.Check(), s.checkWatchesEarly())
	}
	return errors.Join(s.checkSynced(), s.checkWatchesEarly())
}

// checkDefinitions returns an error if the definition of a deciding kind cannot be used. Without
// the objects of that kind, tenants could have more rights.
func (s *State) checkDefinitions() error {
	if len(s.required) == 0 {
		return nil
	}
	problems, known := s.cluster.CRDs.Problems()
	if !known {
		return fmt.Errorf("definitions: %w", errNotSynced)
	}
	var found []error
	for i := range problems {
		if s.isRequired(problems[i].Resource) {
			found = append(found, errors.New(problems[i].String()))
		}
	}
	return errors.Join(found...)
}

// isRequired reports whether tenants are denied if a kind is missing.
func (s *State) isRequired(resource string) bool { return slices.Contains(s.required, resource) }

func (s *State) checkSynced() error {
	for _, name := range slices.Sorted(maps.Keys(s.synced)) {
		if !s.synced[name]() {
			return fmt.Errorf("%s: %w", name, errNotSynced)
		}
	}
	return nil
}

func (s *State) checkWatches() error {
	return s.watches.check(s.staleAfter, func(resource string) bool { return !s.isRequired(resource) })
}

// checkWatchesEarly is checkWatches with half the time. A replica that is cut off becomes unready before it
// has to deny, so that other replicas receive the requests. The function checkDefinitions reports
// kinds that are not served.
func (s *State) checkWatchesEarly() error {
	return s.watches.check(s.staleAfter/2, func(string) bool { return true })
}

// Checks returns the readiness checks by name. Each informer has its own check, so that
// /readyz?verbose shows which kind is unknown, for example because its CustomResourceDefinition is
// not installed.
func (s *State) Checks() []healthz.HealthChecker {
	var informers []healthz.HealthChecker
	for _, name := range slices.Sorted(maps.Keys(s.synced)) {
		informers = append(informers, healthz.NamedCheck("informer-"+name, func(*http.Request) error {
			if !s.synced[name]() {
				return errNotSynced
			}
			return nil
		}))
	}
	return append(informers,
		healthz.NamedCheck("watches", func(*http.Request) error { return s.checkWatchesEarly() }),
		healthz.NamedCheck("definitions", func(*http.Request) error {
			err := s.checkDefinitions()
			if err != nil && !errors.Is(err, errNotSynced) {
				err = fmt.Errorf("%w: tenants are denied until you run %s", err, cluster.InstallDefinitions)
			}
			return s.degraded(err)
		}),
		healthz.NamedCheck("decisions", func(*http.Request) error {
			if !s.current.Load() {
				return s.degraded(errors.New("all requests of tenants are denied"))
			}
			return nil
		}))
}

// degraded returns an error that does not make the replica unready while the replica is ready.
func (s *State) degraded(err error) error {
	if err == nil || !s.passedOnce.Load() || !s.ready.Load() {
		return err
	}
	return serving.Degraded(err.Error())
}

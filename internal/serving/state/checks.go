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
	s.current.Store(s.check() == nil)
	if s.current.Load() {
		s.passedOnce.Store(true)
	}
	s.ready.Store(s.checkReady() == nil)
}

// Ready reports whether this replica should receive requests. It returns the result of the last
// periodic check.
func (s *State) Ready() bool { return s.ready.Load() }

// Decides reports whether requests of tenants are decided, and not denied because the data about the
// cluster is incomplete or not current. It returns the result of the last periodic check.
func (s *State) Decides() bool { return s.current.Load() }

// Current reports whether the data about the cluster is current and the replica is ready. It
// returns the result of the last periodic check.
func (s *State) Current() bool { return s.current.Load() && s.ready.Load() }

// check returns an error if callers of tenants must be denied, because the data is incomplete or
// not current. Requests use its last result, so readiness must use that result too.
func (s *State) check() error {
	return errors.Join(s.checkSynced(), s.checkDefinitions(), s.checkWatches())
}

// checkReady returns an error if this replica should not receive requests. Until check has returned
// nil once, the replica is not ready if check fails, so that an incomplete rollout does not replace
// working replicas. Afterwards, checkReady ignores missing definitions. Otherwise, all replicas
// would become unready together, and kube-apiserver would also deny the system tenant.
func (s *State) checkReady() error {
	if !s.passedOnce.Load() {
		return errors.Join(s.check(), s.checkWatchesEarly())
	}
	return errors.Join(s.checkSynced(), s.checkWatchesEarly())
}

// checkDefinitions returns an error if the CustomResourceDefinition of a required kind cannot be
// used. Without the objects of that kind, tenants could have too many rights.
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

// isRequired reports whether all tenants are denied if the CustomResourceDefinition of a resource
// is missing.
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

// checkWatchesEarly is like checkWatches, with half the duration. A replica without a connection to
// kube-apiserver becomes unready before it must deny requests, so that other replicas receive the
// requests. It ignores kinds that are not served, which checkDefinitions reports.
func (s *State) checkWatchesEarly() error {
	return s.watches.check(s.staleAfter/2, func(string) bool { return true })
}

// Checks returns the readiness checks. Each informer has its own check, so that /readyz?verbose
// shows which informer has not synced, for example because a CustomResourceDefinition is not
// installed.
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

// degraded converts an error to [serving.Degraded] if the replica is already ready, so that the
// error does not make the replica unready.
func (s *State) degraded(err error) error {
	if err == nil || !s.passedOnce.Load() || !s.ready.Load() {
		return err
	}
	return serving.Degraded(err.Error())
}

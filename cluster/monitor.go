// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// monitorEvery is the interval between two checks of the CustomResourceDefinitions. A problem
	// is reported only if two successive checks find a problem with the definition, because a new
	// definition is not established immediately.
	monitorEvery = 10 * time.Second
	// remindEvery is the interval at which a remaining problem is logged again.
	remindEvery = 10 * time.Minute
)

// DefinitionMonitor reports the CustomResourceDefinitions of the project that cannot be used. It
// reports them in the log, as a metric, as events, and to the engines that set conditions on
// Tenants.
type DefinitionMonitor struct {
	problems func() ([]DefinitionProblem, bool)
	missing  *metrics.GaugeVec

	mu       sync.RWMutex
	seen     map[string]DefinitionProblem // the problems that the last check found, keyed by resource
	reported map[string]report            // keyed by resource
	changed  map[int]func()
	next     int
}

// report is a problem that was reported and still exists.
type report struct {
	DefinitionProblem
	logged time.Time
}

// NewDefinitionMonitor returns a monitor that does nothing until [DefinitionMonitor.Run] is called.
// problems returns the current problems, and reports whether the definitions have been read.
func NewDefinitionMonitor(problems func() ([]DefinitionProblem, bool)) *DefinitionMonitor {
	return &DefinitionMonitor{
		problems: problems,
		seen:     map[string]DefinitionProblem{},
		reported: map[string]report{},
		changed:  map[int]func(){},
		missing: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace:      "kubetenant",
			Name:           "definition_missing",
			Help:           "1 if the CustomResourceDefinition of a kubetenant kind is missing or unusable, otherwise 0.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"resource"}),
	}
}

// Metrics returns the metric kubetenant_definition_missing.
func (m *DefinitionMonitor) Metrics() []metrics.Registerable {
	return []metrics.Registerable{m.missing}
}

// Undefined returns a message about the problem with a resource's CustomResourceDefinition and the
// command that fixes it. It returns "" if no problem is reported.
func (m *DefinitionMonitor) Undefined(resource string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.reported[resource]
	if !ok {
		return ""
	}
	return r.String() + ": run " + InstallDefinitions
}

// OnChange calls f after each check that reports a new problem, a changed problem or the end of a
// problem, until stop is called.
func (m *DefinitionMonitor) OnChange(f func()) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.next
	m.next++
	m.changed[id] = f
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.changed, id)
	}
}

// Run reports problems until ctx ends. If events is not nil, Run also records events with this
// client, which must be allowed to create events in the namespace default.
func (m *DefinitionMonitor) Run(ctx context.Context, events kubernetes.Interface) {
	record := func(string, *metav1.Condition, string) {}
	if events != nil {
		recorder, stop := tenants.NewRecorder(ctx, events)
		defer stop()
		record = func(name string, c *metav1.Condition, kind string) { recorder.DefinitionEvent(name, kind, c) }
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) { m.check(ctx, record) }, monitorEvery)
	m.missing.Reset() // another process may report the metric from now on
}

// check checks the definitions. It reports the changes since the last check, and reports remaining
// problems again after [remindEvery].
func (m *DefinitionMonitor) check(ctx context.Context, record func(name string, c *metav1.Condition, kind string)) {
	problems, known := m.problems()
	if !known {
		return
	}
	now := map[string]DefinitionProblem{}
	for _, p := range problems {
		now[p.Resource] = p
	}
	begun, ended, functions := m.update(now)
	for _, p := range begun {
		klog.FromContext(ctx).Error(nil, "A CustomResourceDefinition cannot be used", "definition", p.Name(),
			"state", p.State, "problem", p.Message, "install", InstallDefinitions)
		record(p.Name(), &metav1.Condition{
			Reason:  v1alpha1.ReasonDefinition,
			Message: p.String() + ": run " + InstallDefinitions,
		}, corev1.EventTypeWarning)
	}
	for _, p := range ended {
		klog.FromContext(ctx).Info("A CustomResourceDefinition can be used again", "definition", p.Name())
		record(p.Name(), &metav1.Condition{
			Reason:  v1alpha1.ReasonDefinitionUsable,
			Message: "CustomResourceDefinition " + p.Name() + " can be used again",
		}, corev1.EventTypeNormal)
	}
	for _, f := range functions {
		f()
	}
}

// update stores the result of a check. It returns the problems to report, the problems that have
// ended, and the functions that must be called because of a change. It returns a remaining problem
// again every [remindEvery].
func (m *DefinitionMonitor) update(
	now map[string]DefinitionProblem,
) (begun, ended []DefinitionProblem, functions []func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changes := false
	for _, resource := range definedResources() {
		p, isBroken := now[resource]
		last, wasReported := m.reported[resource]
		_, wasSeen := m.seen[resource]
		switch {
		case !isBroken && wasReported:
			delete(m.reported, resource)
			ended = append(ended, last.DefinitionProblem)
			changes = true
		case isBroken && (wasReported || wasSeen):
			news := !wasReported || last.DefinitionProblem != p
			changes = changes || news
			if news || time.Since(last.logged) >= remindEvery {
				begun = append(begun, p)
				last.logged = time.Now()
			}
			m.reported[resource] = report{p, last.logged}
		}
		value := 0.0
		if _, reported := m.reported[resource]; reported {
			value = 1
		}
		m.missing.WithLabelValues(resource).Set(value)
	}
	m.seen = now
	if changes {
		for f := range maps.Values(m.changed) {
			functions = append(functions, f)
		}
	}
	return begun, ended, functions
}

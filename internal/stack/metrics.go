// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
)

// decisionMetrics count the decisions of the boundary. Safe for concurrent use.
type decisionMetrics struct {
	decisions, requests, denials, gateDenials, overLimits *metrics.CounterVec

	byOutcome sync.Map // maps outcome to metrics.CounterMetric
	byTenant  sync.Map // maps tenant.ID to *tenantCounters

	// exists reports whether a tenant has a Tenant object or a namespace. If nil, every tenant
	// exists.
	exists func(tenant.ID) bool
	// usage counts the same requests in the tenants' usage. It is nil if another Stack records
	// the usage.
	usage *usage.Recorder

	mu          sync.Mutex
	max         int // maximum number of tenants with their own metrics
	withMetrics map[tenant.ID]bool
}

type outcome struct {
	verdict authz.Verdict
	reason  authz.Reason
}

type tenantCounters struct {
	label             string
	requests, denials metrics.CounterMetric
}

// Values of the label tenant for callers without their own metrics. A tenant ID cannot have these
// values, because it contains no parentheses.
const (
	otherTenants = "(others)"
	noTenant     = "(none)"
)

func newDecisionMetrics(exists func(tenant.ID) bool) *decisionMetrics {
	return &decisionMetrics{
		exists:      exists,
		withMetrics: map[tenant.ID]bool{},
		decisions: counters("authorization", "decisions_total",
			"Number of decisions of the tenant boundary, by decision and reason code. The decision is deny, "+
				"delegate if the next authorizer decides, allow if an exception applies, "+
				"or shadow-deny if the request would be denied in Enforce mode.",
			"decision", "reason"),
		requests: counters("tenant", "requests_total",
			"Number of requests and reviews that the tenant boundary decided, by the caller's tenant. "+
				"The tenant is (none) for callers without a tenant. It is (others) for tenants above the limit, "+
				"and for tenants that have neither a Tenant nor a namespace.", "tenant"),
		denials: counters("tenant", "denials_total",
			"Number of requests and reviews that the tenant boundary denied, or would have denied without Shadow mode, "+
				"by the caller's tenant.", "tenant"),
		overLimits: counters("tenant", "limited_total",
			"Number of requests that were refused with status 429 because the caller's tenant had reached a limit of fair "+
				"use, by the limit: rate, in-flight or watches. The system tenant has no limits.", "tenant", "limit"),
		gateDenials: counters("gate", "refused_total",
			"Number of writes that TenantGate refused, or would have refused without Shadow mode, by its mode.",
			"mode"),
	}
}

func counters(subsystem, name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "kubetenant",
		Subsystem:      subsystem,
		Name:           name,
		Help:           help,
		StabilityLevel: metrics.ALPHA,
	}, labels)
}

func (m *decisionMetrics) registerables() []metrics.Registerable {
	return []metrics.Registerable{m.decisions, m.requests, m.denials, m.gateDenials, m.overLimits}
}

// setMax sets the maximum number of tenants with their own metrics. It does not remove existing
// metrics.
func (m *decisionMetrics) setMax(tenants int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = tenants
}

// observe records a decision in the metrics and in the usage of the caller's tenant.
func (m *decisionMetrics) observe(_ context.Context, o authz.Outcome) {
	key := outcome{o.Verdict, o.Reason}
	counter, ok := m.byOutcome.Load(key)
	if !ok {
		counter, _ = m.byOutcome.LoadOrStore(key, m.decisions.WithLabelValues(string(o.Verdict), o.Reason.Code()))
	}
	counter.(metrics.CounterMetric).Inc()
	of := m.tenant(o.Caller)
	of.requests.Inc()
	denied := o.Verdict == authz.Denied || o.Verdict == authz.ShadowDenied
	if denied {
		of.denials.Inc()
	}
	if m.usage == nil {
		return
	}
	if denied {
		m.usage.Denied(o.Caller)
		return
	}
	m.usage.Allowed(o.Caller)
}

// recordLimit records a request that was rejected because the tenant had reached a limit of fair
// use.
func (m *decisionMetrics) recordLimit(id tenant.ID, limit string) {
	m.overLimits.WithLabelValues(m.tenant(id).label, limit).Inc()
	if m.usage != nil {
		m.usage.Limited(id)
	}
}

// tenant returns the counters of a tenant. A tenant that does not exist does not get its own
// metrics, because callers can invent any number of tenant IDs.
func (m *decisionMetrics) tenant(id tenant.ID) *tenantCounters {
	if found, ok := m.byTenant.Load(id); ok {
		return found.(*tenantCounters)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.byTenant.Load(id); ok {
		return found.(*tenantCounters)
	}
	label := noTenant
	if !id.IsZero() {
		if len(m.withMetrics) >= m.max || m.exists != nil && !m.exists(id) {
			return m.countersOf(otherTenants) // not stored, because the tenant may exist later
		}
		label = id.String()
		m.withMetrics[id] = true
	}
	of := m.countersOf(label)
	m.byTenant.Store(id, of)
	return of
}

func (m *decisionMetrics) countersOf(label string) *tenantCounters {
	return &tenantCounters{label, m.requests.WithLabelValues(label), m.denials.WithLabelValues(label)}
}

// namespaceEvents calls forget after a namespace was deleted or its owner changed, because it may
// have been the last namespace of its tenant.
type namespaceEvents struct {
	cache.ResourceEventHandler
	forget func()
}

func (e *namespaceEvents) OnUpdate(oldObj, newObj any) {
	e.ResourceEventHandler.OnUpdate(oldObj, newObj)
	before, isBefore := oldObj.(*corev1.Namespace)
	now, isNow := newObj.(*corev1.Namespace)
	if !isBefore || !isNow || authz.OwnerOf(before) != authz.OwnerOf(now) {
		e.forget()
	}
}

func (e *namespaceEvents) OnDelete(obj any) {
	e.ResourceEventHandler.OnDelete(obj)
	e.forget()
}

// forget deletes the series of tenants that no longer exist.
func (m *decisionMetrics) forget() {
	if m.exists == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.withMetrics {
		if m.exists(id) {
			continue
		}
		delete(m.withMetrics, id)
		m.byTenant.Delete(id)
		labels := map[string]string{"tenant": id.String()}
		for _, series := range []*metrics.CounterVec{m.requests, m.denials} {
			series.Delete(labels)
		}
		if m.overLimits.IsCreated() { // a Stack without Register does not create its metrics
			m.overLimits.DeletePartialMatch(labels)
		}
	}
}

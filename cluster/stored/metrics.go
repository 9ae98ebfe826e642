// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/tenant"
)

// maxMeasured is the maximum number of tenants with metrics.
const maxMeasured = 500

// Metrics are the metrics of a [Measurer]. Only the process that runs the Measurer sets them.
type Metrics struct {
	objects, bytes *metrics.GaugeVec
	errors         *metrics.Counter

	mu    sync.Mutex
	named map[tenant.ID]bool // the tenants with metrics
}

// NewMetrics returns the metrics.
func NewMetrics() *Metrics {
	gauge := func(name, help string) *metrics.GaugeVec {
		return metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace:      "kubetenant",
			Subsystem:      "tenant",
			Name:           name,
			Help:           help + " The controller measures it every 6 hours. The 500 tenants with the most objects have it.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"tenant"})
	}
	return &Metrics{
		objects: gauge("stored_objects", "Number of objects in the namespaces of a tenant."),
		bytes: gauge("stored_bytes", "Size of the objects in the namespaces of a tenant, in bytes of JSON, which is more "+
			"than their size in etcd."),
		errors: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: "kubetenant",
			Subsystem: "usage",
			Name:      "measure_errors_total",
			Help: "Number of measurements of the objects of tenants that could not read all resources, or could not write " +
				"all TenantUsages.",
			StabilityLevel: metrics.ALPHA,
		}),
		named: map[tenant.ID]bool{},
	}
}

// Registerables returns the metrics to register.
func (m *Metrics) Registerables() []metrics.Registerable {
	return []metrics.Registerable{m.objects, m.bytes, m.errors}
}

// set replaces the values of the gauges. Only the maxMeasured tenants with the most objects have
// values.
func (m *Metrics) set(all totals) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(all), func(a, b tenant.ID) int {
		return cmp.Or(cmp.Compare(all[b].objects, all[a].objects), cmp.Compare(a.String(), b.String()))
	})
	now := map[tenant.ID]bool{}
	for _, id := range ids[:min(len(ids), maxMeasured)] {
		now[id] = true
		m.objects.WithLabelValues(id.String()).Set(float64(all[id].objects))
		m.bytes.WithLabelValues(id.String()).Set(float64(all[id].bytes))
	}
	m.remove(func(id tenant.ID) bool { return now[id] })
	m.named = now
}

// retain deletes the values of the tenants for which exists returns false.
func (m *Metrics) retain(exists func(tenant.ID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(exists)
}

// empty reports whether no tenant has values.
func (m *Metrics) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.named) == 0
}

// remove is [Metrics.retain] while m.mu is locked.
func (m *Metrics) remove(exists func(tenant.ID) bool) {
	for id := range m.named {
		if exists(id) {
			continue
		}
		delete(m.named, id)
		m.objects.Delete(map[string]string{"tenant": id.String()})
		m.bytes.Delete(map[string]string{"tenant": id.String()})
	}
}

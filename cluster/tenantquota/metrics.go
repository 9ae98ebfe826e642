// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// maxMeasured is the maximum number of quotas with metrics.
const maxMeasured = 1000

// measures contains the metrics about quotas. An event handler of the informer updates them.
type measures struct {
	hard, used *metrics.GaugeVec

	mu       sync.Mutex
	measured map[string][]map[string]string // the labels of each quota's metrics, keyed by name of the quota
}

// Metrics returns the metrics about the limits and the usage of each tenant and resource. At most
// 1,000 quotas have metrics. Metrics must be called only once, before [Store.Run].
func (s *Store) Metrics() ([]metrics.Registerable, error) {
	gauge := func(name, help string) *metrics.GaugeVec {
		return metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace:      "kubetenant",
			Subsystem:      "quota",
			Name:           name,
			Help:           help,
			StabilityLevel: metrics.ALPHA,
		}, []string{"tenant", "resource"})
	}
	m := &measures{
		measured: map[string][]map[string]string{},
		hard: gauge("hard", "Limit that a tenant's TenantQuota sets, in the base unit of the resource (cores, bytes, "+
			"objects). "+
			"At most 1,000 TenantQuotas have metrics."),
		used: gauge("used", "Usage that a tenant's TenantQuota records, in the base unit of the resource (cores, bytes, "+
			"objects). "+
			"At most 1,000 TenantQuotas have metrics."),
	}
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    m.set,
		UpdateFunc: func(_, now any) { m.set(now) },
		DeleteFunc: m.remove,
	})
	return []metrics.Registerable{m.hard, m.used}, err
}

// set replaces the metrics of a quota. A quota that does not decode has no metrics.
func (m *measures) set(obj any) {
	q, err := typed.FromInformer[v1alpha1.TenantQuota](obj)
	if err != nil {
		m.remove(obj)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.measured[q.Name]; !ok && len(m.measured) >= maxMeasured {
		return
	}
	m.forget(q.Name)
	m.measured[q.Name] = append(m.add(m.hard, q.Spec.Tenant, q.Spec.Hard), m.add(m.used, q.Spec.Tenant, q.Status.Used)...)
}

// add sets the metrics for the resources in list, and returns the labels of the metrics.
func (*measures) add(gauge *metrics.GaugeVec, id string, list corev1.ResourceList) []map[string]string {
	all := make([]map[string]string, 0, len(list))
	for resource, amount := range list {
		labels := map[string]string{"tenant": id, "resource": string(resource)}
		gauge.With(labels).Set(amount.AsApproximateFloat64())
		all = append(all, labels)
	}
	return all
}

func (m *measures) remove(obj any) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(name.Name)
	delete(m.measured, name.Name)
}

func (m *measures) forget(name string) {
	for _, labels := range m.measured[name] {
		m.hard.Delete(labels)
		m.used.Delete(labels)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// accesses maps each access that a Tenant may specify to its name in the API.
func accesses() map[authz.Access]v1alpha1.TenantAccess {
	return map[authz.Access]v1alpha1.TenantAccess{
		authz.AccessOpen:     v1alpha1.TenantAccessOpen,
		authz.AccessReadOnly: v1alpha1.TenantAccessReadOnly,
		authz.AccessClosed:   v1alpha1.TenantAccessClosed,
	}
}

// Metrics returns the metric with the number of Tenants for each access.
func (s *Store) Metrics() []metrics.Registerable { return []metrics.Registerable{s.count} }

func newCount() *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "kubetenant",
		Name:           "tenants",
		StabilityLevel: metrics.ALPHA,
		Help:           "Number of Tenants by the access of their callers: Open, ReadOnly or Closed.",
	}, []string{"access"})
}

// addCount adds by to the number of Tenants with the given access.
func (s *Store) addCount(access authz.Access, by float64) {
	if name, ok := accesses()[access]; ok {
		s.count.WithLabelValues(string(name)).Add(by)
	}
}

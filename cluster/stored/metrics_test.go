// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"fmt"
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestMetrics checks that the 500 tenants with the most objects have metrics, and that the metrics
// of other tenants are removed.
func TestMetrics(t *testing.T) {
	m, registry := NewMetrics(), metrics.NewKubeRegistry()
	for _, r := range m.Registerables() {
		registry.MustRegister(r)
	}
	series := func() (byTenant map[string]float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		byTenant = map[string]float64{}
		for _, f := range families {
			for _, s := range f.GetMetric() {
				if f.GetName() == "kubetenant_tenant_stored_objects" {
					byTenant[s.GetLabel()[0].GetValue()] = s.GetGauge().GetValue()
				}
			}
		}
		return byTenant
	}
	all := totals{}
	for i := range 600 {
		all.get(tenanttest.ID(t, fmt.Sprintf("t%d", i))).objects = int64(i)
	}
	m.set(all)
	if got := series(); len(got) != maxMeasured || got["t599"] != 599 || got["t100"] != 100 {
		t.Errorf("%d series, t599 %v, t100 %v", len(got), got["t599"], got["t100"])
	}
	less := totals{tenanttest.ID(t, "t5"): {objects: 7}}
	m.set(less)
	if got := series(); len(got) != 1 || got["t5"] != 7 {
		t.Errorf("%v; want t5 only", got)
	}
	m.set(totals{tenanttest.ID(t, "t5"): {objects: 7}, tenanttest.ID(t, "ended"): {objects: 9}})
	m.retain(func(id tenant.ID) bool { return id == tenanttest.ID(t, "t5") })
	if got := series(); len(got) != 1 || got["t5"] != 7 || m.empty() {
		t.Errorf("%v; want t5 only after a tenant has ended", got)
	}
	m.set(nil)
	if got := series(); len(got) != 0 || !m.empty() {
		t.Errorf("%v; want none after the leader has changed", got)
	}
}

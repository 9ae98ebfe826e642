// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// metricSum returns the sum of all series of a metric that have the given labels. It is 0 if
// there are none.
func (w *fixture) metricSum(name string, labels ...string) (sum float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			text := ""
			for _, label := range series.GetLabel() {
				text += fmt.Sprintf("%s=%s ", label.GetName(), label.GetValue())
			}
			matches := true
			for _, label := range labels {
				matches = matches && strings.Contains(text, label+" ")
			}
			if matches {
				sum += series.GetCounter().GetValue() + series.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestDecisionMetrics checks that the metrics show the boundary's decisions for each tenant. The
// label contains the tenant's name in the configuration. Tenants that do not exist have no series
// of their own.
func TestDecisionMetrics(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, map[string]string{"acme--web": "acme", "acme-eu--web": "acme-eu", "globex--shop": "globex"})
	w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	w.write("tokens.csv", "alice-token,alice,u1,dev,,acme\nbob-token,bob,u2,dev,,globex\neve-token,eve,u4,dev,,initech\n"+
		"root-token,root,u3,ops,,system\n")
	w.write("tenancy.yaml", configHeader+clusterEntry("eu1", ", tenantMap: { acme: acme-eu }"))
	w.waitForStatus(http.StatusOK, "alice-token", "/clusters/eu1/api/v1/namespaces/acme-eu--web/pods")
	w.waitForStatus(http.StatusForbidden, "eve-token", "/clusters/eu1/api/v1/namespaces/acme-eu--web/pods")
	const requests, denials = "kubetenant_tenant_requests_total", "kubetenant_tenant_denials_total"
	before := w.metricSum(requests, "tenant=acme")
	for range 3 {
		w.get("alice-token", "/clusters/eu1/api/v1/namespaces/acme-eu--web/pods")
		w.get("alice-token", "/clusters/eu1/api/v1/namespaces/globex--shop/pods")
	}
	if got := w.metricSum(requests, "tenant=acme") - before; got != 6 {
		t.Errorf("%v requests of acme, want 6", got)
	}
	if got := w.metricSum(denials, "tenant=acme"); got < 3 {
		t.Errorf("%v denials of acme, want 3 or more", got)
	}
	if got := w.metricSum("kubetenant_authorization_decisions_total", "decision=deny"); got < 4 {
		t.Errorf("%v decisions to deny, want 4 or more", got)
	}
	for _, name := range []string{"acme-eu", "initech"} {
		if got := w.metricSum(requests, "tenant="+name); got != 0 {
			t.Errorf("%v requests of %s, which is not a tenant's name in the configuration or does not exist", got, name)
		}
	}
	if got := w.metricSum(requests, "tenant=(others)"); got < 1 {
		t.Errorf("%v requests of other tenants, want 1 or more", got)
	}
}

// TestReloadMetrics checks that the metrics report whether the gateway accepted or rejected a new
// configuration.
func TestReloadMetrics(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	const successful, reloads = "kubetenant_config_last_reload_successful", "kubetenant_config_reloads_total"
	path := "path=" + w.dir + "/tenancy.yaml"
	if got := w.metricSum(successful, path); got != 1 {
		t.Errorf("%v, want 1 at the start", got)
	}
	w.write("tenancy.yaml", configHeader+clusterEntry("eu1", ", tenantMap: { acme: globex, initech: globex }"))
	waittest.Until(t, func() error {
		if refused := w.metricSum(reloads, path, "result=error"); refused != 1 || w.metricSum(successful, path) != 0 {
			return fmt.Errorf("%v refused reloads, successful: %v", refused, w.metricSum(successful, path))
		}
		return nil
	})
	w.write("tenancy.yaml", configHeader+clusterEntry("eu1", ""))
	waittest.Until(t, func() error {
		if loaded := w.metricSum(reloads, path, "result=success"); loaded != 1 || w.metricSum(successful, path) != 1 {
			return fmt.Errorf("%v reloads, successful: %v", loaded, w.metricSum(successful, path))
		}
		return nil
	})
}

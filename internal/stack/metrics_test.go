// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestRejectedConfigurationKeepsMetricsLimit checks that a rejected configuration does not change
// the maximum number of tenants with their own metrics.
func TestRejectedConfigurationKeepsMetricsLimit(t *testing.T) {
	config := func(limit int, sources ...configv1alpha1.Source) *configv1alpha1.Settings {
		t.Helper()
		c := &configv1alpha1.Settings{
			Service:        configv1alpha1.Service{TenantMetrics: &limit},
			Authentication: configv1alpha1.Authentication{Sources: sources},
		}
		complete, err := c.Complete()
		if err != nil {
			t.Fatal(err)
		}
		return complete
	}
	stack, err := New(t.Context(), config(5), Server{Cluster: NoCluster()})
	if err != nil {
		t.Fatal(err)
	}
	missing := configv1alpha1.Source{
		Name:      "t",
		TokenFile: &configv1alpha1.CredentialFile{Path: filepath.Join(t.TempDir(), "missing.csv")},
	}
	if _, err := newSnapshot(t.Context(), stack.shared, config(7, missing)); err == nil {
		t.Fatal("a configuration with a missing token file was accepted")
	}
	if got := stack.shared.decisions.max; got != 5 {
		t.Errorf("the limit is %d", got)
	}
}

// TestTenantMetricsAreBounded checks that the number of tenants with metrics stays within the limit,
// even with many concurrent callers. Every request is counted once.
func TestTenantMetricsAreBounded(t *testing.T) {
	const tenants, limit, each = 50, 10, 20
	m := newDecisionMetrics(nil)
	registry := metrics.NewKubeRegistry()
	for _, r := range m.registerables() {
		registry.MustRegister(r)
	}
	m.setMax(limit)
	var wg sync.WaitGroup
	for n := range each {
		for i := range tenants {
			wg.Go(func() {
				id, err := tenant.Parse(fmt.Sprintf("t%d", i))
				if err != nil {
					t.Error(err)
				}
				verdict := authz.Delegated
				if n%2 == 0 {
					verdict = authz.Denied
				}
				m.observe(context.Background(), authz.Outcome{Caller: id, Verdict: verdict, Reason: authz.ReasonNotOwned})
			})
		}
	}
	wg.Wait()
	m.observe(context.Background(), authz.Outcome{Verdict: authz.ShadowDenied, Reason: authz.ReasonNoTenant})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums, labels := map[string]float64{}, map[string]int{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			sums[f.GetName()] += metric.GetCounter().GetValue()
			labels[f.GetName()]++
		}
	}
	const all = tenants*each + 1
	if sums["kubetenant_tenant_requests_total"] != all || sums["kubetenant_authorization_decisions_total"] != all ||
		sums["kubetenant_tenant_denials_total"] != tenants*each/2+1 {
		t.Errorf("counted %v", sums)
	}
	if n := labels["kubetenant_tenant_requests_total"]; n != limit+2 { // plus (others) and (none)
		t.Errorf("%d tenants have metrics", n)
	}
	if _, err := testutil.GetCounterMetricValue(m.requests.WithLabelValues(otherTenants)); err != nil {
		t.Error(err)
	}
}

// TestDecisionMetricsHaveReasonCodes checks that the label reason contains the code of a reason
// and never its text.
func TestDecisionMetricsHaveReasonCodes(t *testing.T) {
	m := newDecisionMetrics(nil)
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(m.decisions)
	for _, r := range append(authz.Reasons(), authz.ReasonNone) {
		m.observe(t.Context(), authz.Outcome{Verdict: authz.Denied, Reason: r})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, series := range families[0].GetMetric() {
		for _, label := range series.GetLabel() {
			if label.GetName() == "reason" {
				labels = append(labels, label.GetValue())
			}
		}
	}
	if len(labels) != len(authz.Reasons())+1 || !slices.Contains(labels, "NamespaceNotOwned") ||
		!slices.Contains(labels, "") {
		t.Errorf("the labels are %q", labels)
	}
	for _, label := range labels {
		if !regexp.MustCompile(`^[A-Za-z]*$`).MatchString(label) {
			t.Errorf("the label %q is not a code", label)
		}
	}
}

// TestMetricsOfDeletedTenantsAreRemoved checks that a tenant has its own metrics only while it has
// a Tenant object or a namespace. Short-lived tenants and invented names therefore leave no series
// behind, and do not use up the maximum number of tenants.
func TestMetricsOfDeletedTenantsAreRemoved(t *testing.T) {
	namespaces := map[string][]string{}
	known := &clusterParts{namespaces: &lookuptest.Namespaces{Owned: func(id tenant.ID) ([]string, error) {
		if id.String() == "unknown" {
			return nil, errors.New("not read yet")
		}
		return namespaces[id.String()], nil
	}}}
	m := newDecisionMetrics(known.exists)
	registry := metrics.NewKubeRegistry()
	for _, r := range m.registerables() {
		registry.MustRegister(r)
	}
	m.setMax(3)
	observe := func(names ...string) {
		t.Helper()
		for _, name := range names {
			id, err := tenant.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			m.observe(t.Context(), authz.Outcome{Caller: id, Verdict: authz.Denied, Reason: authz.ReasonNotOwned})
		}
	}
	counted := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]float64{}
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				if f.GetName() == "kubetenant_tenant_denials_total" {
					all[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
				}
			}
		}
		return all
	}
	namespaces["verify-a"], namespaces["acme"] = []string{"verify-a--isolation"}, []string{"acme--shop"}
	observe("verify-a", "acme", "never", "unknown")
	if got, want := counted(), (map[string]float64{
		"verify-a":   1,
		"acme":       1,
		"unknown":    1,
		otherTenants: 1,
	}); !maps.Equal(got, want) {
		t.Errorf("counted %v; want %v", got, want)
	}
	delete(namespaces, "verify-a")
	namespaces["globex"] = []string{"globex--shop"}
	told := &namespaceEvents{cache.ResourceEventHandlerFuncs{}, m.forget}
	told.OnDelete(&corev1.Namespace{})
	observe("verify-a", "acme", "globex", "initech")
	if got, want := counted(), (map[string]float64{
		"acme":       2,
		"unknown":    1,
		"globex":     1,
		otherTenants: 3,
	}); !maps.Equal(got, want) {
		t.Errorf("after the deletion of verify-a: counted %v; want %v", got, want)
	}
	delete(namespaces, "globex")
	labelled := func(id string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{tenant.Label: id}}}
	}
	told.OnUpdate(labelled("globex"), labelled("globex"))
	if got := counted(); got["globex"] != 1 {
		t.Errorf("after an update without a change of the owner: counted %v", got)
	}
	told.OnUpdate(labelled("globex"), labelled("acme"))
	if got := counted(); got["globex"] != 0 || got["acme"] != 2 {
		t.Errorf("after a change of the owner: counted %v", got)
	}
}

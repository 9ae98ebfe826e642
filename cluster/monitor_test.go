// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/deploy"
)

// monitored is a monitor that observes the problems that a test sets.
type monitored struct {
	*cluster.DefinitionMonitor
	mu       sync.Mutex
	problems []cluster.DefinitionProblem
	unknown  bool
}

func (m *monitored) set(problems ...cluster.DefinitionProblem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = problems
}

func monitor() *monitored {
	m := &monitored{}
	m.DefinitionMonitor = cluster.NewDefinitionMonitor(func() ([]cluster.DefinitionProblem, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.problems, !m.unknown
	})
	return m
}

// values returns the resources for which the metric is 1, and the number of all resources in the
// metric.
func values(t *testing.T, r metrics.KubeRegistry) (set string, all int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all++
			if m.GetGauge().GetValue() == 1 {
				of[m.GetLabel()[0].GetValue()] = true
			}
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(of)), ","), all
}

// TestMonitor checks that a problem that two checks find is logged, set in the metric, recorded as
// an event and reported to the engines. It is logged again at a limited rate. Its end is reported
// within a minute.
func TestMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client, registry := monitor(), fake.NewClientset(), metrics.NewKubeRegistry()
		for _, one := range m.Metrics() {
			registry.MustRegister(one)
		}
		changes := 0
		stop := m.OnChange(func() { changes++ })
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		defer cancel()
		go m.Run(ctx, client)
		logged := func() int {
			text := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			return strings.Count(text, "A CustomResourceDefinition cannot be used")
		}
		events := func() (said []string) {
			list, err := client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list.Items {
				said = append(said, e.Type+" "+e.Reason+" "+e.InvolvedObject.Name)
			}
			slices.Sort(said)
			return said
		}
		time.Sleep(time.Minute)
		if set, all := values(t, registry); set != "" || all != len(deploy.Definitions()) || changes != 0 || logged() != 0 {
			t.Errorf("without a problem: %q of %d, %d changes", set, all, changes)
		}
		missing := cluster.DefinitionProblem{
			Resource: "retiredtenants",
			State:    cluster.DefinitionMissing,
			Message:  "is missing",
		}
		m.set(missing)
		time.Sleep(time.Minute)
		set, _ := values(t, registry)
		want := "CustomResourceDefinition retiredtenants.kubetenant.dev is missing: run " + cluster.InstallDefinitions
		if set != "retiredtenants" || changes != 1 || logged() != 1 || m.Undefined("retiredtenants") != want ||
			m.Undefined("tenants") != "" {
			t.Errorf("a minute later: %q, %d changes, %d lines, %q", set, changes, logged(), m.Undefined("retiredtenants"))
		}
		if got := events(); !slices.Equal(got,
			[]string{corev1.EventTypeWarning + " DefinitionMissing retiredtenants.kubetenant.dev"}) {
			t.Errorf("events: %q", got)
		}
		time.Sleep(time.Hour)
		if n := logged(); n < 4 || n > 8 || changes != 1 {
			t.Errorf("an hour later: %d lines, %d changes", n, changes)
		}
		m.set()
		time.Sleep(time.Minute)
		if set, _ := values(t, registry); set != "" || changes != 2 || m.Undefined("retiredtenants") != "" ||
			len(events()) != 2 {
			t.Errorf("after the problem ended: %q, %d changes, %q", set, changes, events())
		}
		stop()
		cancel()
		synctest.Wait()
		if _, all := values(t, registry); all != 0 {
			t.Errorf("the metric still has %d values after Run ended", all)
		}
	})
}

// TestMonitorIgnoresShortProblems checks that a problem that only one check finds is not reported.
// No problem is reported before the definitions have been read.
func TestMonitorIgnoresShortProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := monitor()
		m.unknown = true
		changes := 0
		m.OnChange(func() { changes++ })
		go m.Run(t.Context(), nil)
		created := cluster.DefinitionProblem{
			Resource: "tenants",
			State:    cluster.DefinitionNotEstablished,
			Message:  "is not established",
		}
		m.set(created)
		time.Sleep(time.Hour)
		m.mu.Lock()
		m.unknown = false
		m.mu.Unlock()
		time.Sleep(9 * time.Second)
		m.set()
		time.Sleep(time.Hour)
		if changes != 0 || m.Undefined("tenants") != "" {
			t.Errorf("%d changes, %q", changes, m.Undefined("tenants"))
		}
	})
}

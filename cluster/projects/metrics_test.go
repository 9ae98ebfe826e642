// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects_test

import (
	"testing"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/cluster/projects"
)

// TestMetricsOfFollower checks the metrics behind the Keystone sync alert. Until the first
// successful read, the last-success timestamp is the time at which the process began to follow
// Keystone. Further attempts to open the source do not change it. The timestamp and the interval
// are 0 if the process does not follow Keystone.
func TestMetricsOfFollower(t *testing.T) {
	m := projects.NewMetrics()
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(m.Metrics()...)
	shows := func(when string, last, interval float64) {
		t.Helper()
		got := map[string]float64{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		if got["kubetenant_keystone_sync_last_success_timestamp_seconds"] != last ||
			got["kubetenant_keystone_sync_interval_seconds"] != interval {
			t.Errorf("%s: %v, want %v and %v", when, got, last, interval)
		}
	}
	shows("at first", 0, 0)
	m.Follow(time.Minute, time.Unix(100, 0))
	shows("followed", 100, 60)
	m.Follow(time.Hour, time.Unix(200, 0))
	shows("tried again, with another interval", 100, 3600)
	m.Stop()
	shows("stopped", 0, 0)
	m.Stop()
	m.Follow(time.Minute, time.Unix(300, 0))
	shows("followed again", 300, 60)
}

package projects_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/cluster/projects"
)

// TestMetricsOfAFollower: the alerts depend on the time since which a process follows Keystone. It does
// not start again with each attempt to open the source, and is 0 if the process follows none.
func TestMetricsOfAFollower(t *testing.T) {
	m := projects.NewMetrics()
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(m.Metrics()...)
	shows := func(when string, last, interval string) {
		t.Helper()
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kubetenant_keystone_sync_interval_seconds [ALPHA] Configured time between two reads of Keystone, or 0 if the process follows none.
# TYPE kubetenant_keystone_sync_interval_seconds gauge
kubetenant_keystone_sync_interval_seconds `+interval+`
# HELP kubetenant_keystone_sync_last_success_timestamp_seconds [ALPHA] Time of the last complete read of Keystone's projects and roles in seconds since the Unix epoch. Before the first one, the time at which the process began to follow Keystone. 0 if it follows none.
# TYPE kubetenant_keystone_sync_last_success_timestamp_seconds gauge
kubetenant_keystone_sync_last_success_timestamp_seconds `+last+`
`), "kubetenant_keystone_sync_interval_seconds", "kubetenant_keystone_sync_last_success_timestamp_seconds")
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	shows("at first", "0", "0")
	m.Follow(time.Minute, time.Unix(100, 0))
	shows("followed", "100", "60")
	m.Follow(time.Hour, time.Unix(200, 0))
	shows("tried again, with another interval", "100", "3600")
	m.Stop()
	shows("stopped", "0", "0")
	m.Stop()
	m.Follow(time.Minute, time.Unix(300, 0))
	shows("followed again", "300", "60")
}

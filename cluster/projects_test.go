// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/projects"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// TestFollowProjectsOfBrokenSource checks that the metric shows a source that cannot be opened like
// a Keystone that cannot be read, so that the alert fires. The metric is 0, and no alert fires,
// while no source is configured.
func TestFollowProjectsOfBrokenSource(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "clouds.yaml")
	synctest.Test(t, func(t *testing.T) {
		known := &cluster.Cluster{Projects: projects.NewMetrics()}
		broken := &configv1alpha1.Source{Name: "openstack", Keystone: &configv1alpha1.Keystone{
			CloudsFile: missing,
			Sync:       &configv1alpha1.KeystoneSync{Interval: &metav1.Duration{Duration: time.Minute}},
		}}
		registry := metrics.NewKubeRegistry()
		registry.MustRegister(known.Projects.Metrics()...)
		last := func() float64 {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "kubetenant_keystone_sync_last_success_timestamp_seconds" {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			t.Fatal("the metric is missing")
			return 0
		}
		var source atomic.Pointer[configv1alpha1.Source]
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- known.FollowProjects(ctx, cluster.Manager{}, source.Load) }()
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		wait(time.Minute)
		if at := last(); at != 0 {
			t.Errorf("without a source: %v", at)
		}
		began := time.Now()
		source.Store(broken)
		wait(time.Hour)
		if at := time.Unix(int64(last()), 0); at.Before(began.Add(-time.Second)) || at.After(began.Add(time.Minute)) {
			t.Errorf("followed since %v, want %v", at, began)
		}
		source.Store(nil)
		wait(5 * time.Second)
		if at := last(); at != 0 {
			t.Errorf("after the source was removed: %v", at)
		}
		source.Store(broken)
		wait(time.Minute)
		cancel()
		if err := <-ended; err != nil || last() != 0 {
			t.Errorf("after the end: %v, %v", last(), err)
		}
	})
}

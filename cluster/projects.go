// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/projects"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

const (
	// sourceEvery is the interval at which [Cluster.FollowProjects] checks whether the source has
	// changed.
	sourceEvery = time.Second
	// openEvery is the delay before a failed source is opened again.
	openEvery = 10 * time.Second
)

// FollowProjects runs the syncer of package projects for the Keystone that a source specifies,
// until ctx ends. source returns the current source, or nil if no source is configured. Only one
// process at a time may run it. c.TenantStore must be running.
func (c *Cluster) FollowProjects(ctx context.Context, m Manager, source func() *configv1alpha1.Source) error {
	defer c.Projects.Stop()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		current := source()
		if current == nil {
			c.Projects.Stop()
			return
		}
		c.Projects.Follow(current.Keystone.Sync.Interval.Duration, time.Now())
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go wait.UntilWithContext(ctx, func(context.Context) {
			if !equality.Semantic.DeepEqual(source(), current) {
				stop()
			}
		}, sourceEvery)
		if err := c.followSource(ctx, m, current); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to follow the projects of Keystone, will retry", "source", current.Name)
			select {
			case <-ctx.Done():
			case <-time.After(openEvery):
			}
		}
	}, sourceEvery)
	return nil
}

func (c *Cluster) followSource(ctx context.Context, m Manager, source *configv1alpha1.Source) error {
	settings, err := projects.SettingsOf(source)
	if err != nil {
		return err
	}
	report := func(path string, err error) {
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to reload a file, its last version applies", "path", path)
		}
	}
	reader, run, err := projects.Open(source, report)
	if err != nil {
		return err
	}
	go run(ctx)
	return projects.New(projects.Options{
		Settings:   settings,
		Reader:     reader,
		Client:     m.Typed,
		Dynamic:    m.Dynamic,
		Tenants:    c.TenantStore,
		Namespaces: c.namespaces,
		OwnerOf:    c.owners.OwnerOf,
		Metrics:    c.Projects,
	}).Run(ctx)
}

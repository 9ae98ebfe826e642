// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/internal/serving/leader"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/usage"
)

// leadership manages the tasks of the leader. These tasks send writes to the server itself, so they
// must end before the server stops serving.
type leadership struct {
	mu      sync.Mutex
	stopped bool
	cancel  context.CancelFunc
	done    chan struct{}
	// usage writes the usage records of tenants. It is nil if usage is not recorded.
	usage *usage.Running
}

// startUsage starts to record the usage of tenants. Each server records it, even if it is not the
// leader. The recording ends when the channel drained closes, which is after the last request. If
// drained is nil, the recording ends with ctx. After stop, startUsage does nothing.
func (l *leadership) startUsage(
	ctx context.Context, s *stack.Stack, objects dynamic.Interface, drained <-chan struct{},
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	if drained == nil {
		drained = ctx.Done()
	}
	ctx = context.WithoutCancel(ctx)
	running := s.StartUsage(ctx, usage.KubeAPIServer, objects)
	l.usage = running
	go func() {
		<-drained
		running.Stop(ctx)
	}()
}

// stopUsage writes the last usage records. The server calls it after the last request.
func (l *leadership) stopUsage() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usage != nil {
		l.usage.Stop(context.Background())
	}
}

// start runs work in a goroutine. The context of work ends with ctx, or when stop is called.
// After stop, start does nothing.
func (l *leadership) start(ctx context.Context, work func(context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	ctx, l.cancel = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		work(ctx)
	}()
}

// stop is a hook that runs before the server shuts down. It ends the tasks, which releases the
// Lease, so that another server or the next process can immediately become the leader. It also
// writes the last TenantUsages. It always returns nil, because after an error the server would not
// wait for its active requests.
func (l *leadership) stop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.usage != nil {
		defer l.usage.SaveTenantUsages(context.Background())
	}
	if l.cancel == nil {
		return nil
	}
	l.cancel()
	select {
	case <-l.done:
	case <-time.After(leader.ShutdownTimeout + time.Second):
	}
	return nil
}

// lead runs the tasks of the leader until ctx ends. These tasks calculate the usage of quotas,
// measure stored objects, prepare namespaces as their Tenants specify, and delete the objects of
// deleted tenants. They also report unusable CustomResourceDefinitions, and sync Keystone
// projects. Only one server may run the tasks at a time, because a server with a stale cache
// would treat objects that are missing from the cache as deleted.
func lead(
	ctx context.Context, config *rest.Config, c *cluster.Cluster, manager cluster.Manager, s *stack.Stack,
) {
	provision := func(ctx context.Context) error {
		return c.Provision(ctx, manager, s.DerivesRights, s.SharedClusterResources, s.PublicationRules, "")
	}
	retire := func(ctx context.Context) error { return c.Retire(ctx, manager) }
	report := func(ctx context.Context) error { return c.ReportDefinitions(ctx, manager) }
	follow := func(ctx context.Context) error { return c.FollowProjects(ctx, manager, s.SyncedKeystone) }
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		lease := leader.Lease{Namespace: metav1.NamespaceSystem, Name: "kubetenant-controller"}
		err := leader.Run(ctx, config, lease, c.CountQuotas, provision, retire, report, follow,
			c.MeasureStored)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Another server is the leader: it calculates quota usage, "+
				"measures what tenants store, prepares namespaces and deletes tenants",
				"err", err)
		}
	}, time.Second)
}

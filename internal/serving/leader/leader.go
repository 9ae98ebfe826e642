// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package leader runs tasks that must run in only one process at a time. A Lease identifies this
// process, the leader.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// The durations of the Lease. They are the defaults of kube-controller-manager
// (k8s.io/component-base config/v1alpha1, v0.37.1).
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// taskTimeout is the maximum time for which [Run] waits for its tasks to return. releaseTimeout is
// the maximum time for the release of the Lease.
const (
	taskTimeout    = 5 * time.Second
	releaseTimeout = 3 * time.Second
)

// ShutdownTimeout is the maximum time for which [Run] runs after its context has ended.
const ShutdownTimeout = taskTimeout + releaseTimeout

var (
	// errLost makes Run return, because another process may now write the same objects.
	errLost  = errors.New("another replica is the leader now")
	errStuck = errors.New("a task of the leader did not end in time, so the Lease is not released and must expire")
)

// Lease identifies the Lease object for which the processes compete.
type Lease struct {
	Namespace, Name string
	// LeadingChanged is called with true when this process becomes the leader, and with false when
	// it is no longer the leader. It may be nil.
	LeadingChanged func(bool)
}

// Task runs on the leader until ctx ends. It MUST NOT write anything after it has returned.
type Task func(ctx context.Context) error

// Run runs the tasks while this process is the leader. It returns after ctx has ended, a task has
// failed, or the Lease was lost. It releases the Lease only after all tasks have returned, so that
// the tasks of two processes do not run at the same time. If a task does not return in time, Run
// does not release the Lease, which then expires.
func Run(ctx context.Context, config *rest.Config, lease Lease, tasks ...Task) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: lease.Name, Namespace: lease.Namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
	elected, lost := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Name:          lease.Name,
		// ReleaseOnCancel is not set, because it would release the Lease while tasks still run.
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() { close(lost) },
		},
	})
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	go elector.Run(electing)
	select {
	case <-elected:
		err = lead(ctx, lease, lost, tasks)
	case <-ctx.Done():
	}
	resign()
	<-lost
	if !errors.Is(err, errStuck) {
		release(ctx, lock)
	}
	return err
}

// lead runs the tasks until ctx ends, a task fails, or lost is closed. It returns after all tasks
// have returned. If they do not return in time, it returns errStuck.
func lead(ctx context.Context, lease Lease, lost <-chan struct{}, tasks []Task) error {
	if lease.LeadingChanged != nil {
		lease.LeadingChanged(true)
		defer lease.LeadingChanged(false)
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return errLost
		}
	})
	for _, task := range tasks {
		running.Go(func() error {
			if err := task(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	<-ctx.Done()
	select {
	case err := <-ended:
		return err
	case <-time.After(taskTimeout):
		return errStuck
	}
}

// release releases the Lease, so that another process can become the leader immediately. It does
// the same as [leaderelection.LeaderElector] with ReleaseOnCancel (k8s.io/client-go v0.37.1).
func release(ctx context.Context, lock *resourcelock.LeaseLock) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := lock.Get(ctx)
		if err != nil || record.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1,
			AcquireTime:          now,
			RenewTime:            now,
			LeaderTransitions:    record.LeaderTransitions,
		})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		logger.Info("Failed to release the Lease, which must expire", "lease", lock.Describe(), "err", err)
	}
}

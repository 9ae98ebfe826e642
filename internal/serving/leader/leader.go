// Package leader does what one process at a time must do: counting quotas, labelling
// objects that were there before the webhooks, giving what Tenants say, keeping
// certificates. A Lease says who does it.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the Lease, those of kube-controller-manager (k8s.io/component-base
// config/v1alpha1, v0.37.1).
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// errLost ends the process: what it was about to write may be another's to write now.
var errLost = errors.New("another replica is the leader now")

// Lease says who of several leads.
type Lease struct {
	Namespace, Name string
	// Leading is told when this process begins and ceases to lead; nil for nobody.
	Leading func(bool)
}

// Task is done by the leader until ctx ends.
type Task func(ctx context.Context) error

// Run does the tasks while this process leads, until ctx ends, a task fails or the lead is lost.
func Run(ctx context.Context, config *rest.Config, lease Lease, tasks ...Task) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leading := lease.Leading
	if leading == nil {
		leading = func(bool) {}
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(tasks)+1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: lease.Name, Namespace: lease.Namespace},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Name:            lease.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				leading(true)
				for _, task := range tasks {
					go func() {
						if err := task(ctx); err != nil && ctx.Err() == nil {
							ended <- err
						}
					}()
				}
			},
			OnStoppedLeading: func() {
				leading(false)
				ended <- errLost
			},
		},
	})
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}
	go elector.Run(ctx)
	select {
	case <-ctx.Done():
		// The Lease is released by then.
		if err := <-ended; !errors.Is(err, errLost) {
			return err
		}
		return nil
	case err := <-ended:
		return err
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/serving/leader"
)

// leaseServer is a fake API server that stores one Lease. Like a real server, it rejects an update
// of an older version, for example one that was sent before the Lease was released.
type leaseServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	steals  bool // another process holds the Lease, so writes fail
}

func (l *leaseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "/namespaces/kube-system/leases") &&
		!strings.HasSuffix(r.URL.Path, "/namespaces/kube-system/leases/tasks") {
		http.Error(w, "{}", http.StatusForbidden)
		return
	}
	switch {
	case r.Method == http.MethodGet && l.lease == nil:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		return
	case r.Method != http.MethodGet:
		lease := &coordinationv1.Lease{}
		if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if l.steals || l.lease != nil && lease.ResourceVersion != l.lease.ResourceVersion {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`))
			return
		}
		l.version++
		lease.ResourceVersion = strconv.Itoa(l.version)
		l.lease = lease
	}
	_ = json.NewEncoder(w).Encode(l.lease)
}

func (l *leaseServer) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || l.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.lease.Spec.HolderIdentity
}

func (l *leaseServer) steal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steals = true
}

func start(t *testing.T) (*leaseServer, *rest.Config) {
	t.Helper()
	l := &leaseServer{}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	return l, &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

var lease = leader.Lease{Namespace: "kube-system", Name: "tasks"}

// waitClosed waits until a channel closes.
func waitClosed(t *testing.T, told <-chan struct{}) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Fatal("the channel was not closed")
	}
}

// TestOneProcessLeads checks that one process runs the tasks while a second process waits. When
// the first process ends, it releases the Lease, and the second process becomes the leader.
func TestOneProcessLeads(t *testing.T) {
	t.Parallel()
	l, config := start(t)
	told := make(chan bool, 2)
	first, second := make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		of := lease
		of.LeadingChanged = func(leads bool) { told <- leads }
		ended <- leader.Run(ctx, config, of, func(ctx context.Context) error {
			close(first)
			<-ctx.Done()
			return ctx.Err() // not a failure, because ctx has ended
		})
	}()
	waitClosed(t, first)
	if !<-told || l.holder() == "" {
		t.Error("the process that runs the tasks is not the leader")
	}
	others, end := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		waiting <- leader.Run(others, config, lease, func(context.Context) error {
			close(second)
			return nil
		})
	}()
	select {
	case <-second:
		t.Fatal("two processes run the tasks")
	case <-time.After(3 * time.Second): // longer than the retry period
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v", err)
	}
	if <-told {
		t.Error("LeadingChanged was not called with false")
	}
	waitClosed(t, second)
	end()
	if err := <-waiting; err != nil || l.holder() != "" {
		t.Errorf("Run() = %v, the Lease is held by %q", err, l.holder())
	}
}

// TestFailedTaskReleasesLease checks that Run returns the error of a failed task after it has
// stopped the other tasks.
func TestFailedTaskReleasesLease(t *testing.T) {
	t.Parallel()
	_, config := start(t)
	failure, over := errors.New("disk full"), make(chan struct{})
	err := leader.Run(t.Context(), config, lease, func(context.Context) error { return failure },
		func(ctx context.Context) error {
			<-ctx.Done()
			close(over)
			return nil
		})
	if !errors.Is(err, failure) {
		t.Errorf("Run() = %v, want %v", err, failure)
	}
	waitClosed(t, over)
}

// TestLostLeaseEndsTasks checks that a process that cannot renew the Lease stops writing.
func TestLostLeaseEndsTasks(t *testing.T) {
	t.Parallel()
	l, config := start(t)
	leads, over := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- leader.Run(t.Context(), config, lease, func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			close(over)
			return nil
		})
	}()
	waitClosed(t, leads)
	l.steal()
	waitClosed(t, over)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "another replica is the leader") {
		t.Errorf("Run() = %v", err)
	}
}

// TestNoLeaderIfLeasesAreRejected checks that no process becomes the leader if the server rejects
// Leases.
func TestNoLeaderIfLeasesAreRejected(t *testing.T) {
	t.Parallel()
	_, config := start(t)
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	if err := leader.Run(ctx, config, leader.Lease{Namespace: "elsewhere", Name: "tasks"}, func(context.Context) error {
		t.Error("the tasks run without a Lease")
		return nil
	}); err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// TestLeaseIsReleasedAfterTasks checks that no other process becomes the leader before a task has
// returned, because the task may write until then.
func TestLeaseIsReleasedAfterTasks(t *testing.T) {
	t.Parallel()
	l, config := start(t)
	leads, writing, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- leader.Run(ctx, config, lease, func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			close(writing)
			<-finish
			return nil
		})
	}()
	waitClosed(t, leads)
	stop()
	waitClosed(t, writing)
	select {
	case err := <-ended:
		t.Fatalf("Run() = %v while a task writes", err)
	case <-time.After(time.Second):
	}
	if l.holder() == "" {
		t.Error("the Lease is released while a task writes")
	}
	close(finish)
	if err := <-ended; err != nil || l.holder() != "" {
		t.Errorf("Run() = %v, the Lease is held by %q", err, l.holder())
	}
}

// TestFailedTaskWaitsForOtherTasks checks that, if a task fails, no other process becomes the
// leader before the other tasks have returned.
func TestFailedTaskWaitsForOtherTasks(t *testing.T) {
	t.Parallel()
	l, config := start(t)
	failure, held := errors.New("disk full"), make(chan bool, 1)
	err := leader.Run(t.Context(), config, lease, func(context.Context) error { return failure },
		func(ctx context.Context) error {
			<-ctx.Done()
			held <- l.holder() != ""
			return nil
		})
	if !errors.Is(err, failure) || !<-held || l.holder() != "" {
		t.Errorf("Run() = %v, the Lease is held by %q", err, l.holder())
	}
}

// TestStuckTaskPreventsRelease checks that the Lease is not released if a task does not end, because
// the task may still write.
func TestStuckTaskPreventsRelease(t *testing.T) {
	t.Parallel()
	l, config := start(t)
	leads, never := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(never) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- leader.Run(ctx, config, lease, func(context.Context) error {
			close(leads)
			<-never
			return nil
		})
	}()
	waitClosed(t, leads)
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "did not end in time") || l.holder() == "" {
		t.Errorf("Run() = %v, the Lease is held by %q", err, l.holder())
	}
}

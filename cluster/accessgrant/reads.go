// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/internal/budget"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// readsPerSecond and readBurst limit the rate of live reads for each tenant that uses grants.
	// Concurrent requests from one tenant that use the same grant share a read.
	readsPerSecond = 50
	readBurst      = 100
	// readTimeout is the maximum duration of one read, including the time that it waits for the
	// rate limit.
	readTimeout = 2 * time.Second
)

// reads reads grants from the server. Concurrent requests from one tenant share one read of a
// grant. A request never uses a read that began before the request, because the grant may have been
// revoked after that read. It is safe for concurrent use.
type reads struct {
	read    func(context.Context, cache.ObjectName) (*accessgrant.Grant, error)
	budgets *budget.Budgets // the rate limit of each tenant

	mu sync.Mutex
	// last has the newest unfinished read for each key. waiting has this read only until it begins.
	last, waiting map[readKey]*pendingRead
}

// readKey identifies the reads of a grant for a tenant. Tenants do not share reads, because each
// tenant has its own rate limit.
type readKey struct {
	tenant tenant.ID
	grant  cache.ObjectName
}

// pendingRead is a read whose result one or more requests wait for.
type pendingRead struct {
	before *pendingRead // the previous read of the same grant for the same tenant, or nil
	done   chan struct{}
	found  *accessgrant.Grant
	err    error
}

func newReads(read func(context.Context, cache.ObjectName) (*accessgrant.Grant, error)) *reads {
	return &reads{
		read:    read,
		budgets: budget.New(readsPerSecond, readBurst),
		last:    map[readKey]*pendingRead{},
		waiting: map[readKey]*pendingRead{},
	}
}

// readLive returns the state of a grant at some time after the call began. It returns nil if the
// grant does not exist or allows nothing. The read uses the rate limit of the tenant by.
func (r *reads) readLive(ctx context.Context, by tenant.ID, namespace, name string) (*accessgrant.Grant, error) {
	key := readKey{by, cache.NewObjectName(namespace, name)}
	r.mu.Lock()
	s, ok := r.waiting[key]
	if !ok {
		s = &pendingRead{before: r.last[key], done: make(chan struct{})}
		r.waiting[key], r.last[key] = s, s
		go r.run(context.WithoutCancel(ctx), key, s) // other requests may wait for the read too
	}
	r.mu.Unlock()
	select {
	case <-s.done:
		return s.found, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run reads the grant after the previous read has ended.
func (r *reads) run(ctx context.Context, key readKey, s *pendingRead) {
	if s.before != nil {
		<-s.before.done
		s.before = nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := r.budgets.Limiter(key.tenant.String()).Wait(ctx)
	r.mu.Lock()
	delete(r.waiting, key) // later requests wait for the next read
	r.mu.Unlock()
	if err != nil {
		s.err = fmt.Errorf("too many grants are checked at the same time: %w", err)
	} else {
		s.found, s.err = r.read(ctx, key.grant)
	}
	r.mu.Lock()
	if r.last[key] == s {
		delete(r.last, key)
	}
	r.mu.Unlock()
	close(s.done)
}

// read reads a grant from the server. It returns nil if the grant does not exist or allows nothing.
func read(ctx context.Context, client dynamic.Interface, name cache.ObjectName) (*accessgrant.Grant, error) {
	u, err := client.Resource(accessGrants()).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return grantOf(typed.Strict[v1alpha1.AccessGrant](u))
}

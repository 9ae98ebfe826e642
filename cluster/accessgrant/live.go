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

	"github.com/kubetenant/kubetenant/authz/grant"
	"github.com/kubetenant/kubetenant/internal/budget"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// readsPerSecond and readBurst bound the live reads for each tenant that uses grants. However many
	// requests use one grant, they share its reads.
	readsPerSecond = 50
	readBurst      = 100
	// readWithin bounds one read with the wait for it.
	readWithin = 2 * time.Second
)

// reads reads grants live: of each, once at a time for all who wait. A read that began
// before a request did is not for that request, which may come after the grant was taken
// back. Safe for concurrent use.
type reads struct {
	read    func(context.Context, cache.ObjectName) (*grant.Grant, error)
	budgets *budget.Budgets // by tenant

	mu sync.Mutex
	// last are the newest reads of each grant by a tenant, and waiting those of
	// them that have not begun.
	last, waiting map[use]*shared
}

// use is of a grant by a tenant: who has used up its budget must not answer for another.
type use struct {
	by tenant.ID
	of cache.ObjectName
}

// shared is a read that several wait for.
type shared struct {
	before *shared // of the same grant
	done   chan struct{}
	found  *grant.Grant
	err    error
}

func newReads(read func(context.Context, cache.ObjectName) (*grant.Grant, error)) *reads {
	return &reads{
		read:    read,
		budgets: budget.New(readsPerSecond, readBurst),
		last:    map[use]*shared{},
		waiting: map[use]*shared{},
	}
}

// live returns a grant as the server has it after the call began.
func (r *reads) live(ctx context.Context, by tenant.ID, namespace, name string) (*grant.Grant, error) {
	of := use{by, cache.NewObjectName(namespace, name)}
	r.mu.Lock()
	s, waits := r.waiting[of]
	if !waits {
		s = &shared{before: r.last[of], done: make(chan struct{})}
		r.waiting[of], r.last[of] = s, s
		go r.run(context.WithoutCancel(ctx), of, s) // for others too, whose requests go on
	}
	r.mu.Unlock()
	select {
	case <-s.done:
		return s.found, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run reads after the read before has ended.
func (r *reads) run(ctx context.Context, of use, s *shared) {
	if s.before != nil {
		<-s.before.done
		s.before = nil
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	err := r.budgets.Of(of.by.String()).Wait(ctx)
	r.mu.Lock()
	delete(r.waiting, of) // who asks from here on waits for the next
	r.mu.Unlock()
	if err != nil {
		s.err = fmt.Errorf("too many grants are checked at the same time: %w", err)
	} else {
		s.found, s.err = r.read(ctx, of.of)
	}
	r.mu.Lock()
	if r.last[of] == s {
		delete(r.last, of)
	}
	r.mu.Unlock()
	close(s.done)
}

// read returns a grant as the server has it now, or nil if it does not exist or allows nothing.
func read(ctx context.Context, client dynamic.Interface, of cache.ObjectName) (*grant.Grant, error) {
	u, err := client.Resource(accessGrants()).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return grantOf(typed.Strict[v1alpha1.AccessGrant](u))
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// maxAttempts is the maximum number of attempts to charge a batch. An attempt fails if another
	// server has changed the quota.
	maxAttempts = 20
	// chargeTimeout is the timeout for a batch. The sum of chargeTimeout and maxWait is less than
	// the timeout of a webhook.
	chargeTimeout = 2500 * time.Millisecond
	// chargePause is half of the maximum pause after the first attempt. The maximum doubles with
	// each further attempt, up to 64 times chargePause.
	chargePause = 5 * time.Millisecond
)

// ledger charges the writes of each tenant in batches. For each tenant, one goroutine charges all
// waiting writes.
type ledger struct {
	store Store

	mu      sync.Mutex
	batches map[tenant.ID]*batch
}

type batch struct {
	waiting []*entry
}

// entry is one write of a batch.
type entry struct {
	*request
	ctx  context.Context // the context of the request
	done chan struct{}
	err  error
}

func newLedger(store Store) *ledger { return &ledger{store: store, batches: map[tenant.ID]*batch{}} }

// charge charges a write. It returns an error if the write cannot be charged or ctx ends first.
func (l *ledger) charge(ctx context.Context, id tenant.ID, r *request) error {
	e := &entry{request: r, ctx: ctx, done: make(chan struct{})}
	l.mu.Lock()
	b, running := l.batches[id]
	if !running {
		b = &batch{}
		l.batches[id] = b
	}
	b.waiting = append(b.waiting, e)
	l.mu.Unlock()
	if !running {
		go l.run(context.WithoutCancel(ctx), id, b) // one request must not end the batch of others
	}
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return canceledError(ctx)
	}
}

// canceledError returns the error for a request that ended before it was charged.
func canceledError(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errStore, context.Cause(ctx))
}

// run charges batches until no write is waiting.
func (l *ledger) run(ctx context.Context, id tenant.ID, b *batch) {
	for {
		l.mu.Lock()
		entries := b.waiting
		b.waiting = nil
		if len(entries) == 0 {
			delete(l.batches, id)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		l.chargeBatch(ctx, id, entries)
		for _, e := range entries {
			close(e.done)
		}
	}
}

// chargeBatch charges entries, with retries, and sets the error of each entry that fails.
func (l *ledger) chargeBatch(ctx context.Context, id tenant.ID, entries []*entry) {
	ctx, cancel := context.WithTimeout(ctx, chargeTimeout)
	defer cancel()
	defer func() { // no filter of the server recovers a panic in this goroutine
		if panicked := recover(); panicked != nil {
			klog.FromContext(ctx).Error(errStore,
				"Recovered from a panic while charging a quota", "tenant", id, "panic", panicked,
				"stack", string(debug.Stack()))
			fail(entries, errStore)
		}
	}()
	for try := range maxAttempts {
		if try > 0 {
			select {
			case <-time.After(time.Duration(rand.Int64N(int64(chargePause) << min(try, 6)))): // #nosec G404 -- a pause
			case <-ctx.Done():
			}
		}
		err := l.chargeOnce(ctx, id, entries)
		if !errors.Is(err, ErrConflict) {
			if err != nil {
				klog.FromContext(ctx).Error(err, "Failed to charge a quota", "tenant", id)
				fail(entries, errStore)
			}
			return
		}
	}
	fail(entries, errStore)
}

func fail(entries []*entry, err error) {
	for _, e := range entries {
		if e.err == nil {
			e.err = err
		}
	}
}

// chargeOnce charges all entries that fit, in order, with one write for each quota. If a tenant has
// several quotas by mistake, all of them apply. If one quota is charged and the next cannot be, a
// recount releases the first charge after its reservation expires.
func (l *ledger) chargeOnce(ctx context.Context, id tenant.ID, entries []*entry) error {
	oldStates, err := l.store.States(ctx, id)
	if err != nil {
		return err
	}
	newStates := append([]*State(nil), oldStates...)
	for _, e := range entries {
		if e.err = nil; e.ctx.Err() != nil {
			e.err = canceledError(e.ctx)
			continue // the request has ended
		}
		next := make([]*State, len(newStates))
		for i := range newStates {
			if next[i], e.err = newStates[i].charge(e.request); e.err != nil {
				break
			}
		}
		if e.err == nil && !e.dryRun {
			newStates = next
		}
	}
	for i := range newStates {
		if newStates[i] != oldStates[i] {
			if err := l.store.Charge(ctx, oldStates[i], newStates[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

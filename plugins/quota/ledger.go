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
	// attempts bounds how often a batch is tried against other servers' charges.
	attempts = 20
	// chargeWithin bounds a batch: with the patience for a new quota less than a webhook's time.
	chargeWithin = 2500 * time.Millisecond
	// chargePause bounds the pause after the first attempt; it doubles.
	chargePause = 5 * time.Millisecond
)

// ledger charges the writes of a tenant in batches: whoever comes first writes for all who wait.
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
	ctx  context.Context // of the request
	done chan struct{}
	err  error
}

func newLedger(store Store) *ledger { return &ledger{store: store, batches: map[tenant.ID]*batch{}} }

// charge returns when the write is paid for, or why it is not.
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
		go l.run(context.WithoutCancel(ctx), id, b) // for others too, whose requests go on
	}
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return abandoned(ctx)
	}
}

// abandoned is the answer to a request that ended before it was charged.
func abandoned(ctx context.Context) error { return fmt.Errorf("%w: %w", errStore, context.Cause(ctx)) }

// run charges until nobody waits any more.
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
		l.pay(ctx, id, entries)
		for _, e := range entries {
			close(e.done)
		}
	}
}

// pay gives each entry its answer.
func (l *ledger) pay(ctx context.Context, id tenant.ID, entries []*entry) {
	ctx, cancel := context.WithTimeout(ctx, chargeWithin)
	defer cancel()
	defer func() { // in a goroutine of its own, where no filter of the server recovers
		if panicked := recover(); panicked != nil {
			klog.FromContext(ctx).Error(errStore,
				"Recovered from a panic while charging a quota", "tenant", id, "panic", panicked,
				"stack", string(debug.Stack()))
			fail(entries, errStore)
		}
	}()
	for try := range attempts {
		if try > 0 {
			select {
			case <-time.After(time.Duration(rand.Int64N(int64(chargePause) << min(try, 6)))): // #nosec G404 -- a pause
			case <-ctx.Done():
			}
		}
		err := l.try(ctx, id, entries)
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

// try charges all entries that fit, in their order, with one write for each quota. Several quotas
// of one tenant are a mistake: each is held, and one that was charged when another cannot be gets
// it back with the next count after the reservation.
func (l *ledger) try(ctx context.Context, id tenant.ID, entries []*entry) error {
	were, err := l.store.Of(ctx, id)
	if err != nil {
		return err
	}
	are := append([]*State(nil), were...)
	for _, e := range entries {
		if e.err = nil; e.ctx.Err() != nil {
			e.err = abandoned(e.ctx)
			continue // nobody waits for it any more
		}
		next := make([]*State, len(are))
		for i := range are {
			if next[i], e.err = are[i].charge(e.request); e.err != nil {
				break
			}
		}
		if e.err == nil && !e.dryRun {
			are = next
		}
	}
	for i := range are {
		if are[i] != were[i] {
			if err := l.store.Charge(ctx, were[i], are[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

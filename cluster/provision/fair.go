// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubetenant/kubetenant/tenant"
)

// ring is a queue with a separate first-in, first-out list of items for each tenant. It serves
// the tenants in turn. items must be initialized. A ring is not safe for concurrent use.
type ring[T comparable] struct {
	order []tenant.ID // the tenants that have items, next tenant first
	items map[tenant.ID][]T
}

func (r *ring[T]) push(id tenant.ID, item T) {
	if len(r.items[id]) == 0 {
		r.order = append(r.order, id)
	}
	r.items[id] = append(r.items[id], item)
}

// pop removes and returns the next item. It skips tenants for which may returns false. Skipped
// tenants retain their position. ok is false if no item was found.
func (r *ring[T]) pop(may func(tenant.ID) bool) (id tenant.ID, item T, ok bool) {
	at := slices.IndexFunc(r.order, may)
	if at < 0 {
		return id, item, false
	}
	id = r.order[at]
	r.order = slices.Delete(r.order, at, at+1)
	item = r.items[id][0]
	if rest := r.items[id][1:]; len(rest) > 0 {
		r.items[id] = rest
		r.order = append(r.order, id)
	} else {
		delete(r.items, id)
	}
	return id, item, true
}

// remove removes an item of a tenant. It does nothing if the item does not exist.
func (r *ring[T]) remove(id tenant.ID, item T) {
	at := slices.Index(r.items[id], item)
	if at < 0 {
		return
	}
	if r.items[id] = slices.Delete(r.items[id], at, at+1); len(r.items[id]) == 0 {
		delete(r.items, id)
		r.order = slices.DeleteFunc(r.order, func(other tenant.ID) bool { return other == id })
	}
}

func anyTenant(tenant.ID) bool { return true }

// queue is a work queue of namespace names. As in package workqueue, a name is queued only once
// and is processed by one worker at a time. If a name is added while it is processed, it is
// processed again. Unlike package workqueue, queue serves tenants in turn, and one tenant never
// occupies all workers.
type queue struct {
	owner      func(name string) tenant.ID
	maxWorkers int // the maximum number of workers that one tenant occupies
	tries      workqueue.TypedRateLimiter[string]

	mu         sync.Mutex
	changed    sync.Cond
	waiting    ring[string]
	added      map[string]bool      // names that wait, or that were added while they are processed
	processing map[string]tenant.ID // names that are processed, with the tenant that occupies the worker
	workers    map[tenant.ID]int    // the number of workers that each tenant occupies
	stopped    bool
}

// newQueue returns a queue for the given number of workers.
func newQueue(workers int, owner func(name string) tenant.ID) *queue {
	q := &queue{
		owner:      owner,
		maxWorkers: workers - sparedWorkers,
		tries:      workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast),
		waiting:    ring[string]{items: map[tenant.ID][]string{}},
		added:      map[string]bool{},
		processing: map[string]tenant.ID{},
		workers:    map[tenant.ID]int{},
	}
	q.changed.L = &q.mu
	return q
}

// Add queues a name.
func (q *queue) Add(name string) {
	id := q.owner(name)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped || q.added[name] {
		return
	}
	q.added[name] = true
	if _, ok := q.processing[name]; !ok {
		q.waiting.push(id, name)
		q.changed.Signal()
	}
}

// AddAfter queues a name after the given delay.
func (q *queue) AddAfter(name string, after time.Duration) {
	time.AfterFunc(after, func() { q.Add(name) })
}

// AddRateLimited queues a name after a delay that grows with each call until [queue.Forget].
func (q *queue) AddRateLimited(name string) { q.AddAfter(name, q.tries.When(name)) }

// Forget resets the delay of [queue.AddRateLimited].
func (q *queue) Forget(name string) { q.tries.Forget(name) }

// NumRequeues returns the number of calls of [queue.AddRateLimited] since [queue.Forget].
func (q *queue) NumRequeues(name string) int { return q.tries.NumRequeues(name) }

// Get waits for the next name. The caller MUST call [queue.Done] with the name after processing.
func (q *queue) Get() (name string, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.stopped {
			return "", true
		}
		id, name, ok := q.waiting.pop(func(id tenant.ID) bool { return q.workers[id] < q.maxWorkers })
		if ok {
			delete(q.added, name)
			q.processing[name] = id
			q.workers[id]++
			return name, false
		}
		q.changed.Wait()
	}
}

// Done ends the processing of a name.
func (q *queue) Done(name string) {
	id := q.owner(name)
	q.mu.Lock()
	defer q.mu.Unlock()
	by := q.processing[name]
	delete(q.processing, name)
	if q.workers[by]--; q.workers[by] == 0 {
		delete(q.workers, by)
	}
	if q.added[name] {
		q.waiting.push(id, name)
	}
	q.changed.Broadcast() // a tenant at its limit may be served again
}

// ShutDown ends all calls of [queue.Get].
func (q *queue) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.changed.Broadcast()
}

// class is the priority class of a write.
type class int

const (
	// revokes is the class of writes that remove rights and of other urgent writes. They have
	// priority.
	revokes class = iota
	// adds is the class of all other writes.
	adds
	classes
)

// While writes of both classes wait, one of addsEvery writes has the class adds. A large number
// of removals therefore does not block all other writes.
const addsEvery = 4

// writeQueue limits the rate of writes. Within each class, it serves the tenants in turn.
type writeQueue struct {
	rate flowcontrol.RateLimiter
	wake chan struct{} // receives an element when a write starts to wait

	mu       sync.Mutex
	waiting  [classes]ring[chan struct{}]
	sinceAdd int // the number of writes since the last write of the class adds
}

func newWriteQueue(rate flowcontrol.RateLimiter) *writeQueue {
	t := &writeQueue{rate: rate, wake: make(chan struct{}, 1)}
	for of := range t.waiting {
		t.waiting[of].items = map[tenant.ID][]chan struct{}{}
	}
	return t
}

// wait waits until [writeQueue.run] allows a write for a tenant. It returns an error if ctx ends
// first.
func (t *writeQueue) wait(ctx context.Context, id tenant.ID, of class) error {
	turn := make(chan struct{})
	t.mu.Lock()
	t.waiting[of].push(id, turn)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting[of].remove(id, turn)
		return ctx.Err()
	}
}

// run allows writes until ctx ends. It selects a write only after the rate limit allows a write,
// so that a more urgent write that arrives during the wait is first.
func (t *writeQueue) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		for more := true; more; {
			if t.rate.Wait(ctx) != nil {
				return
			}
			more = t.serve()
		}
	}
}

// serve allows the next write, and reports whether other writes wait.
func (t *writeQueue) serve() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	order := []class{revokes, adds}
	if t.sinceAdd++; t.sinceAdd >= addsEvery {
		order = []class{adds, revokes}
	}
	for _, of := range order {
		if _, turn, ok := t.waiting[of].pop(anyTenant); ok {
			close(turn)
			if of == adds {
				t.sinceAdd = 0
			}
			break
		}
	}
	return len(t.waiting[revokes].order)+len(t.waiting[adds].order) > 0
}

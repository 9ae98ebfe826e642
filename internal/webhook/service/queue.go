package service

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// errBusy says that a request found no room in time.
var errBusy = errors.New("too many requests")

// queue lets requests in while there is room for them: a number of them at once, and of the memory
// that they may take. Those that wait come by turns, one of each flow, in a flow in their order.
// Safe for concurrent use.
type queue struct {
	queued int
	memory int64 // all of it

	mu      sync.Mutex
	slots   int   // that are free
	free    int64 // of the memory
	waiting int
	flows   []*flow // that have somebody waiting, the next one first
}

// flow is those of one tenant that wait.
type flow struct {
	name    string
	waiters []*waiter
}

type waiter struct {
	weight int64
	let    chan error // nil for in; closed over by nobody else
}

func newQueue(concurrent, queued int, memory int64) *queue {
	return &queue{
		queued: queued,
		memory: memory,
		slots:  concurrent,
		free:   memory,
	}
}

// enter waits for room for a request that may take some memory, and returns what gives it back.
// whose names the flow of the request; it is asked only where the request must wait.
func (q *queue) enter(ctx context.Context, memory int64, whose func() string) (leave func(), err error) {
	memory = min(memory, q.memory) // one alone always fits
	leave = func() { q.leave(memory) }
	q.mu.Lock()
	if q.waiting == 0 && q.take(memory) {
		q.mu.Unlock()
		return leave, nil
	}
	q.mu.Unlock()
	name, w := whose(), &waiter{weight: memory, let: make(chan error, 1)}
	q.mu.Lock()
	ok := q.add(name, w)
	q.dispatch() // there may be room by now
	q.mu.Unlock()
	if !ok {
		return nil, errBusy
	}
	select {
	case err := <-w.let:
		if err != nil {
			return nil, err
		}
		return leave, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	gone := q.remove(w)
	q.mu.Unlock()
	if !gone && <-w.let == nil { // it was let in at the same time
		q.leave(memory)
	}
	return nil, errBusy
}

// take takes room where there is enough.
func (q *queue) take(memory int64) bool {
	if q.slots == 0 || q.free < memory {
		return false
	}
	q.slots--
	q.free -= memory
	return true
}

// leave gives room back to those that wait.
func (q *queue) leave(memory int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slots++
	q.free += memory
	q.dispatch()
}

// dispatch lets in as many as there is room for. One for which there is too little keeps its
// turn, or it would never come.
func (q *queue) dispatch() {
	for len(q.flows) > 0 {
		next := q.flows[0]
		w := next.waiters[0]
		if !q.take(w.weight) {
			return
		}
		next.waiters = next.waiters[1:]
		q.waiting--
		q.flows = q.flows[1:]
		if len(next.waiters) > 0 {
			q.flows = append(q.flows, next)
		}
		w.let <- nil
	}
}

// add lets a request wait. Where too many do, the last of the flow that has most of them
// goes, this one's own perhaps.
func (q *queue) add(name string, w *waiter) bool {
	var own, longest *flow
	for _, f := range q.flows {
		if f.name == name {
			own = f
		}
		if longest == nil || len(f.waiters) > len(longest.waiters) {
			longest = f
		}
	}
	if q.waiting >= q.queued {
		if longest == nil || own != nil && len(own.waiters) >= len(longest.waiters) || len(longest.waiters) < 2 {
			return false
		}
		last := longest.waiters[len(longest.waiters)-1]
		longest.waiters = longest.waiters[:len(longest.waiters)-1]
		q.waiting--
		last.let <- errBusy
	}
	if own == nil {
		own = &flow{name: name}
		q.flows = append(q.flows, own)
	}
	own.waiters = append(own.waiters, w)
	q.waiting++
	return true
}

// remove takes one that waits away, and reports whether it was there.
func (q *queue) remove(w *waiter) bool {
	for i, f := range q.flows {
		at := slices.Index(f.waiters, w)
		if at < 0 {
			continue
		}
		f.waiters = slices.Delete(f.waiters, at, at+1)
		if len(f.waiters) == 0 {
			q.flows = slices.Delete(q.flows, i, i+1)
		}
		q.waiting--
		q.dispatch() // it may have held up the others
		return true
	}
	return false
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package turns limits the number of concurrent requests in a server. Further requests wait in a
// queue, which serves the tenants with waiting requests in turn.
package turns

import (
	"container/heap"
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/kubetenant/kubetenant/tenant"
)

// ErrBusy is the error for a request that the queue rejects because it is full.
var ErrBusy = errors.New("too many requests")

// shareDivisor is the number of shares into which the places of a [Queue] are divided. While
// requests of several flows wait, a flow that uses less than one share is served first.
const shareDivisor = 8

// Flow identifies a group of requests that share one turn in a [Queue], for example the requests of
// one tenant.
type Flow struct {
	Name string
	// Exempt specifies whether the flow may use more than its share of the places while other flows
	// wait. It MUST NOT depend on data that a client can forge. An exempt flow and a non-exempt flow
	// with the same name are different flows.
	Exempt bool
}

// FlowOf returns the flow of a caller of the given tenant. Each caller of the system tenant has its
// own exempt flow. Otherwise, all callers of the system tenant together would get one turn, like
// the callers of one tenant.
//
// Security: the caller and its tenant MUST be authenticated.
func FlowOf(id tenant.ID, caller string) Flow {
	if id.IsSystem() {
		return Flow{Name: caller, Exempt: true}
	}
	return Flow{Name: id.String()}
}

// Queue limits the number and the memory of concurrent requests. Each running request occupies
// one place in the queue. Further requests wait.
//
// Flows with waiting requests are served in turn, and the requests of each flow are served in
// order. A flow that uses less than its share of the places is served before the other flows. The
// share is an eighth of the places, and at least one place. If each waiting flow uses its share,
// the flows are served in turn. No place is free while a request waits, unless the next request
// needs more memory than is free.
//
// The queue stores nothing for a flow without requests. It is safe for concurrent use.
type Queue struct {
	mu           sync.Mutex
	places, free int
	queued       int
	memory       int64
	freeMemory   int64

	flows   map[Flow]*flow
	turns   list.List // the flows with waiting requests (*flow), with the next one first
	longest waitHeap  // the flows with waiting requests, with the longest one first
	waiting int
	// unknown contains the admitted requests with flows that have not been determined. The queue
	// determines these flows only when a request has to wait.
	unknown list.List // its elements are *place
}

// flow contains the state of the requests of one [Flow].
type flow struct {
	Flow
	running   int
	waiters   list.List     // its elements are *waiter
	turn      *list.Element // in Queue.turns; nil if no request waits
	heapIndex int           // in Queue.longest
}

// waiter is a request that waits.
type waiter struct {
	flow    *flow
	memory  int64
	element *list.Element // in flow.waiters; nil if the request does not wait
	result  chan error    // receives nil if the request is admitted, or an error if it is rejected
}

// place contains the resources of an admitted request.
type place struct {
	memory   int64
	flow     *flow // nil if the flow is unknown
	flowFunc func() Flow
	element  *list.Element // in Queue.unknown; nil if the flow is known
}

// New returns a queue for a maximum number of concurrent requests, a maximum number of waiting
// requests, and an amount of memory in bytes.
func New(concurrent, queued int, memory int64) *Queue {
	return &Queue{
		places:     concurrent,
		free:       concurrent,
		queued:     queued,
		memory:     memory,
		freeMemory: memory,
		flows:      map[Flow]*flow{},
	}
}

// Resize changes the maximum numbers of concurrent and waiting requests. Admitted requests
// continue, and waiting requests continue to wait.
func (q *Queue) Resize(concurrent, queued int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free += concurrent - q.places // below zero until enough requests leave
	q.places, q.queued = concurrent, queued
	q.dispatch()
}

// Waiting returns the number of waiting requests.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Enter waits for a place for a request and for the memory that the request may use. A request that
// may use more than the whole memory waits until it can have all of it. The caller MUST call leave
// once if err is nil. If the queue is full, the error is [ErrBusy]. If ctx ends, the error is the
// cause of its end.
//
// The function flowFunc returns the flow of the request. The queue calls it at most once, and
// only if this request or another one cannot be admitted immediately. It MUST be fast, and
// another goroutine may call it until leave returns.
func (q *Queue) Enter(ctx context.Context, memory int64, flowFunc func() Flow) (leave func(), err error) {
	q.mu.Lock()
	memory = min(memory, q.memory)
	if q.waiting == 0 && q.acquire(memory) {
		p := &place{memory: memory, flowFunc: flowFunc}
		p.element = q.unknown.PushBack(p)
		q.mu.Unlock()
		return func() { q.release(p) }, nil
	}
	q.mu.Unlock()
	name := flowFunc()
	q.mu.Lock()
	if q.waiting == 0 && q.acquire(memory) {
		p := q.occupy(q.flowOf(name), memory)
		q.mu.Unlock()
		return func() { q.release(p) }, nil
	}
	q.identify()
	w := q.add(name, memory)
	q.mu.Unlock()
	if w == nil {
		return nil, ErrBusy
	}
	return q.wait(ctx, w)
}

// wait waits until a request is admitted or rejected, or ctx ends.
func (q *Queue) wait(ctx context.Context, w *waiter) (leave func(), err error) {
	select {
	case err = <-w.result:
	case <-ctx.Done():
		q.mu.Lock()
		if w.element != nil {
			q.remove(w)
			q.dispatch() // the request may have blocked requests that need less memory
			q.mu.Unlock()
			return nil, context.Cause(ctx)
		}
		q.mu.Unlock()
		err = <-w.result // the request was admitted or rejected when ctx ended
	}
	if err != nil {
		return nil, err
	}
	p := &place{memory: w.memory, flow: w.flow}
	leave = func() { q.release(p) }
	if ctx.Err() != nil {
		leave()
		return nil, context.Cause(ctx)
	}
	return leave, nil
}

// acquire reserves a place and memory for a request, or returns false if not enough is free.
func (q *Queue) acquire(memory int64) bool {
	if q.free <= 0 || q.freeMemory < memory {
		return false
	}
	q.free--
	q.freeMemory -= memory
	return true
}

// release frees the place and the memory of a request, and admits waiting requests.
func (q *Queue) release(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.flow == nil {
		q.unknown.Remove(p.element)
	} else {
		p.flow.running--
		q.forget(p.flow)
	}
	q.free++
	q.freeMemory += p.memory
	q.dispatch()
}

// identify determines the flows of the requests in unknown.
func (q *Queue) identify() {
	for e := q.unknown.Front(); e != nil; e = q.unknown.Front() {
		p := q.unknown.Remove(e).(*place)
		p.flow = q.flowOf(callFlow(p.flowFunc))
		p.element = nil
		p.flow.running++
		p.flowFunc = nil
	}
}

// callFlow returns the flow of a request. The caller is the goroutine of another request, so
// callFlow recovers from a panic, which would leave the queue locked. After a panic, the request
// has the flow without a name, which is not exempt.
func callFlow(flowFunc func() Flow) (out Flow) {
	defer func() {
		if recover() != nil {
			out = Flow{}
		}
	}()
	return flowFunc()
}

func (q *Queue) occupy(f *flow, memory int64) *place {
	f.running++
	return &place{memory: memory, flow: f}
}

func (q *Queue) flowOf(name Flow) *flow {
	f := q.flows[name]
	if f == nil {
		f = &flow{Flow: name}
		q.flows[name] = f
	}
	return f
}

// forget removes a flow if it has no requests.
func (q *Queue) forget(f *flow) {
	if f.running == 0 && f.waiters.Len() == 0 {
		delete(q.flows, f.Flow)
	}
}

// dispatch admits as many waiting requests as possible. If the next request needs more memory than
// is free, the other requests wait too. Otherwise, the next request might never be admitted.
func (q *Queue) dispatch() {
	for q.waiting > 0 && q.free > 0 {
		f := q.next()
		w := f.waiters.Front().Value.(*waiter)
		if !q.acquire(w.memory) {
			return
		}
		f.running++
		q.remove(w)
		if f.turn != nil {
			q.turns.MoveToBack(f.turn)
		}
		w.result <- nil
	}
}

// next returns the first waiting flow that is exempt or uses less than its share of the places. If
// there is none, it returns the first waiting flow. Only a few flows can use their share at the
// same time, so the loop is short.
func (q *Queue) next() *flow {
	share := max(1, q.places/shareDivisor)
	for e := q.turns.Front(); e != nil; e = e.Next() {
		if f := e.Value.(*flow); f.Exempt || f.running < share {
			return f
		}
	}
	return q.turns.Front().Value.(*flow)
}

// add adds a request to the waiting requests. If the queue is full, it rejects the newest request
// of the flow with the most waiting requests. It returns nil if it rejects the new request.
func (q *Queue) add(name Flow, memory int64) *waiter {
	if q.waiting >= q.queued {
		own := 0
		if f := q.flows[name]; f != nil {
			own = f.waiters.Len()
		}
		if q.waiting == 0 || q.longest[0].waiters.Len() <= max(own, 1) {
			return nil
		}
		last := q.longest[0].waiters.Back().Value.(*waiter)
		q.remove(last)
		last.result <- ErrBusy
	}
	f := q.flowOf(name)
	w := &waiter{flow: f, memory: memory, result: make(chan error, 1)}
	w.element = f.waiters.PushBack(w)
	q.waiting++
	if f.turn == nil {
		f.turn = q.turns.PushBack(f)
		heap.Push(&q.longest, f)
	} else {
		heap.Fix(&q.longest, f.heapIndex)
	}
	q.dispatch()
	return w
}

// remove removes a request from the waiting requests.
func (q *Queue) remove(w *waiter) {
	f := w.flow
	f.waiters.Remove(w.element)
	w.element = nil
	q.waiting--
	if f.waiters.Len() > 0 {
		heap.Fix(&q.longest, f.heapIndex)
		return
	}
	q.turns.Remove(f.turn)
	f.turn = nil
	heap.Remove(&q.longest, f.heapIndex)
	q.forget(f)
}

// waitHeap is a heap of the flows with waiting requests. The first flow has the most waiting
// requests.
type waitHeap []*flow

// Len implements [heap.Interface].
func (l waitHeap) Len() int { return len(l) }

// Less implements [heap.Interface].
func (l waitHeap) Less(i, j int) bool { return l[i].waiters.Len() > l[j].waiters.Len() }

// Swap implements [heap.Interface].
func (l waitHeap) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].heapIndex, l[j].heapIndex = i, j
}

// Push implements [heap.Interface].
func (l *waitHeap) Push(f any) {
	f.(*flow).heapIndex = len(*l)
	*l = append(*l, f.(*flow))
}

// Pop implements [heap.Interface].
func (l *waitHeap) Pop() any {
	last := len(*l) - 1
	f := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return f
}

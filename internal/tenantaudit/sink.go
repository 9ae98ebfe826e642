// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"
)

// Sink writes the records of events to streams. Safe for concurrent use.
type Sink struct {
	streams         *Streams
	unauthenticated *unauthenticatedLimits
	metrics         *Metrics
}

// NewSink returns a sink that writes to the given streams.
func NewSink(streams *Streams, metrics *Metrics) *Sink {
	return &Sink{streams, newUnauthenticatedLimits(), metrics}
}

// Streams returns the streams of the sink.
func (s *Sink) Streams() *Streams { return s.streams }

// Store writes the records of events. If it returns nil, the records are on the disk, except
// records of streams whose files cannot be opened. If ctx ends first, the error wraps the cause of
// its end. Store omits the events of unauthenticated requests that exceed a limit.
func (s *Sink) Store(ctx context.Context, events []*auditinternal.Event, r *Resolver) error {
	var all []Placed
	for _, event := range events {
		all = append(all, s.project(event, r)...)
	}
	return s.write(ctx, all)
}

// AddFailed adds a number of rejected events to the metric of failed records of the system's
// stream.
func (s *Sink) AddFailed(events int) {
	s.metrics.add(System, failed, events)
}

func (s *Sink) project(event *auditinternal.Event, r *Resolver) []Placed {
	if !s.unauthenticated.accept(event) {
		s.metrics.count(System, limited)
		return nil
	}
	return Project(event, r)
}

func (s *Sink) write(ctx context.Context, all []Placed) error {
	if len(all) == 0 {
		return nil
	}
	err := s.streams.Write(ctx, all)
	var lost *LostError
	partly := false
	if errors.As(err, &lost) {
		partly = slices.ContainsFunc(all, func(p Placed) bool { return lost.Streams[p.Stream] == nil })
	}
	for _, placed := range all {
		result := written
		if err != nil && (!partly || lost.Streams[placed.Stream] != nil) {
			result = failed
		}
		s.metrics.count(placed.Stream, result)
	}
	if partly {
		klog.FromContext(ctx).Error(err, "Failed to write some of the audit streams")
		return nil
	}
	return err
}

// The limits of a [Backend].
const (
	backendQueue = 10_000 // events, as in upstream's buffered backend
	backendBatch = 400    // events
	backendWait  = 100 * time.Millisecond
)

// PluginName is the name of the backend in the metrics and the log of the server.
const PluginName = "kubetenant"

var errQueueFull = errors.New("the audit queue is full for the tenant of the caller, or the server is shutting down")

// Backend writes the events of a server. It determines their tenants immediately, and writes their
// records in batches, after at most 100 ms if the disk keeps up. If the process is killed, the
// queued events are lost. Safe for concurrent use.
type Backend struct {
	sink  *Sink
	queue chan queued
	done  chan struct{}
	fail  func(error)

	// writing is the context of writes to the sink. It is canceled if Shutdown gives up waiting for
	// the disk.
	writing context.Context //nolint:containedctx // of the goroutine that writes
	abort   context.CancelFunc

	mu          sync.Mutex
	eventsByKey map[queueKey]int // events in the queue
	closed      bool
}

// queueKey identifies the tenant of the callers of queued events.
type queueKey struct{ cluster, tenant string }

// queued contains the records of an event.
type queued struct {
	key     queueKey
	records []Placed
}

// NewBackend returns a backend that writes to the given sink.
func NewBackend(sink *Sink) *Backend {
	ctx, cancel := context.WithCancel(context.Background()) // #nosec G118 -- Shutdown cancels it
	return &Backend{
		sink:        sink,
		queue:       make(chan queued, backendQueue),
		done:        make(chan struct{}),
		fail:        func(err error) { klog.Background().Error(err, "Failed to write audit streams") },
		writing:     ctx,
		abort:       cancel,
		eventsByKey: map[queueKey]int{},
	}
}

// For returns an audit backend that determines the tenants and streams of events with the given
// resolver.
func (b *Backend) For(r *Resolver) audit.Backend { return &clusterBackend{b, r} }

type clusterBackend struct {
	*Backend
	resolver *Resolver
}

// ProcessEvents implements [audit.Sink]. It always returns true, because a server denies a request
// whose first event is not processed. If the queue has no place for an event, it reports an error
// and drops the event.
func (b *clusterBackend) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		all := b.sink.project(event, b.resolver)
		if len(all) == 0 || b.enqueue(all) {
			continue
		}
		audit.HandlePluginError(PluginName, errQueueFull, event)
		for _, placed := range all {
			b.sink.metrics.count(placed.Stream, dropped)
		}
	}
	return true
}

// enqueue adds the records of an event to the queue. It returns false if the tenant of the caller
// already has at least as many events in the queue as the queue has free places. A tenant can
// therefore use at most half of the places that other tenants leave free.
func (b *Backend) enqueue(all []Placed) bool {
	key := queueKey{all[0].Record.Cluster, all[0].Record.Tenant}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.eventsByKey[key] >= cap(b.queue)-len(b.queue) {
		return false
	}
	b.eventsByKey[key]++
	b.queue <- queued{key, all} // never blocks, because only this function adds events
	return true
}

// dequeue frees the place of an event in the queue and returns the event's records.
func (b *Backend) dequeue(q queued) []Placed {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.eventsByKey[q.key]--; b.eventsByKey[q.key] == 0 {
		delete(b.eventsByKey, q.key)
	}
	return q.records
}

// String implements [audit.Backend].
func (b *Backend) String() string { return PluginName }

// Run implements [audit.Backend]. It returns immediately.
func (b *Backend) Run(stop <-chan struct{}) error {
	go func() {
		defer close(b.done)
		for {
			select {
			case first := <-b.queue:
				b.write(b.collect(first, stop))
			case <-stop:
				return
			}
		}
	}()
	return nil
}

// Shutdown implements [audit.Backend]. It returns after all queued events have been written. If the
// disk does not respond, it returns after about 10 s, and the remaining events are lost. Run MUST
// have been stopped before.
func (b *Backend) Shutdown() {
	defer time.AfterFunc(b.sink.streams.options.closeWait, b.abort).Stop()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	<-b.done
	for {
		select {
		case first := <-b.queue:
			b.write(b.collect(first, b.done))
		default:
			return
		}
	}
}

// collect returns the records of a batch of events. It waits for more events until the batch is
// full, 100 ms have passed, or stop closes.
func (b *Backend) collect(first queued, stop <-chan struct{}) []Placed {
	batch := b.dequeue(first)
	timer := time.NewTimer(backendWait)
	defer timer.Stop()
	for range backendBatch - 1 {
		select {
		case more := <-b.queue:
			batch = append(batch, b.dequeue(more)...)
		case <-timer.C:
			return batch
		case <-stop:
			return batch
		}
	}
	return batch
}

func (b *Backend) write(batch []Placed) {
	if err := b.sink.write(b.writing, batch); err != nil {
		b.fail(err)
	}
}

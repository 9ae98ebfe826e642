// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// RunOptions specify the consumers of the totals of a [Recorder]. Each field may be nil.
type RunOptions struct {
	Records *Records
	Writer  *Writer
}

// metrics returns the metrics of the consumers.
func (o *RunOptions) metrics() (all []*Metrics) {
	if o.Records != nil {
		all = append(all, o.Records.Metrics)
	}
	if o.Writer != nil {
		all = append(all, o.Writer.Metrics)
	}
	return all
}

const (
	// passTimeout and recordTimeout are the maximum times for which the shutdown of a server
	// waits for the last TenantUsages and for the last records.
	passTimeout   = 10 * time.Second
	recordTimeout = 15 * time.Second
)

// Running collects the totals of a [Recorder] and runs the consumers.
type Running struct {
	recorder *Recorder
	RunOptions
	stopPasses, stop context.CancelFunc
	passed, done     chan struct{}

	mu sync.Mutex // held during a collection
}

// Start collects the totals of a recorder until ctx ends or [Running.Stop] is called. It must be
// called only once for each recorder. A disk that does not respond delays neither the collection
// nor the writes of TenantUsages.
func Start(ctx context.Context, r *Recorder, o RunOptions) *Running {
	for _, m := range o.metrics() {
		m.begin()
	}
	running := &Running{
		recorder:   r,
		RunOptions: o,
		passed:     make(chan struct{}),
		done:       make(chan struct{}),
	}
	var passes context.Context
	ctx, running.stop = context.WithCancel(ctx)
	passes, running.stopPasses = context.WithCancel(ctx)
	go func() {
		defer close(running.passed)
		running.pass(passes)
	}()
	go func() {
		defer close(running.done)
		running.run(ctx)
		<-running.passed
	}()
	return running
}

// SaveTenantUsages writes the last TenantUsages. A server that stores the TenantUsages itself calls
// it before it stops serving. Records are still written until [Running.Stop]. SaveTenantUsages
// returns after at most 10 seconds.
func (r *Running) SaveTenantUsages(ctx context.Context) {
	r.stopPasses()
	waitFor(ctx, r.passed, passTimeout)
}

// Stop writes the last totals. It returns after they have been written, or after at most 15
// seconds.
func (r *Running) Stop(ctx context.Context) {
	r.stop()
	waitFor(ctx, r.done, recordTimeout)
}

func waitFor(ctx context.Context, done <-chan struct{}, within time.Duration) {
	select {
	case <-done:
	case <-time.After(within):
		klog.FromContext(ctx).Error(nil, "The last totals of usage were not written in time, because a disk or a server "+
			"does not answer")
	}
}

// collect adds the hours with changed totals to the pending hours and removes old totals. It does
// not wait for a disk.
func (r *Running) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	collect(r.recorder, r.Records)
}

func collect(r *Recorder, records *Records) {
	hours := r.Changed()
	if records == nil {
		r.Prune(nil)
		return
	}
	records.drop(r.Prune(records.addPending(hours)))
}

// pass writes TenantUsages until ctx ends. It then writes the last TenantUsages.
func (r *Running) pass(ctx context.Context) {
	if r.Writer == nil {
		return
	}
	r.Writer.run(ctx)
	r.collect()
	r.Writer.finalPass(ctx)
}

// run collects totals and writes and sends records until ctx ends. It then writes and sends the
// last records.
func (r *Running) run(ctx context.Context) {
	spooling, endSpooling := context.WithCancel(context.WithoutCancel(ctx))
	defer endSpooling()
	deliveries, endDeliveries := context.WithCancel(context.WithoutCancel(ctx))
	defer endDeliveries()
	var all sync.WaitGroup
	if r.Records != nil {
		all.Go(func() {
			if r.Writer != nil {
				r.Records.loadUnsaved(ctx, r.Writer)
			}
			r.Records.writeSpool(spooling)
			if r.Writer != nil {
				<-r.passed
				r.Records.saveUnsaved(spooling, r.Writer)
			}
			endDeliveries()
		})
		all.Go(func() { r.Records.deliver(deliveries) })
	}
	ticks := time.NewTicker(spoolInterval)
	defer ticks.Stop()
	for ctx.Err() == nil {
		r.collect()
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
	r.collect()
	endSpooling()
	all.Wait()
}

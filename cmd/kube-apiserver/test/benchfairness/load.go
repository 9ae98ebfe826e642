// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// seats is the number of requests that the server executes at the same time, and execution is the
	// duration of each.
	seats     = 22
	execution = 10 * time.Millisecond
	// quietRate is the number of requests that the quiet tenant sends per second.
	quietRate = 50
	// accounts is the number of service accounts of the noisy tenant.
	accounts = 500
	// pause is how long a caller of the noisy tenant waits after status 429 before it retries.
	// The caller does not wait for the second that the header Retry-After specifies.
	pause = 100 * time.Millisecond
	// warmUp is the time between the start of the noisy tenant and the first request of the quiet
	// one.
	warmUp = 2 * time.Second
)

// result is the result of one measurement.
type result struct {
	took    []time.Duration // durations of the quiet tenant's requests, in ascending order
	refused int             // requests of the quiet tenant that got status 429
	noisy   float64         // requests of the noisy tenant without status 429, per second
	// noisyRefused is the number of requests of the noisy tenant that got status 429, per second.
	noisyRefused float64
	maxExecuting int64   // the largest number of requests in the handler
	cores        float64 // the processors that this process used
}

// quantile returns the duration that the given share of the quiet tenant's requests does not
// exceed.
func (r *result) quantile(share float64) time.Duration {
	return r.took[int(float64(len(r.took)-1)*share)]
}

// execute is the handler. Like a handler that waits for etcd, it does not use a processor.
func execute(http.ResponseWriter, *http.Request) { time.Sleep(execution) }

// measure sends the given number of requests of the quiet tenant. Meanwhile, inFlight callers of
// the noisy tenant send requests.
func measure(ctx context.Context, m mode, requests, inFlight int) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := newServer(ctx, seats, m, http.HandlerFunc(execute))
	if err != nil {
		return nil, err
	}
	f := s.startFlood(ctx, inFlight)
	time.Sleep(warmUp)
	began, used, answered, refused := time.Now(), processorTime(), f.answered.Load(), f.refused.Load()
	r := &result{}
	r.took, r.refused = s.quiet(ctx, requests)
	lasted := time.Since(began).Seconds()
	r.cores = (processorTime() - used).Seconds() / lasted
	r.noisy = float64(f.answered.Load()-answered) / lasted
	r.noisyRefused = float64(f.refused.Load()-refused) / lasted
	r.maxExecuting = s.maxExecuting.Load()
	f.stop()
	return r, ctx.Err()
}

// quiet sends requests of the quiet tenant at times that are fixed in advance, and returns the
// duration of each request since its fixed time, in ascending order. It also returns the number of
// requests with status 429. The intervals between the times are random, because requests at regular
// times could be in step with the handler.
func (s *server) quiet(ctx context.Context, requests int) (took []time.Duration, refused int) {
	random := rand.New(rand.NewPCG(50, 22)) // #nosec G404 -- the times of a load are not secret
	took = make([]time.Duration, requests)
	r := get(ctx, quietTenant, "robot")
	var count atomic.Int64
	var all sync.WaitGroup
	for i, due := 0, time.Now(); i < requests && ctx.Err() == nil; i++ {
		due = due.Add(time.Duration(random.ExpFloat64() / quietRate * float64(time.Second)))
		time.Sleep(time.Until(due))
		all.Go(func() {
			if s.send(r) == http.StatusTooManyRequests {
				count.Add(1)
			}
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took, int(count.Load())
}

// flood is the load of the noisy tenant.
type flood struct {
	answered, refused atomic.Int64
	ended             atomic.Bool
	callers           sync.WaitGroup
}

// startFlood starts inFlight callers of the noisy tenant. Each caller sends one request after the
// other. The callers are distributed evenly over the tenant's service accounts.
func (s *server) startFlood(ctx context.Context, inFlight int) *flood {
	f := &flood{}
	for i := range inFlight {
		r := get(ctx, noisyTenant, "robot-"+strconv.Itoa(i%accounts))
		f.callers.Go(func() {
			for !f.ended.Load() {
				if s.send(r) == http.StatusTooManyRequests {
					f.refused.Add(1)
					time.Sleep(pause)
					continue
				}
				f.answered.Add(1)
			}
		})
	}
	return f
}

// stop stops the callers, and waits for their requests in flight.
func (f *flood) stop() {
	f.ended.Store(true)
	f.callers.Wait()
}

// processorTime returns the processor time that this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

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
	// quietRate is the number of requests of the quiet tenant in a second.
	quietRate = 50
	// accounts is the number of service accounts of the noisy tenant.
	accounts = 500
	// pause is the time after which a refused caller of the noisy tenant tries again. The header
	// Retry-After specifies a second or more.
	pause = 100 * time.Millisecond
	// warmUp is the time between the start of the noisy tenant and the first request of the quiet
	// one.
	warmUp = 2 * time.Second
)

// result is the result of one measurement.
type result struct {
	took    []time.Duration // times of the quiet tenant's requests, in ascending order
	refused int             // requests of the quiet tenant that got status 429
	noisy   float64         // requests of the noisy tenant that a second executes
	// noisyRefused is the number of requests of the noisy tenant that got status 429, in a second.
	noisyRefused float64
	maxExecuting int64   // the largest number of requests in the handler
	cores        float64 // the processors that this process used
}

// quantile returns the time that a share of the requests does not exceed.
func (r *result) quantile(share float64) time.Duration {
	return r.took[int(float64(len(r.took)-1)*share)]
}

// execute is the handler. Like a handler that waits for etcd, it does not use a processor.
func execute(http.ResponseWriter, *http.Request) { time.Sleep(execution) }

// measure sends requests of the quiet tenant while the noisy tenant has so many requests in flight.
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

// quiet sends requests of the quiet tenant at times that are fixed in advance, and returns how long
// each took from that time. The times have a Poisson distribution. At regular times, the requests
// could be in step with the handler.
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

// startFlood starts so many callers of the noisy tenant. Each sends one request after the other.
// The service accounts take turns.
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

// stop waits for the requests in flight.
func (f *flood) stop() {
	f.ended.Store(true)
	f.callers.Wait()
}

// processorTime returns the processor time of this process so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

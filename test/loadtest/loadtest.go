// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package loadtest measures how a noisy tenant delays a quiet tenant.
package loadtest

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// The load in the fair-use benchmarks. A server handles Places concurrent requests, and each
// request takes RequestTime. The noisy tenant has Noisy concurrent requests.
const (
	Places      = 22
	RequestTime = 10 * time.Millisecond
	Noisy       = 500

	quietInterval = 20 * time.Millisecond
	duration      = 10 * time.Second
)

// Result contains the measurements for the quiet tenant.
type Result struct {
	P99               time.Duration
	Requests, Refused int
}

// Report adds the measurements to the output of a benchmark.
func (r Result) Report(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(r.P99.Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(r.Requests), "requests")
	b.ReportMetric(float64(r.Refused), "429s")
	b.ReportMetric(0, "ns/op") // omits the time per iteration, which has no meaning
}

// Limit returns the largest p99 that is acceptable while a noisy tenant sends requests. r is the
// result without a noisy tenant.
func (r Result) Limit() time.Duration { return max(3*r.P99, r.P99+50*time.Millisecond) }

// Run sends 50 requests per second as the quiet tenant, while concurrent clients send requests as
// the noisy tenant. The functions noisy and quiet send one request and return its status code.
// The parameter of noisy is the number of the client.
func Run(ctx context.Context, clients int, noisy func(client int) int, quiet func() int) Result {
	ctx, stop := context.WithCancel(ctx)
	var crowd, requests sync.WaitGroup
	for i := range clients {
		crowd.Go(func() {
			for ctx.Err() == nil {
				noisy(i)
			}
		})
	}
	time.Sleep(time.Second) // until the queue is full
	var mu sync.Mutex
	var out Result
	var took []time.Duration
	ticker := time.NewTicker(quietInterval)
	defer ticker.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); {
		began := <-ticker.C
		requests.Go(func() {
			code := quiet()
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
			if code == http.StatusTooManyRequests {
				out.Refused++
			}
		})
	}
	requests.Wait()
	stop()
	crowd.Wait()
	slices.Sort(took)
	out.Requests = len(took)
	out.P99 = took[int(math.Ceil(0.99*float64(len(took))))-1]
	return out
}

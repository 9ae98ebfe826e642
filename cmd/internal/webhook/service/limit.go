package service

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Limits bound the requests of one kind.
type Limits struct {
	// Concurrent requests, and Queued ones that wait for them in their order. More are answered 429.
	Concurrent, Queued int
	// Timeout of a request, its time in the queue included.
	Timeout time.Duration
	// BodyBytes bounds a body.
	BodyBytes int64
}

// limited lets through what the limits allow. Each kind of requests has its own, so that those that wait
// for a slow identity provider take no room from decisions.
func limited(l Limits, next http.Handler) http.Handler {
	room := semaphore.NewWeighted(int64(l.Concurrent)) // first come, first served
	var waiting atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), l.Timeout)
		defer cancel()
		if !room.TryAcquire(1) {
			err := context.DeadlineExceeded
			if waiting.Add(1) <= int64(l.Queued) {
				err = room.Acquire(ctx, 1)
			}
			waiting.Add(-1)
			if err != nil {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
		}
		defer room.Release(1)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

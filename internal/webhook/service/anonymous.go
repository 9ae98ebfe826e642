// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kubetenant/kubetenant/internal/turns"
)

// Anonymous configures a service that does not authenticate its clients. It is for a
// kube-apiserver that presents no client certificate. The service handles only AdmissionReviews
// (see [state.State.WithoutReservations]). A request takes a place in the queue of all clients
// only after its whole body has been read.
type Anonymous struct {
	// From contains the networks of the accepted clients. All other clients get 404. If empty, all
	// clients are accepted.
	From []net.IPNet
}

// bodyTimeout is the maximum time for reading the rest of the body of a review from an
// unauthenticated client.
const bodyTimeout = 3 * time.Second

// allows reports whether reviews from an address are accepted.
func (a *Anonymous) allows(from netip.Addr) bool {
	return len(a.From) == 0 || slices.ContainsFunc(a.From, func(n net.IPNet) bool { return n.Contains(from.AsSlice()) })
}

// addressOf returns the address of the client of a request, or the zero address if it is unknown.
func addressOf(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}

// clientLimits limits the clients of a service that authenticates no client. The requests from
// one IP address use at most half of the places for concurrent requests, and at most half of the
// memory for bodies that are still being read. The tenants that these bodies name take turns. A
// client can forge a body, but does not get the turns of another address. One slow client
// therefore cannot block other addresses. Slow clients at several addresses can delay other
// addresses, for at most bodyTimeout at a time. clientLimits is safe for concurrent use.
type clientLimits struct {
	places, queued int
	maxMemory      int64
	memory         *semaphore.Weighted
	mu             sync.Mutex
	clients        map[netip.Addr]*clientQueue
}

// clientQueue queues the requests from one IP address.
type clientQueue struct {
	*turns.Queue
	requests int
}

func newClientLimits(places, queued int, maxMemory int64) *clientLimits {
	return &clientLimits{
		places:    places,
		queued:    queued,
		maxMemory: maxMemory,
		memory:    semaphore.NewWeighted(maxMemory),
		clients:   map[netip.Addr]*clientQueue{},
	}
}

// enter waits for a place for a request, and for the memory for its body. It returns the function
// that releases both.
func (s *clientLimits) enter(
	ctx context.Context, from netip.Addr, size int64, flow func() turns.Flow,
) (leave func(), err error) {
	size = min(size, s.maxMemory/2) // so that one request always fits
	queue := s.acquireQueue(from)
	leaveQueue, err := queue.Enter(ctx, size, flow)
	if err != nil {
		s.releaseQueue(from, queue)
		return nil, err
	}
	if size > 0 {
		if err := s.memory.Acquire(ctx, size); err != nil {
			leaveQueue()
			s.releaseQueue(from, queue)
			return nil, err
		}
	}
	return func() {
		if size > 0 {
			s.memory.Release(size)
		}
		leaveQueue()
		s.releaseQueue(from, queue)
	}, nil
}

func (s *clientLimits) acquireQueue(from netip.Addr) *clientQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.clients[from]
	if queue == nil {
		queue = &clientQueue{Queue: turns.New(s.places, s.queued, s.maxMemory/2)}
		s.clients[from] = queue
	}
	queue.requests++
	return queue
}

func (s *clientLimits) releaseQueue(from netip.Addr, queue *clientQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queue.requests--; queue.requests == 0 {
		delete(s.clients, from)
	}
}

// admit waits for the turn of a request among the requests from its address. It then reads the rest
// of the body. leave releases the place of the request. If ok is false, admit has already sent the
// response.
func (s *clientLimits) admit(
	ctx context.Context, w http.ResponseWriter, r *http.Request, body *requestBody, flow func() turns.Flow,
) (leave func(), ok bool) {
	size := body.size
	isWhole := size <= int64(len(body.head))
	if isWhole {
		size = 0
	}
	leave, err := s.enter(ctx, addressOf(r), size, flow)
	if err != nil {
		tooManyRequests(w)
		return nil, false
	}
	if isWhole {
		return leave, true
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // the connections of a server support deadlines
	whole, ok := readRest(w, r, body)
	if !ok {
		leave()
		return nil, false
	}
	_ = control.SetReadDeadline(time.Time{})
	body.head = whole
	return leave, true
}

// onlyAllowed rejects requests from addresses that are not accepted.
func (a *Anonymous) onlyAllowed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.allows(addressOf(r)) {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

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

// Anonymous configures a service that does not authenticate its clients, for kube-apiservers that
// present no certificate. The service only answers AdmissionReviews (see
// [state.State.WithoutReservations]). It reserves no place for a client that has not sent a whole
// review.
type Anonymous struct {
	// From contains the networks of the clients. Other clients get 404. If empty, all clients are
	// accepted.
	From []net.IPNet
}

// arrivalTime limits how long the body of a review from an unauthenticated client may take to
// arrive.
const arrivalTime = 3 * time.Second

// admits reports whether reviews from an address are accepted.
func (a *Anonymous) admits(from netip.Addr) bool {
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

// senders limits the clients of a service that authenticates no client. The requests of one address
// have at most half of the places and of the memory for bodies that are still being read. In that
// half, the tenants that the bodies name take turns. A client can forge a body, but it does not get
// the turns of another address. A client that sends slowly keeps no other client out. Clients at
// several addresses can make the others wait, for arrivalTime at a time. Safe for concurrent use.
type senders struct {
	places, queued int
	most           int64
	all            *semaphore.Weighted
	mu             sync.Mutex
	from           map[netip.Addr]*sender
}

// sender queues the requests of one address.
type sender struct {
	*turns.Queue
	open int
}

func newSenders(places, queued int, most int64) *senders {
	return &senders{
		places: places,
		queued: queued,
		most:   most,
		all:    semaphore.NewWeighted(most),
		from:   map[netip.Addr]*sender{},
	}
}

// enter waits for a place for a request, and for the memory for its body. It returns the function
// that releases both.
func (s *senders) enter(
	ctx context.Context, from netip.Addr, size int64, whose func() turns.Flow,
) (leave func(), err error) {
	size = min(size, s.most/2) // so that a single request always fits
	of := s.open(from)
	left, err := of.Enter(ctx, size, whose)
	if err != nil {
		s.close(from, of)
		return nil, err
	}
	if size > 0 {
		if err := s.all.Acquire(ctx, size); err != nil {
			left()
			s.close(from, of)
			return nil, err
		}
	}
	return func() {
		if size > 0 {
			s.all.Release(size)
		}
		left()
		s.close(from, of)
	}, nil
}

func (s *senders) open(from netip.Addr) *sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.from[from]
	if of == nil {
		of = &sender{Queue: turns.New(s.places, s.queued, s.most/2)}
		s.from[from] = of
	}
	of.open++
	return of
}

func (s *senders) close(from netip.Addr, of *sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.open--; of.open == 0 {
		delete(s.from, from)
	}
}

// admit waits for the turn of a request among those of its address, and reads the rest of its body.
// It returns the function that releases the place. If ok is false, it has answered the request.
func (s *senders) admit(
	ctx context.Context, w http.ResponseWriter, r *http.Request, body *content, whose func() turns.Flow,
) (leave func(), ok bool) {
	size := body.size
	isWhole := size <= int64(len(body.head))
	if isWhole {
		size = 0
	}
	leave, err := s.enter(ctx, addressOf(r), size, whose)
	if err != nil {
		busy(w)
		return nil, false
	}
	if isWhole {
		return leave, true
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(arrivalTime)) // servers support this on their connections
	whole, ok := readRest(w, r, body)
	if !ok {
		leave()
		return nil, false
	}
	_ = control.SetReadDeadline(time.Time{})
	body.head = whole
	return leave, true
}

// fromKnown rejects requests from addresses that are not accepted.
func (a *Anonymous) fromKnown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.admits(addressOf(r)) {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

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

// Anonymous says who may ask a service that authenticates nobody: kube-apiservers that show no
// certificate. It answers reviews of admission alone (see [state.State.WithoutReservations]), and
// keeps room for nobody who has not sent a whole review.
type Anonymous struct {
	// From are the addresses that reviews come from: others are answered as if nothing
	// were there. Empty for all.
	From []net.IPNet
}

// arrivalTime is how long the body of a review may take to arrive of who is not known.
const arrivalTime = 3 * time.Second

// admits reports whether an address is one that reviews come from.
func (a *Anonymous) admits(from netip.Addr) bool {
	return len(a.From) == 0 || slices.ContainsFunc(a.From, func(n net.IPNet) bool { return n.Contains(from.AsSlice()) })
}

// addressOf returns where a request comes from, the zero address where that is not known.
func addressOf(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}

// senders limits the clients of a service that authenticates no client. The requests of one address
// have at most half of the places and of the memory for bodies that are still being read. In that half,
// the tenants that the bodies name take turns. A client can forge a body, but it does not get the turns
// of another address. A client that sends slowly keeps no other client out. Clients at several
// addresses can make the others wait, for arrivalTime at a time. Safe for concurrent use.
type senders struct {
	places, queued int
	most           int64
	all            *semaphore.Weighted
	mu             sync.Mutex
	from           map[netip.Addr]*sender
}

// sender is the requests of one address.
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

// enter waits for a place for a request, and for the memory for its body. It returns the function that
// releases both.
func (s *senders) enter(
	ctx context.Context, from netip.Addr, size int64, whose func() turns.Flow,
) (leave func(), err error) {
	size = min(size, s.most/2) // one alone always fits
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

// admit waits for the turn of a request among those of its address, and reads the rest of its body. It
// returns the function that releases the place. If ok is false, it has answered the request.
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
	_ = control.SetReadDeadline(time.Now().Add(arrivalTime)) // of its own connections a server can
	whole, ok := readRest(w, r, body)
	if !ok {
		leave()
		return nil, false
	}
	_ = control.SetReadDeadline(time.Time{})
	body.head = whole
	return leave, true
}

// fromKnown answers requests of the addresses that reviews come from alone.
func (a *Anonymous) fromKnown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.admits(addressOf(r)) {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

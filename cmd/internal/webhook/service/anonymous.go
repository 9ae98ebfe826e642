package service

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Anonymous says who may ask a service that authenticates nobody: kube-apiservers that show no certificate. It answers reviews of admission
// alone (see [state.State.WithoutReservations]), and keeps room for nobody who has not sent a whole review.
type Anonymous struct {
	// From are the addresses that reviews come from: others are answered as if nothing were there. Empty for all.
	From []net.IPNet
}

// arrivalTime is how long the body of a review may take to arrive of who is not known.
const arrivalTime = 5 * time.Second

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

// arrivals bound the bodies that have not been let in yet: all together, and those of one address to half of that, so that who sends slowly or
// nothing keeps no other address out. Safe for concurrent use.
type arrivals struct {
	most int64
	all  *semaphore.Weighted
	mu   sync.Mutex
	from map[netip.Addr]*sender
}

// sender is an address that bodies come from.
type sender struct {
	room *semaphore.Weighted
	open int
}

func newArrivals(most int64) *arrivals {
	return &arrivals{most: most, all: semaphore.NewWeighted(most), from: map[netip.Addr]*sender{}}
}

// enter waits for room for a body, and returns what gives it back. The error is that of ctx.
func (a *arrivals) enter(ctx context.Context, from netip.Addr, size int64) (leave func(), err error) {
	size = min(size, a.most/2) // one alone always fits
	s := a.open(from)
	if err := s.room.Acquire(ctx, size); err != nil {
		a.close(from, s)
		return nil, err
	}
	if err := a.all.Acquire(ctx, size); err != nil {
		s.room.Release(size)
		a.close(from, s)
		return nil, err
	}
	return func() {
		a.all.Release(size)
		s.room.Release(size)
		a.close(from, s)
	}, nil
}

func (a *arrivals) open(from netip.Addr) *sender {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.from[from]
	if s == nil {
		s = &sender{room: semaphore.NewWeighted(a.most / 2)}
		a.from[from] = s
	}
	s.open++
	return s
}

func (a *arrivals) close(from netip.Addr, s *sender) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.open--; s.open == 0 {
		delete(a.from, from)
	}
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

// whole reads a body to its end before the next handler has it, which may keep room for what it takes to answer.
func (a *arrivals) whole(l Limits, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		if size >= 0 && size <= headBytes || size > l.BodyBytes || r.Method != http.MethodPost { // next keeps no room for it
			next.ServeHTTP(w, r)
			return
		}
		if size < 0 {
			size = l.BodyBytes
		}
		ctx, cancel := context.WithTimeout(r.Context(), l.Timeout)
		defer cancel()
		leave, err := a.enter(ctx, addressOf(r), size)
		if err != nil {
			busy(w)
			return
		}
		defer leave()
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(arrivalTime)) // of its own connections a server can
		body, ok := readRest(w, r, &content{size: size, limit: l.BodyBytes})
		if !ok {
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		r = r.WithContext(ctx)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

package service

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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

// arrivals bound the bodies that have not been let in yet: all together, and those of one
// address to half of that, in which tenants come by turns. Who sends slowly, or nothing, keeps
// none of the others out; several addresses together make them wait, for arrivalTime at a time.
// Safe for concurrent use.
type arrivals struct {
	queued int
	most   int64
	all    *semaphore.Weighted
	mu     sync.Mutex
	from   map[netip.Addr]*sender
}

// sender is an address that bodies come from.
type sender struct {
	*queue
	open int
}

func newArrivals(queued int, most int64) *arrivals {
	return &arrivals{
		queued: queued,
		most:   most,
		all:    semaphore.NewWeighted(most),
		from:   map[netip.Addr]*sender{},
	}
}

// enter waits for room for a body, and returns what gives it back.
func (a *arrivals) enter(
	ctx context.Context, from netip.Addr, size int64, whose func() string,
) (leave func(), err error) {
	size = min(size, a.most/2) // one alone always fits
	s := a.open(from)
	left, err := s.enter(ctx, size, whose)
	if err != nil {
		a.close(from, s)
		return nil, err
	}
	if err := a.all.Acquire(ctx, size); err != nil {
		left()
		a.close(from, s)
		return nil, err
	}
	return func() {
		a.all.Release(size)
		left()
		a.close(from, s)
	}, nil
}

func (a *arrivals) open(from netip.Addr) *sender {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.from[from]
	if s == nil {
		s = &sender{queue: newQueue(math.MaxInt, a.queued, a.most/2)}
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

// read reads the rest of a body into it, and returns what gives its room back; or answers why not.
func (a *arrivals) read(
	ctx context.Context, w http.ResponseWriter, r *http.Request, body *content, whose func() string,
) (leave func(), ok bool) {
	leave, err := a.enter(ctx, addressOf(r), body.size, whose)
	if err != nil {
		busy(w)
		return nil, false
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

package gateway

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant/internal/serving"
)

// The bounds of requests whose caller is not authenticated yet, or was not. One holds some 30 KB: its
// headers and the stack of its goroutine.
const (
	strangersInAll     = 4096
	strangersByAddress = 1024
	// refusedFor is how long the answer to such a caller may wait until it is read.
	refusedFor = 2 * time.Second
	// turnedAwayFor is the same for a request beyond the bounds.
	turnedAwayFor = 100 * time.Millisecond
)

// strangers counts the requests whose caller is not authenticated, until their answer was written. The
// zero value has counted none. Safe for concurrent use.
type strangers struct {
	mu        sync.Mutex
	all       int
	byAddress map[string]int
}

// enter reports whether a request from an address is within the bounds. If it is, the request counts
// until leave is called, which may be called more than once.
func (s *strangers) enter(remote string) (leave func(), ok bool) {
	address := ""
	if from, err := netip.ParseAddrPort(remote); err == nil {
		address = serving.AddressOf(from)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= strangersInAll || s.byAddress[address] >= strangersByAddress {
		return nil, false
	}
	if s.byAddress == nil {
		s.byAddress = map[string]int{}
	}
	s.all++
	s.byAddress[address]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.byAddress[address]--; s.byAddress[address] == 0 {
			delete(s.byAddress, address)
		}
	}), true
}

// turnAway answers a request beyond the bounds, and closes its connection (over HTTP/2 by GOAWAY).
func turnAway(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(turnedAwayFor))
	w.Header().Set("Connection", "close")
	respond(w, r, apierrors.NewTooManyRequests("too many requests are waiting for authentication", 1))
}

// finish ends the answer to a caller that was not authenticated: it is written here, while the request
// still counts, and not after the handler has returned.
func finish(w *timedWriter, r *http.Request) {
	if w.code == http.StatusSwitchingProtocols {
		return
	}
	w.finished = true
	_ = w.control.SetWriteDeadline(time.Now().Add(refusedFor))
	if r.ProtoMajor == 2 {
		_ = w.FlushError()
	}
}

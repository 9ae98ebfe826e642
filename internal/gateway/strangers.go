// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant/internal/serving"
)

// The bounds of requests whose caller is not authenticated. One holds some 30 KB: its headers and the
// stack of its goroutine.
const (
	// Requests whose caller is being authenticated. Usually, that takes less than a millisecond.
	strangersInAll     = 4096
	strangersByAddress = 1024
	// Refusals that no client reads, such as 401 and 400. A further refusal waits for hurriedFor only,
	// so that it delays no other caller.
	refusalsInAll     = 512
	refusalsByAddress = 64
	refusedFor        = 2 * time.Second
	hurriedFor        = 100 * time.Millisecond
)

// counts bound requests in all and by address. Safe for concurrent use.
type counts struct {
	inAll, each int
	mu          sync.Mutex
	all         int
	byAddress   map[string]int
}

func newCounts(inAll, each int) *counts {
	return &counts{inAll: inAll, each: each, byAddress: map[string]int{}}
}

// enter reports whether a request from an address is within the bounds. If it is, the request counts
// until leave is called, which may be called more than once.
func (s *counts) enter(remote string) (leave func(), ok bool) {
	address := ""
	if from, err := netip.ParseAddrPort(remote); err == nil {
		address = serving.AddressOf(from)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.inAll || s.byAddress[address] >= s.each {
		return nil, false
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
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(hurriedFor))
	w.Header().Set("Connection", "close")
	respond(w, r, apierrors.NewTooManyRequests("too many requests are waiting for authentication", 1))
}

// finish ends the answer to a caller that was not authenticated, over HTTP/2: it is written here, while
// it counts among the refusals, and not after the handler has returned. A connection of HTTP/1.1 holds
// one answer, which ends as every other.
func (g *Gateway) finish(w *timedWriter, r *http.Request) {
	if r.ProtoMajor != 2 || w.code == http.StatusSwitchingProtocols {
		return
	}
	w.finished = true
	patience := hurriedFor
	if leave, ok := g.refusals.enter(r.RemoteAddr); ok {
		defer leave()
		patience = refusedFor
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(patience))
	_ = w.FlushError()
}

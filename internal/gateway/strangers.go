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

// The limits of requests whose caller is not authenticated. One such request holds about 30 KB, for
// its headers and the stack of its goroutine.
const (
	// For requests whose caller is being authenticated. This usually takes less than a millisecond.
	strangersInAll     = 4096
	strangersByAddress = 1024
	// For refusals, such as 401 and 400, that their clients do not read. Above the limit, a refusal
	// waits only for hurriedFor, so that it delays no other caller.
	refusalsInAll     = 512
	refusalsByAddress = 64
	refusedFor        = 2 * time.Second
	hurriedFor        = 100 * time.Millisecond
)

// counts are the numbers of concurrent requests, with limits in total and by address. It is safe
// for concurrent use.
type counts struct {
	inAll, each int
	mu          sync.Mutex
	all         int
	byAddress   map[string]int
}

func newCounts(inAll, each int) *counts {
	return &counts{inAll: inAll, each: each, byAddress: map[string]int{}}
}

// enter reports whether a request from an address is within the limits. If it is, the request uses
// the limits until leave is called. leave may be called more than once.
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

// turnAway responds to a request above the limits, and closes its connection (over HTTP/2 with a
// GOAWAY frame).
func turnAway(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(hurriedFor))
	w.Header().Set("Connection", "close")
	respond(w, r, apierrors.NewTooManyRequests("too many requests are waiting for authentication", 1))
}

// finish completes the response to a caller that was not authenticated, over HTTP/2. It flushes the
// response here, while it is one of the counted refusals, and not after the handler returns. An
// HTTP/1.1 connection has only one response at a time, which ends like any other.
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

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
	maxUnauthenticated           = 4096
	maxUnauthenticatedPerAddress = 1024
	// For responses such as 400 and 401 that their clients have not read yet. Above the limit, the
	// gateway writes a response only for shortRejectionTimeout, so that a slow client holds few
	// resources.
	maxRejections           = 512
	maxRejectionsPerAddress = 64
	rejectionTimeout        = 2 * time.Second
	shortRejectionTimeout   = 100 * time.Millisecond
)

// requestLimits limits the number of concurrent requests, in total and for each client address.
// It is safe for concurrent use.
type requestLimits struct {
	maxTotal, maxPerAddress int
	mu                      sync.Mutex
	total                   int
	byAddress               map[string]int
}

func newRequestLimits(inAll, each int) *requestLimits {
	return &requestLimits{maxTotal: inAll, maxPerAddress: each, byAddress: map[string]int{}}
}

// enter reports whether a request from an address is within the limits. If so, the request counts
// toward the limits until leave is called. The caller may call leave more than once.
func (s *requestLimits) enter(remote string) (leave func(), ok bool) {
	address := ""
	if from, err := netip.ParseAddrPort(remote); err == nil {
		address = serving.AddressOf(from)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.maxTotal || s.byAddress[address] >= s.maxPerAddress {
		return nil, false
	}
	s.total++
	s.byAddress[address]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.byAddress[address]--; s.byAddress[address] == 0 {
			delete(s.byAddress, address)
		}
	}), true
}

// rejectOverLimit responds to a request above the limits, and closes its connection (over HTTP/2
// with a GOAWAY frame).
func rejectOverLimit(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(shortRejectionTimeout))
	w.Header().Set("Connection", "close")
	respond(w, r, apierrors.NewTooManyRequests("too many requests are waiting for authentication", 1))
}

// flushRejection completes an HTTP/2 response to a caller that was not authenticated. It flushes
// the response here, and not after the handler returns, so that the limits of rejections apply
// until the client has read it. Over HTTP/1.1, a connection has only one response at a time, and
// flushRejection does nothing.
func (g *Gateway) flushRejection(w *timedWriter, r *http.Request) {
	if r.ProtoMajor != 2 || w.code == http.StatusSwitchingProtocols {
		return
	}
	w.finished = true
	timeout := shortRejectionTimeout
	if leave, ok := g.rejections.enter(r.RemoteAddr); ok {
		defer leave()
		timeout = rejectionTimeout
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(timeout))
	_ = w.FlushError()
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubetenant/kubetenant/internal/fairuse"
)

const (
	// upgradeGrace is how long what was upgraded may go on when the gateway stops: a shell cannot be
	// opened again where it was, as a watch is.
	upgradeGrace = 10 * time.Second
	// lastWords is how long what is ended then has to say so, to its caller and in the audit log.
	lastWords = time.Second
	// knownWithin is how long a gateway that starts waits for clusters before it takes
	// requests for the others.
	knownWithin = 30 * time.Second
)

var (
	errStopping = errors.New("the gateway is shutting down")
	errUnknown  = errors.New("the state of some clusters has not been read yet")
)

// stopping is what streams end by when the gateway stops. Safe for concurrent use.
type stopping struct {
	begun    context.Context //nolint:containedctx // that of no request
	begin    context.CancelFunc
	upgrades atomic.Int64
}

func newStopping() *stopping {
	s := &stopping{}
	s.begun, s.begin = context.WithCancel(context.Background())
	return s
}

// stream returns the context of a stream that is to be opened, and what is called at its end; false
// where none is opened any more.
func (s *stopping) stream(ctx context.Context, r *http.Request) (_ context.Context, done func(), ok bool) {
	if fairuse.IsUpgrade(r) {
		s.upgrades.Add(1)
		done = func() { s.upgrades.Add(-1) }
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		stop := context.AfterFunc(s.begun, cancel)
		done = func() { stop(); cancel() }
	}
	if s.begun.Err() != nil {
		done()
		return nil, nil, false
	}
	return ctx, done, true
}

// refuseStream answers a stream that is not opened any more: its client asks again,
// over another connection.
func refuseStream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", "1")
	respond(w, r, apierrors.NewServiceUnavailable(errStopping.Error()))
}

// EndStreams ends watches and logs, opens no streams any more, and ends what was upgraded after a
// grace, or when ctx ends. It returns when all of them have ended, as far as they do.
func (g *Gateway) EndStreams(ctx context.Context) {
	g.stopping.begin()
	g.stopping.awaitUpgrades(ctx, upgradeGrace)
	for _, c := range g.current.Load().routes {
		c.cluster.stack.EndSessions()
	}
	g.stopping.awaitUpgrades(context.WithoutCancel(ctx), lastWords)
}

// awaitUpgrades waits until nothing that was upgraded is open, for a time.
func (s *stopping) awaitUpgrades(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		return s.upgrades.Load() == 0, nil
	})
}

// Known returns why a gateway that has just started should not be sent requests yet: clusters of
// which nothing is known deny their tenants. One that cannot be reached keeps it from being ready
// for half a minute, and never again.
func (g *Gateway) Known(*http.Request) error {
	if g.known.Load() || time.Since(g.opened) > knownWithin {
		return nil
	}
	for _, c := range g.current.Load().routes {
		if c.cluster.state.Check() != nil {
			return errUnknown
		}
	}
	g.known.Store(true)
	return nil
}

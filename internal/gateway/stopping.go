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
	// upgradeGrace is how long upgraded connections may continue when the gateway stops. Unlike a
	// watch, a shell cannot be resumed.
	upgradeGrace = 10 * time.Second
	// closeGrace is how long the handler of an upgraded connection then has to notify the caller
	// and to write the audit event.
	closeGrace = time.Second
	// syncTimeout is how long after its start a gateway may be unready because the caches of some
	// clusters have not synced.
	syncTimeout = 30 * time.Second
)

var (
	errStopping  = errors.New("the gateway is shutting down")
	errNotSynced = errors.New("the state of some clusters has not been read yet")
)

// stopping ends streams when the gateway stops. It is safe for concurrent use.
type stopping struct {
	begun    context.Context //nolint:containedctx // not the context of a request
	begin    context.CancelFunc
	upgrades atomic.Int64
}

func newStopping() *stopping {
	s := &stopping{}
	s.begun, s.begin = context.WithCancel(context.Background())
	return s
}

// stream returns the context of a stream, and a function to call at its end. It returns false if
// the gateway no longer accepts streams.
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

// refuseStream responds to a stream that the gateway no longer accepts. The client retries over
// another connection.
func refuseStream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", "1")
	respond(w, r, apierrors.NewServiceUnavailable(errStopping.Error()))
}

// EndStreams ends watches and logs and rejects new streams. It ends upgraded connections after a
// grace period, or when ctx ends. It returns when all upgraded connections have ended, or after a
// timeout.
func (g *Gateway) EndStreams(ctx context.Context) {
	g.stopping.begin()
	g.stopping.awaitUpgrades(ctx, upgradeGrace)
	for _, c := range g.current.Load().routes {
		c.cluster.stack.EndSessions()
	}
	g.stopping.awaitUpgrades(context.WithoutCancel(ctx), closeGrace)
}

// awaitUpgrades waits until no upgraded connection is left, the timeout has passed, or ctx ends.
func (s *stopping) awaitUpgrades(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		return s.upgrades.Load() == 0, nil
	})
}

// CheckReady returns an error while a gateway that has just started should not receive requests. A
// cluster denies its tenants' requests until its caches have synced. An unreachable cluster delays
// readiness for at most half a minute after the start. Later, it has no effect on readiness.
func (g *Gateway) CheckReady(*http.Request) error {
	if g.synced.Load() || time.Since(g.started) > syncTimeout {
		return nil
	}
	for _, c := range g.current.Load().routes {
		if !c.cluster.state.Current() {
			return errNotSynced
		}
	}
	g.synced.Store(true)
	return nil
}

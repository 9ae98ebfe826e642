// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// checkEvery is the interval at which a balancer checks whether a replica is ready.
const checkEvery = 200 * time.Millisecond

// readyAfter is the number of successful checks in a row after which a replica is ready. A gateway
// from before 0.1.0 denies requests of tenants for up to 200 ms after it has become ready.
const readyAfter = 3

// backend is a replica behind a balancer. It has the replica's address and the base URL of its
// readiness check.
type backend struct {
	address, health string
	ready           atomic.Bool
}

// newBalancer starts a listener that forwards connections to ready replicas, and returns its
// address.
func newBalancer(t *testing.T, backends ...*backend) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	ctx := t.Context()
	for _, b := range backends {
		go func() {
			for passed := 0; ctx.Err() == nil; time.Sleep(checkEvery) {
				passed++
				if readyz(ctx, b.health) != nil {
					passed = 0
				}
				b.ready.Store(passed >= readyAfter)
			}
		}()
	}
	go func() {
		for n := 0; ; n++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(from, backends, n)
		}
	}()
	return listener.Addr().String()
}

// forward connects a client to the next replica that is ready and reachable.
func forward(from net.Conn, backends []*backend, n int) {
	defer func() { _ = from.Close() }()
	for i := range backends {
		b := backends[(n+i)%len(backends)]
		if !b.ready.Load() {
			continue
		}
		to, err := net.Dial("tcp", b.address)
		if err != nil {
			b.ready.Store(false)
			continue
		}
		defer func() { _ = to.Close() }()
		var wg sync.WaitGroup
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			wg.Go(func() {
				_, _ = io.Copy(way[1], way[0]) // either side may close the connection
				_ = way[1].(*net.TCPConn).CloseWrite()
			})
		}
		wg.Wait()
		return
	}
}

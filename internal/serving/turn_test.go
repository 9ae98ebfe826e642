// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// TestWaitForAddressBudgetIsShort checks that no connection waits long for the rate limit of its
// address. If other connections have exhausted this limit, clients at the address can still connect
// and keep their connections alive.
func TestWaitForAddressBudgetIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frames := newIdleFrames()
		client, server := net.Pipe()
		defer func() { _, _ = client.Close(), server.Close() }()
		connect := func() *countedConn { return frames.wrap(t.Context(), tls.Server(server, &tls.Config{})) }
		for range 100 { // connections that exhaust the limit
			for c := connect(); c.address.TryAccept(); {
				if c.takeToken() != nil {
					break
				}
			}
		}
		c, longest := connect(), time.Duration(0)
		for range connectionBurst {
			began := time.Now()
			if c.takeToken() != nil {
				break
			}
			longest = max(longest, time.Since(began))
		}
		if longest > maxAddressWait {
			t.Errorf("a connection waited %v", longest)
		}
		results := make(chan error, 1000)
		for range cap(results) {
			c := connect()
			for c.reserved.TryAccept() {
				continue
			}
			go func() {
				began := time.Now()
				err := c.takeToken()
				if took := time.Since(began); took > maxAddressWait {
					t.Errorf("a connection waited %v", took)
				}
				results <- err
			}()
		}
		closed := 0
		for range cap(results) {
			if errors.Is(<-results, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)) {
				closed++
			}
		}
		if closed < cap(results)*3/4 {
			t.Errorf("%d of %d connections above the limit were closed", closed, cap(results))
		}
		honest := connect()
		for range 10 { // SETTINGS, its ACK and more
			if err := honest.takeToken(); err != nil {
				t.Fatal("a new client:", err)
			}
		}
		for range 60 { // while other connections exhaust the limit
			for honest.address.TryAccept() {
				continue
			}
			if err := honest.takeToken(); err != nil {
				t.Fatal("a PING of an idle client:", err)
			}
			time.Sleep(time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		gone := frames.wrap(ctx, tls.Server(server, &tls.Config{}))
		for gone.reserved.TryAccept() || gone.address.TryAccept() {
			continue
		}
		if gone.takeToken() == nil {
			t.Error("takeToken succeeded after the connection had ended")
		}
	})
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/internal/budget"
)

// Limits of HTTP/2 connections. maxStreams and streamBuffer, in bytes, have the values of
// kube-apiserver (k8s.io/apiserver pkg/server/secure_serving.go, v0.37.1).
const (
	maxStreams       = 100
	streamBuffer     = 256 << 10
	connectionBuffer = 1 << 20
	// writeTimeout is the time after which the server closes a connection to which it cannot write
	// any byte.
	writeTimeout = 30 * time.Second
)

// The rate limits of idle frames, per second, and their bursts. A client that keeps canceling its
// watches sends some tens of idle frames per second. A load balancer that hides the addresses of
// its clients sends the frames of all its clients from one address.
const (
	connectionRate  = 200
	connectionBurst = 2000
	addressRate     = 1000
	addressBurst    = 5000
	// reservedRate is the rate of idle frames of a connection that do not use the rate limit of its
	// address. It lets a client connect and keep a connection alive while other clients at the
	// address exhaust that limit.
	reservedRate  = 5
	reservedBurst = 50
	// maxAddressWait is the maximum time for which a connection waits for the rate limit of its
	// address. It is short, so that the connections of an address do not form a long queue.
	maxAddressWait = 100 * time.Millisecond
)

// errCalm is the error of a connection that exceeds a rate limit. The server responds with GOAWAY.
const errCalm = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)

// idleFrames limits the rate of idle HTTP/2 frames (see [frameClassifier]). A connection that
// exceeds its own limit gets a GOAWAY with ENHANCE_YOUR_CALM. If an address exceeds its limit, the
// server reads the connections of this address that send idle frames more slowly. A connection that
// would wait longer than maxAddressWait also gets the GOAWAY.
type idleFrames struct{ byAddress *budget.Budgets }

func newIdleFrames() *idleFrames {
	return &idleFrames{budget.New(addressRate, addressBurst)}
}

// configure enables HTTP/2 for a server, with all limits.
func (f *idleFrames) configure(server *http.Server) error {
	h2 := &http2.Server{
		MaxConcurrentStreams:         maxStreams,
		MaxUploadBufferPerStream:     streamBuffer,
		MaxUploadBufferPerConnection: connectionBuffer,
		IdleTimeout:                  idleTimeout,
		WriteByteTimeout:             writeTimeout,
	}
	if err := http2.ConfigureServer(server, h2); err != nil {
		return err
	}
	server.TLSNextProto[http2.NextProtoTLS] = func(server *http.Server, conn *tls.Conn, handler http.Handler) {
		ctx := context.Background()
		if with, ok := handler.(interface{ BaseContext() context.Context }); ok { // implemented by the handler of net/http
			ctx = with.BaseContext()
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		h2.ServeConn(f.wrap(ctx, conn), &http2.ServeConnOpts{
			Context:    ctx,
			BaseConfig: server,
			Handler:    handler,
		})
	}
	return nil
}

func (f *idleFrames) wrap(ctx context.Context, conn *tls.Conn) *countedConn {
	return &countedConn{
		Conn:     conn,
		ctx:      ctx,
		received: frameReader{skip: len(http2.ClientPreface)},
		total:    flowcontrol.NewTokenBucketRateLimiter(connectionRate, connectionBurst),
		reserved: flowcontrol.NewTokenBucketRateLimiter(reservedRate, reservedBurst),
		address:  f.byAddress.Limiter(addressOf(conn.RemoteAddr())),
	}
}

// addressOf is [AddressOf] for a [net.Addr]. It returns "" if the address is not an IP address with
// a port.
func addressOf(addr net.Addr) string {
	from, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return ""
	}
	return AddressOf(from)
}

// AddressOf returns the part of an address that identifies a client for rate limits. It is an IPv4
// address, or the first 64 bits of an IPv6 address.
func AddressOf(from netip.AddrPort) string {
	address := from.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, err := address.Prefix(64)
	if err != nil {
		return ""
	}
	return network.String()
}

// countedConn is an HTTP/2 connection whose idle frames are limited.
type countedConn struct {
	*tls.Conn
	ctx                      context.Context //nolint:containedctx // of the connection
	received, sent           frameReader
	classifier               frameClassifier
	total, reserved, address flowcontrol.RateLimiter
}

// Read implements [net.Conn].
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	idle := c.classifier.resets.Swap(0)
	c.received.read(p[:n], func(f frameHeader) {
		if c.classifier.receive(f) {
			idle++
		}
	})
	for range idle {
		if err := c.takeToken(); err != nil {
			return 0, err
		}
	}
	return n, err
}

// takeToken takes one token for an idle frame. It waits for up to maxAddressWait. It returns
// errCalm if a limit is exceeded.
func (c *countedConn) takeToken() error {
	switch {
	case !c.total.TryAccept():
		return errCalm
	case c.reserved.TryAccept() || c.address.TryAccept():
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, maxAddressWait)
	defer cancel()
	if c.address.Wait(ctx) != nil { // returns an error immediately if the wait would be too long
		return errCalm
	}
	return nil
}

// Write implements [net.Conn].
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.read(p[:n], c.classifier.send)
	return n, err
}

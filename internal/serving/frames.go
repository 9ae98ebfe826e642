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

// Limits of HTTP/2. kube-apiserver has the same number of streams and the same buffer of a stream
// (k8s.io/apiserver pkg/server/secure_serving.go, v0.37.1).
const (
	maxStreams       = 100
	streamBuffer     = 256 << 10
	connectionBuffer = 1 << 20
	// writeTimeout is how long a connection may accept no byte before the server closes it.
	writeTimeout = 30 * time.Second
)

// The budgets of idle frames, per second and in a burst. A client that cancels each of its watches
// sends some tens per second. A load balancer that hides the addresses of its clients sends the
// frames of all of them.
const (
	connectionRate  = 200
	connectionBurst = 2000
	addressRate     = 1000
	addressBurst    = 5000
	// reservedRate is the number of frames that do not use the budget of the address. It lets clients
	// connect and keep a connection alive while others exhaust that budget.
	reservedRate  = 5
	reservedBurst = 50
	// maxAddressWait is how long a connection may wait for the budget of its address. It is short so
	// that the connections of an address wait for few frames together and no queue grows.
	maxAddressWait = 100 * time.Millisecond
)

// errCalm is the error of a connection that exceeds a budget. The server responds with GOAWAY.
const errCalm = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)

// idleFrames limits the HTTP/2 frames that request nothing. A connection that exceeds its own
// budget gets a GOAWAY with ENHANCE_YOUR_CALM. If an address exceeds its budget, its connections
// that send such frames are read more slowly. If they would have to wait for long, they get that
// GOAWAY too.
type idleFrames struct{ byAddress *budget.Budgets }

func newIdleFrames() *idleFrames {
	return &idleFrames{budget.New(addressRate, addressBurst)}
}

// configure enables HTTP/2 with limits for a server.
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
		if with, ok := handler.(interface{ BaseContext() context.Context }); ok { // net/http provides it
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

// addressOf returns the address of a client without its port. All addresses of an IPv6 network of
// 64 bits are equal.
func addressOf(addr net.Addr) string {
	from, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return ""
	}
	return AddressOf(from)
}

// AddressOf returns the part of an address by which clients are counted: an IPv4 address, or the
// first 64 bits of an IPv6 address.
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

// countedConn is a connection whose idle frames have a budget.
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

// takeToken uses the budgets for one idle frame.
func (c *countedConn) takeToken() error {
	switch {
	case !c.total.TryAccept():
		return errCalm
	case c.reserved.TryAccept() || c.address.TryAccept():
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, maxAddressWait)
	defer cancel()
	if c.address.Wait(ctx) != nil { // fails at once if the wait would be too long
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

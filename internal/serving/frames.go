package serving

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/internal/budget"
)

// The bounds of HTTP/2. kube-apiserver has the same number of streams and the same buffer of a stream
// (k8s.io/apiserver pkg/server/secure_serving.go, v0.37.1).
const (
	streamsEach      = 100
	streamBuffer     = 256 << 10
	connectionBuffer = 1 << 20
	// blockedFor is how long a connection may accept no byte before the server closes it.
	blockedFor = 30 * time.Second
)

// The budgets of idle frames: a second, and at once. A client that cancels each of its watches sends
// some tens a second, and a load balancer that hides the addresses of its clients sends those of all
// of them.
const (
	framesEach           = 200
	framesEachAtOnce     = 2000
	framesAddress        = 1000
	framesAddressAtOnce  = 5000
	smallWindowIncrement = 64
)

// idleFrames bounds the HTTP/2 frames that request nothing. A connection that exceeds its own budget
// gets a GOAWAY with ENHANCE_YOUR_CALM. Connections of an address that exceeds its budget are read
// more slowly when they send such frames, and only then: many callers may have one address.
type idleFrames struct{ byAddress *budget.Budgets }

func newIdleFrames() *idleFrames {
	return &idleFrames{budget.New(framesAddress, framesAddressAtOnce)}
}

// configure makes a server speak HTTP/2 with bounds.
func (f *idleFrames) configure(server *http.Server) error {
	h2 := &http2.Server{
		MaxConcurrentStreams:         streamsEach,
		MaxUploadBufferPerStream:     streamBuffer,
		MaxUploadBufferPerConnection: connectionBuffer,
		IdleTimeout:                  idleTimeout,
		WriteByteTimeout:             blockedFor,
	}
	if err := http2.ConfigureServer(server, h2); err != nil {
		return err
	}
	server.TLSNextProto[http2.NextProtoTLS] = func(server *http.Server, conn *tls.Conn, handler http.Handler) {
		ctx := context.Background()
		if with, is := handler.(interface{ BaseContext() context.Context }); is { // as net/http has it
			ctx = with.BaseContext()
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		h2.ServeConn(f.counted(ctx, conn), &http2.ServeConnOpts{
			Context:    ctx,
			BaseConfig: server,
			Handler:    handler,
		})
	}
	return nil
}

func (f *idleFrames) counted(ctx context.Context, conn *tls.Conn) *countedConn {
	return &countedConn{
		Conn:    conn,
		ctx:     ctx,
		frames:  frameReader{skip: len(http2.ClientPreface)},
		own:     flowcontrol.NewTokenBucketRateLimiter(framesEach, framesEachAtOnce),
		address: f.byAddress.Of(addressOf(conn.RemoteAddr())),
	}
}

// addressOf returns the address of a client without its port. The addresses of one IPv6 network of
// 64 bits are one.
func addressOf(addr net.Addr) string {
	from, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return ""
	}
	return AddressOf(from)
}

// AddressOf returns the part of an address by which clients are counted: an IPv4 address, or the first
// 64 bits of an IPv6 address.
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
	ctx          context.Context //nolint:containedctx // of the connection
	frames       frameReader
	own, address flowcontrol.RateLimiter
}

// Read implements [net.Conn].
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for range c.frames.idle(p[:n]) {
		if !c.own.TryAccept() { // which the server answers with GOAWAY
			return 0, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		if waitErr := c.address.Wait(c.ctx); waitErr != nil {
			return 0, waitErr
		}
	}
	return n, err
}

// frameHeaderBytes is the length of a frame's header (RFC 9113, section 4.1).
const frameHeaderBytes = 9

// frameReader finds the boundaries of the frames in what a client sends. The zero value expects a
// frame.
type frameReader struct {
	header [frameHeaderBytes]byte
	have   int // bytes of the header
	skip   int // bytes until the next header
	// increment and missing are of a WINDOW_UPDATE: its value and the bytes that it lacks.
	increment uint32
	missing   int
}

// idle returns the number of idle frames that end their header, or their increment, in some bytes.
func (r *frameReader) idle(bytes []byte) (idle int) {
	for len(bytes) > 0 {
		switch {
		case r.missing > 0:
			r.increment = r.increment<<8 | uint32(bytes[0])
			r.missing--
			bytes = bytes[1:]
			if r.missing == 0 && r.increment&(1<<31-1) < smallWindowIncrement {
				idle++
			}
		case r.skip > 0:
			skipped := min(r.skip, len(bytes))
			r.skip -= skipped
			bytes = bytes[skipped:]
		default:
			copied := copy(r.header[r.have:], bytes)
			r.have += copied
			bytes = bytes[copied:]
			if r.have == frameHeaderBytes && r.begin() {
				idle++
			}
		}
	}
	return idle
}

// begin reads the header of a frame and reports whether the frame is idle.
func (r *frameReader) begin() bool {
	length := int(r.header[0])<<16 | int(binary.BigEndian.Uint16(r.header[1:3]))
	flags := http2.Flags(r.header[4])
	r.have, r.skip = 0, length
	switch kind := http2.FrameType(r.header[3]); kind {
	case http2.FrameHeaders:
		return false
	case http2.FrameData:
		padding := flags.Has(http2.FlagDataPadded) && length <= 256
		return (length == 0 || padding) && !flags.Has(http2.FlagDataEndStream)
	case http2.FrameContinuation:
		return length == 0
	case http2.FrameWindowUpdate:
		r.missing, r.increment = min(length, 4), 0
		r.skip = length - r.missing
		return length == 0
	default: // PRIORITY, RST_STREAM, SETTINGS, PING and those that the server ignores
		return true
	}
}

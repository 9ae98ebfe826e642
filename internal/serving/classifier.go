// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// The credits of a connection. A small frame costs one credit. If the connection has no credit, the
// frame is idle.
const (
	// smallData is the number of bytes below which a DATA frame costs a credit.
	smallData = 256
	// A request earns credits for its last DATA frame, and for other small frames that some clients
	// send with each request.
	requestCredits = 4
	// A DATA frame from the server earns credits for the WINDOW_UPDATEs with which the client
	// responds, one for the stream and one for the connection. A client sends them after it has
	// received at least 4 KiB or a whole frame.
	dataCredits    = 2
	bytesPerCredit = 1 << 10
	maxCredits     = 8192
)

// frameClassifier finds the idle frames of an HTTP/2 connection. An idle frame neither requests
// nor transfers anything. One goroutine may call receive while another goroutine calls send. The
// zero value is for a new connection.
//
// The frames of a client are classified as follows:
//
//	HEADERS of a new stream                  a request, earns credits
//	HEADERS of another stream                idle: trailers, or an error
//	DATA of smallData or more                transfers data
//	DATA of less, empty or padded DATA       costs a credit
//	CONTINUATION                             costs a credit
//	WINDOW_UPDATE                            costs a credit
//	RST_STREAM, SETTINGS, PING, PRIORITY     idle
//	GOAWAY, PUSH_PROMISE, all others         idle
//
// A RST_STREAM from the server is also counted as an idle frame of the client. Most of these
// frames respond to stream errors of the client, such as a WINDOW_UPDATE that overflows a window,
// or DATA after the end of a request.
type frameClassifier struct {
	newestStream uint32 // the highest stream ID of a request
	credits      atomic.Int64
	resets       atomic.Int64 // RST_STREAM frames from the server that were not counted as idle yet
}

// receive reports whether a frame from the client is idle.
func (w *frameClassifier) receive(f frameHeader) bool {
	switch f.kind {
	case http2.FrameHeaders:
		if f.stream <= w.newestStream {
			return true
		}
		w.newestStream = f.stream
		w.earn(requestCredits)
		return false
	case http2.FrameData:
		size := f.length
		if f.flags.Has(http2.FlagDataPadded) {
			size -= 256 // the longest padding and its length
		}
		return size < smallData && !w.spend()
	case http2.FrameContinuation, http2.FrameWindowUpdate:
		return !w.spend()
	default:
		return true
	}
}

// send records a frame from the server.
func (w *frameClassifier) send(f frameHeader) {
	switch {
	case f.kind == http2.FrameRSTStream:
		w.resets.Add(1)
	case f.kind == http2.FrameData && f.length > 0:
		w.earn(dataCredits + int64(f.length/bytesPerCredit))
	}
}

func (w *frameClassifier) earn(credits int64) {
	if w.credits.Load() < maxCredits {
		w.credits.Add(credits)
	}
}

// spend uses one credit. It returns false if the connection has none. Only the goroutine of receive
// may call it.
func (w *frameClassifier) spend() bool {
	if w.credits.Load() <= 0 {
		return false
	}
	w.credits.Add(-1)
	return true
}

// frameHeaderBytes is the length of a frame's header (RFC 9113, section 4.1).
const frameHeaderBytes = 9

// frameHeader is the header of a frame.
type frameHeader struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// frameReader finds the frame headers in one direction of a connection. The zero value expects the
// header of a frame next.
type frameReader struct {
	header    [frameHeaderBytes]byte
	headerLen int // number of bytes in header
	skip      int // number of bytes until the next header
}

// read reads the next bytes of the connection and calls found for each header that they complete.
func (r *frameReader) read(bytes []byte, found func(frameHeader)) {
	for len(bytes) > 0 {
		if r.skip > 0 {
			skipped := min(r.skip, len(bytes))
			r.skip -= skipped
			bytes = bytes[skipped:]
			continue
		}
		copied := copy(r.header[r.headerLen:], bytes)
		r.headerLen += copied
		bytes = bytes[copied:]
		if r.headerLen == frameHeaderBytes {
			f := r.parse()
			r.headerLen = 0
			r.skip = f.length
			found(f)
		}
	}
}

func (r *frameReader) parse() frameHeader {
	return frameHeader{
		length: int(r.header[0])<<16 | int(binary.BigEndian.Uint16(r.header[1:3])),
		kind:   http2.FrameType(r.header[3]),
		flags:  http2.Flags(r.header[4]),
		stream: binary.BigEndian.Uint32(r.header[5:9]) & (1<<31 - 1),
	}
}

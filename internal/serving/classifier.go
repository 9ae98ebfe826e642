// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// The credits of a connection. A small frame costs one credit, and is idle if there is none.
const (
	// smallData is the size of DATA frames below which a frame costs a credit.
	smallData = 256
	// A request earns credits for its last DATA, and for what some clients send with each request.
	requestCredits = 4
	// A frame of DATA that the server sends earns credits for the WINDOW_UPDATEs of the stream and
	// the connection. Clients send both for 4 KiB or more, or for a whole frame.
	dataCredits    = 2
	bytesPerCredit = 1 << 10
	maxCredits     = 8192
)

// frameClassifier classifies the frames of a connection. One goroutine calls receive, another one calls
// send. The zero value is a new connection.
//
// The frames that a client sends are:
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
// A RST_STREAM that the server sends is idle too. Most of them respond to stream errors of the
// client, such as a WINDOW_UPDATE that overflows a window, or DATA after the end of a request.
type frameClassifier struct {
	newestStream uint32 // the newest stream
	credits      atomic.Int64
	resets       atomic.Int64 // RST_STREAM frames of the server that were not counted yet
}

// receive reports whether a frame of the client is idle.
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

// send records a frame of the server.
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

// spend uses a credit and reports whether there was one. Only the goroutine of receive calls it.
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

// frameReader finds the frame headers in one direction of a connection. The zero value expects a
// frame.
type frameReader struct {
	header    [frameHeaderBytes]byte
	headerLen int // bytes of the header
	skip      int // bytes until the next header
}

// read calls found for each header that is complete after these bytes.
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
			r.headerLen, r.skip = 0, f.length
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

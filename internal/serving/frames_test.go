// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framedConn is an HTTP/2 connection on which a test writes individual frames.
type framedConn struct {
	*http2.Framer
	conn   *tls.Conn
	buffer bytes.Buffer
	fields *hpack.Encoder
	stream uint32
}

func (r *testServer) frames(t *testing.T) *framedConn {
	t.Helper()
	certificate := r.clients.issue(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
	config := r.config(&certificate)
	config.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &framedConn{Framer: http2.NewFramer(conn, conn), conn: conn.(*tls.Conn), stream: 1}
	f.fields = hpack.NewEncoder(&f.buffer)
	f.AllowIllegalWrites = true
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err := errors.Join(err, f.WriteSettings(), conn.SetDeadline(time.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	return f
}

// begin begins a request.
func (f *framedConn) begin(method string, end bool, fields ...string) error {
	f.buffer.Reset()
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: method},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "webhook.test"},
		{Name: ":path", Value: "/x"},
	} {
		_ = f.fields.WriteField(field)
	}
	for i := 0; i < len(fields); i += 2 {
		_ = f.fields.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	f.stream += 2
	return f.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      f.stream,
		BlockFragment: f.buffer.Bytes(),
		EndStream:     end,
		EndHeaders:    true,
	})
}

// drain reads until the connection ends, and returns the code of its GOAWAY.
func (f *framedConn) drain() <-chan http2.ErrCode {
	code := make(chan http2.ErrCode, 1)
	go func() {
		last := http2.ErrCodeNo
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				code <- last
				return
			}
			if away, ok := frame.(*http2.GoAwayFrame); ok {
				last = away.ErrCode
			}
		}
	}()
	return code
}

func respondEmpty(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusOK)
}

// TestFrameFloodsAreClosed checks that the server closes a connection that sends many frames
// which request nothing, with the error ENHANCE_YOUR_CALM. It must not close a connection that
// sends only as many idle frames as a busy client. Most of the frames cause stream errors, which
// the server answers with a reset (CVE-2025-8671).
func TestFrameFloodsAreClosed(t *testing.T) {
	opened := func(send func(f *framedConn) error) func(f *framedConn) error {
		return func(f *framedConn) error { return errors.Join(f.begin(http.MethodPost, false), send(f)) }
	}
	once := func(send func(f *framedConn) error) func(f *framedConn) error {
		return func(f *framedConn) error {
			if f.stream == 1 {
				if err := f.begin(http.MethodPost, false); err != nil {
					return err
				}
			}
			return send(f)
		}
	}
	kinds := map[string]func(f *framedConn) error{
		"SETTINGS":    func(f *framedConn) error { return f.WriteSettings() },
		"PING":        func(f *framedConn) error { return f.WritePing(false, [8]byte{}) },
		"empty DATA":  once(func(f *framedConn) error { return f.WriteData(f.stream, false, nil) }),
		"DATA of one": once(func(f *framedConn) error { return f.WriteData(f.stream, false, []byte("x")) }),
		"padded DATA": once(func(f *framedConn) error { return f.WriteDataPadded(f.stream, false, nil, make([]byte, 99)) }),
		"reset": func(f *framedConn) error {
			return errors.Join(f.begin(http.MethodGet, true), f.WriteRSTStream(f.stream, http2.ErrCodeCancel))
		},
		"WINDOW_UPDATE of an old stream": func(f *framedConn) error {
			if f.stream == 1 {
				if err := f.begin(http.MethodGet, true); err != nil {
					return err
				}
			}
			return f.WriteWindowUpdate(f.stream, 1<<16)
		},
		"WINDOW_UPDATE that overflows": opened(func(f *framedConn) error { return f.WriteWindowUpdate(f.stream, 1<<31-1) }),
		"WINDOW_UPDATE of 0": opened(func(f *framedConn) error {
			return f.WriteRawFrame(http2.FrameWindowUpdate, 0, f.stream, make([]byte, 4))
		}),
		"HEADERS again": opened(func(f *framedConn) error {
			f.stream -= 2
			return f.begin(http.MethodPost, false)
		}),
		"HEADERS after the end": func(f *framedConn) error {
			err := f.begin(http.MethodGet, true)
			f.stream -= 2
			return errors.Join(err, f.begin(http.MethodGet, true))
		},
		"DATA after the end": func(f *framedConn) error {
			return errors.Join(f.begin(http.MethodGet, true), f.WriteData(f.stream, true, make([]byte, 999)))
		},
		"DATA beyond content-length": func(f *framedConn) error {
			return errors.Join(f.begin(http.MethodPost, false, "content-length", "1"),
				f.WriteData(f.stream, true, make([]byte, 999)))
		},
		"an invalid method":        func(f *framedConn) error { return f.begin("", true) },
		"an invalid pseudo header": func(f *framedConn) error { return f.begin(http.MethodGet, true, ":status", "200") },
		"an invalid header":        func(f *framedConn) error { return f.begin(http.MethodGet, true, "Upper", "x") },
		"PRIORITY of itself": opened(func(f *framedConn) error {
			return f.WriteRawFrame(http2.FramePriority, 0, f.stream, []byte{0, 0, 0, byte(f.stream), 9})
		}),
	}
	for kind, send := range kinds {
		for many, floods := range map[int]bool{500: false, 20_000: true} {
			t.Run(fmt.Sprintf("%s %d", kind, many), func(t *testing.T) {
				t.Parallel()
				f := startServer(t, http.HandlerFunc(respondEmpty), 0).frames(t) // with the full budget of the address
				code, sent, failed := f.drain(), 0, error(nil)
				for ; sent < many && failed == nil; sent++ {
					failed = send(f)
				}
				if !floods {
					if failed == nil {
						failed = f.begin(http.MethodGet, true)
					}
					select {
					case c := <-code:
						t.Errorf("closed after %d frames: %v, %v", sent, c, failed)
					default:
					}
					return
				}
				if c := <-code; c != http2.ErrCodeEnhanceYourCalm &&
					(c != http2.ErrCodeProtocol || !strings.HasPrefix(kind, "HEADERS")) { // some HEADERS are a connection error
					t.Errorf("after %d frames: %v, %v", sent, c, failed)
				}
			})
		}
	}
}

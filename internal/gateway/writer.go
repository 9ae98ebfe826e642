// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// writers are the writers of the responses in progress. A write without progress for
// stalledWriteTimeout is aborted. A loop checks all writers at intervals, because a deadline for
// each write would cost more than the write. Over HTTP/2, a deadline is a message to the goroutine
// of the connection. The methods are safe for concurrent use.
type writers struct {
	mu   sync.Mutex
	open map[*timedWriter]struct{}
}

// writerCheckInterval is the interval at which the writers are checked.
const writerCheckInterval = 5 * time.Second

// run aborts blocked writes until ctx ends.
func (all *writers) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) { all.check(time.Now()) }, writerCheckInterval)
}

func (all *writers) check(now time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for w := range all.open {
		if since := w.writeStart.Load(); since != 0 && now.UnixNano()-since > int64(stalledWriteTimeout) {
			_ = w.control.SetWriteDeadline(now) // an error means that the response has ended
		}
	}
}

// track returns a writer that is checked until done is called. It has the optional interfaces of
// the writer that it wraps.
func (all *writers) track(w http.ResponseWriter) (_ http.ResponseWriter, out *timedWriter, done func()) {
	out = &timedWriter{ResponseWriter: w, control: http.NewResponseController(w), code: http.StatusOK}
	all.mu.Lock()
	if all.open == nil {
		all.open = map[*timedWriter]struct{}{}
	}
	all.open[out] = struct{}{}
	all.mu.Unlock()
	done = func() {
		if out.code != http.StatusSwitchingProtocols && !out.finished { // net/http writes the rest after the handler
			_ = out.control.SetWriteDeadline(time.Now().Add(stalledWriteTimeout))
		}
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.open, out)
	}
	if hijacker, ok := w.(http.Hijacker); ok {
		if notifier, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // upstream's filters ask for it
			return &timedConnWriter{out, notifier, hijacker}, out, done
		}
	}
	if notifier, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // as above
		return &timedStreamWriter{out, notifier}, out, done
	}
	return out, out, done
}

type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	code    int // status of the response
	// finished reports whether flushRejection has set the last deadline of the response.
	finished   bool
	writeStart atomic.Int64 // start of the current write in ns, 0 if there is none
}

// timed runs a function that may block, and records when it began.
func (w *timedWriter) timed(do func()) {
	w.writeStart.Store(time.Now().UnixNano())
	defer w.writeStart.Store(0)
	do()
}

// WriteHeader implements [http.ResponseWriter].
func (w *timedWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *timedWriter) Write(b []byte) (n int, err error) {
	w.timed(func() { n, err = w.ResponseWriter.Write(b) })
	return n, err
}

// Flush implements [http.Flusher].
func (w *timedWriter) Flush() { _ = w.FlushError() }

// FlushError is used by [http.ResponseController].
func (w *timedWriter) FlushError() (err error) {
	w.timed(func() { err = w.control.Flush() })
	return err
}

// Unwrap is used by [http.ResponseController].
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// timedStreamWriter is the writer of a response over HTTP/2.
type timedStreamWriter struct {
	*timedWriter
	http.CloseNotifier
}

// timedConnWriter is the writer of a response over HTTP/1.1.
type timedConnWriter struct {
	*timedWriter
	http.CloseNotifier
	hijacker http.Hijacker
}

// Hijack implements [http.Hijacker].
func (w *timedConnWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.code = http.StatusSwitchingProtocols
	conn, buffered, err := w.hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &timedConn{conn, w.timedWriter}, buffered, nil
}

// timedConn is a connection that was hijacked from HTTP.
type timedConn struct {
	net.Conn
	writer *timedWriter
}

// CloseWrite ends the data that the gateway sends, while it still reads from the caller.
// [httputil.ReverseProxy] calls it.
func (c *timedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Write implements [net.Conn].
func (c *timedConn) Write(b []byte) (n int, err error) {
	c.writer.timed(func() { n, err = c.Conn.Write(b) })
	return n, err
}

package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// writes returns a writer of answers in which nothing stands still for long: a caller that does not read is cut off. It has what the
// writers of its protocol have.
func writes(w http.ResponseWriter) (http.ResponseWriter, *timedWriter) {
	out := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w), code: http.StatusOK}
	if hijacker, can := w.(http.Hijacker); can {
		if notifier, can := w.(http.CloseNotifier); can { //nolint:staticcheck // upstream's filters ask for it
			return &timedConnWriter{out, notifier, hijacker}, out
		}
	}
	if notifier, can := w.(http.CloseNotifier); can { //nolint:staticcheck // as above
		return &timedStreamWriter{out, notifier}, out
	}
	return out, out
}

type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	code    int // of the answer
}

// within does what may block. A deadline that passes while nothing is written would end a stream of HTTP/2 as well.
func (w *timedWriter) within(do func()) {
	if err := w.control.SetWriteDeadline(time.Now().Add(blockedFor)); err == nil {
		defer func() { _ = w.control.SetWriteDeadline(time.Time{}) }()
	}
	do()
}

// WriteHeader implements [http.ResponseWriter].
func (w *timedWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *timedWriter) Write(b []byte) (n int, err error) {
	w.within(func() { n, err = w.ResponseWriter.Write(b) })
	return n, err
}

// Flush implements [http.Flusher].
func (w *timedWriter) Flush() { _ = w.FlushError() }

// FlushError is what [http.ResponseController] asks for.
func (w *timedWriter) FlushError() (err error) {
	w.within(func() { err = w.control.Flush() })
	return err
}

// Unwrap is what [http.ResponseController] asks for.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// timedStreamWriter is of HTTP/2.
type timedStreamWriter struct {
	*timedWriter
	http.CloseNotifier
}

// timedConnWriter is of HTTP/1.1.
type timedConnWriter struct {
	*timedWriter
	http.CloseNotifier
	hijacker http.Hijacker
}

// Hijack implements [http.Hijacker].
func (w *timedConnWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.code = http.StatusSwitchingProtocols
	return w.hijacker.Hijack()
}

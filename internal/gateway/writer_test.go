// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// deadlineRecorder records the write deadlines that are set.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlineRecorder) SetWriteDeadline(t time.Time) error { d.set = append(d.set, t); return nil }

// fakeHijacker is a connection that can be hijacked.
type fakeHijacker struct{ net.Conn }

func (h fakeHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.Conn, nil, nil }

// TestStalledWritesAreAborted checks that a write without progress is aborted, and that a response
// without a current write is not. When a handler ends, the rest of its response gets a deadline.
func TestStalledWritesAreAborted(t *testing.T) {
	var all writers
	now := time.Now()
	for what, c := range map[string]struct {
		since time.Time
		cut   bool
	}{
		"no write":                   {},
		"a new write":                {since: now.Add(-time.Second)},
		"a write before the timeout": {since: now.Add(-stalledWriteTimeout + time.Second)},
		"a stalled write":            {since: now.Add(-stalledWriteTimeout - time.Second), cut: true},
	} {
		t.Run(what, func(t *testing.T) {
			d := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
			_, w, done := all.track(d)
			if !c.since.IsZero() {
				w.writeStart.Store(c.since.UnixNano())
			}
			all.check(now)
			if cut := len(d.set) == 1 && d.set[0].Equal(now); cut != c.cut {
				t.Errorf("deadlines %v", d.set)
			}
			d.set = nil
			done()
			if len(d.set) != 1 || d.set[0].Before(now) {
				t.Errorf("%s, when the handler ends: deadlines %v", what, d.set)
			}
			if all.check(now.Add(time.Hour)); len(d.set) != 1 {
				t.Errorf("%s, after the handler has ended: deadlines %v", what, d.set)
			}
		})
	}
	// A write to a hijacked connection is recorded too.
	gatewayEnd, clusterEnd := net.Pipe()
	defer func() { _ = gatewayEnd.Close() }()
	_, w, done := all.track(&deadlineRecorder{ResponseRecorder: httptest.NewRecorder()})
	conn, _, err := (&timedConnWriter{timedWriter: w, hijacker: fakeHijacker{gatewayEnd}}).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = conn.Write([]byte("x")) }()
	waittest.Until(t, func() error {
		if w.writeStart.Load() == 0 {
			return errors.New("a write to a hijacked connection is not recorded")
		}
		return nil
	})
	_ = clusterEnd.Close()
	done()
	// A write records when it began, and that it ended.
	d := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	_, w, done = all.track(d)
	defer done()
	w.timed(func() {
		if w.writeStart.Load() == 0 {
			t.Error("the start of a write is not recorded")
		}
	})
	if w.writeStart.Load() != 0 {
		t.Error("the end of a write is not recorded")
	}
	// An upgraded connection gets no deadline.
	upgraded := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	_, w, done = all.track(upgraded)
	w.code = http.StatusSwitchingProtocols
	if done(); len(upgraded.set) > 0 {
		t.Errorf("an upgrade: deadlines %v", upgraded.set)
	}
}

// closeWriteConn is a connection that supports CloseWrite.
type closeWriteConn struct {
	net.Conn
	closed bool
}

func (h *closeWriteConn) CloseWrite() error { h.closed = true; return nil }

// TestCloseWriteIsForwarded checks that closing a hijacked connection for writing does not close it
// for reading.
func TestCloseWriteIsForwarded(t *testing.T) {
	conn := &closeWriteConn{}
	if err := (&timedConn{conn, &timedWriter{}}).CloseWrite(); err != nil || !conn.closed {
		t.Errorf("%v, %t", err, conn.closed)
	}
}

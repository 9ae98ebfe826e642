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

// deadlines records the write deadlines that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.set = append(d.set, t); return nil }

// hijacked is a connection that can be hijacked.
type hijacked struct{ net.Conn }

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.Conn, nil, nil }

// TestWritersThatStandStill checks that a blocked write is aborted, but not a response without
// writes. The rest of a response gets a deadline.
func TestWritersThatStandStill(t *testing.T) {
	var all writers
	now := time.Now()
	for what, c := range map[string]struct {
		since time.Time
		cut   bool
	}{
		"nothing is written":  {},
		"it has just begun":   {since: now.Add(-time.Second)},
		"it has nearly ended": {since: now.Add(-blockedFor + time.Second)},
		"it stands still":     {since: now.Add(-blockedFor - time.Second), cut: true},
	} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		_, w, done := all.writes(d)
		if !c.since.IsZero() {
			w.since.Store(c.since.UnixNano())
		}
		all.look(now)
		if cut := len(d.set) == 1 && d.set[0].Equal(now); cut != c.cut {
			t.Errorf("%s: deadlines %v", what, d.set)
		}
		d.set = nil
		done()
		if len(d.set) != 1 || d.set[0].Before(now) {
			t.Errorf("%s, at its end: deadlines %v", what, d.set)
		}
		if all.look(now.Add(time.Hour)); len(d.set) != 1 {
			t.Errorf("%s, after its end: deadlines %v", what, d.set)
		}
	}
	// A write to a hijacked connection is recorded too.
	here, there := net.Pipe()
	defer func() { _ = here.Close() }()
	_, w, done := all.writes(&deadlines{ResponseRecorder: httptest.NewRecorder()})
	conn, _, err := (&timedConnWriter{timedWriter: w, hijacker: hijacked{here}}).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = conn.Write([]byte("x")) }()
	waittest.Until(t, func() error {
		if w.since.Load() == 0 {
			return errors.New("a write to a connection does not say that it goes on")
		}
		return nil
	})
	_ = there.Close()
	done()
	// A write records when it began, and that it ended.
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	_, w, done = all.writes(d)
	defer done()
	w.within(func() {
		if w.since.Load() == 0 {
			t.Error("a write does not say that it goes on")
		}
	})
	if w.since.Load() != 0 {
		t.Error("a write that has ended goes on")
	}
	// An upgraded connection gets no deadline.
	upgraded := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	_, w, done = all.writes(upgraded)
	w.code = http.StatusSwitchingProtocols
	if done(); len(upgraded.set) > 0 {
		t.Errorf("an upgrade: deadlines %v", upgraded.set)
	}
}

// halfClosed is a connection that supports CloseWrite.
type halfClosed struct {
	net.Conn
	closed bool
}

func (h *halfClosed) CloseWrite() error { h.closed = true; return nil }

// TestHalvesAreClosed checks that closing a hijacked connection for writing does not close it for
// reading.
func TestHalvesAreClosed(t *testing.T) {
	conn := &halfClosed{}
	if err := (&timedConn{conn, &timedWriter{}}).CloseWrite(); err != nil || !conn.closed {
		t.Errorf("%v, %t", err, conn.closed)
	}
}

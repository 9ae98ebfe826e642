// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// recordingSink is a sink that records what it writes. It is safe for concurrent use.
type recordingSink struct {
	mu   sync.Mutex
	text bytes.Buffer
	*auditSink
}

// Write implements [io.Writer].
func (r *recordingSink) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func newRecordingSink() *recordingSink {
	r := &recordingSink{}
	r.auditSink = &auditSink{
		lines:           newAuditLog(r),
		unauthenticated: newUnauthenticatedEventLimits(),
		omissions:       &omissions{},
		metrics:         newGatewayMetrics(&Gateway{}),
	}
	return r
}

// events returns the events since the last call.
func (r *recordingSink) events(t *testing.T) (all []auditv1.Event) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.text.String()) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		all = append(all, event)
	}
	r.text.Reset()
	return all
}

func eventFrom(address, name string) *auditinternal.Event {
	event := &auditinternal.Event{SourceIPs: []string{address}, RequestURI: "/" + strings.Repeat("x", 1000)}
	event.User.Username = name
	return event
}

// TestUnauthenticatedEventsAreLimited checks the limits for events of unauthenticated requests. One
// event contains the number of omitted events.
func TestUnauthenticatedEventsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecordingSink()
		for range 1000 {
			if !r.ProcessEvents(eventFrom("192.0.2.1", "")) {
				t.Fatal("ProcessEvents returned false for an omitted event")
			}
		}
		if n := len(r.events(t)); n != unauthenticatedBurstPerPeer {
			t.Errorf("one address: %d events, want %d", n, unauthenticatedBurstPerPeer)
		}
		r.ProcessEvents(eventFrom("192.0.2.2", ""))
		if n := len(r.events(t)); n != 1 {
			t.Errorf("another address: %d events, want 1", n)
		}
		for i := range 1000 {
			r.ProcessEvents(eventFrom(fmt.Sprintf("2001:db8:%x::1", i), ""))
		}
		if n := len(r.events(t)); n != unauthenticatedBurst-unauthenticatedBurstPerPeer-1 {
			t.Errorf("all addresses: %d events more, want %d in total", n, unauthenticatedBurst)
		}
		for range 1000 {
			r.ProcessEvents(eventFrom("192.0.2.1", "alice"))
		}
		if n := len(r.events(t)); n != 1000 {
			t.Errorf("%d of 1000 events of an authenticated caller", n)
		}
		began := time.Now()
		time.Sleep(omittedInterval + time.Second)
		synctest.Wait()
		events := r.events(t)
		if len(events) != 1 {
			t.Fatalf("%d events, want one with the number of omitted events", len(events))
		}
		want := fmt.Sprint(
			1000 - unauthenticatedBurstPerPeer + 1000 - (unauthenticatedBurst - unauthenticatedBurstPerPeer - 1),
		)
		e := events[0]
		if e.Annotations[omittedAuditAnnotation] != want || len(e.SourceIPs) != omittedPeers || e.AuditID == "" ||
			e.Level != auditv1.LevelMetadata || !e.RequestReceivedTimestamp.Time.Equal(began.Truncate(time.Microsecond)) {
			t.Errorf("%+v, want %s omitted", e, want)
		}
		r.ProcessEvents(eventFrom("192.0.2.1", ""))
		if n := len(r.events(t)); n != 1 {
			t.Errorf("after some seconds: %d events, want 1", n)
		}
		time.Sleep(2 * omittedInterval)
		if n := len(r.events(t)); n != 0 {
			t.Errorf("%d events, but none was omitted", n)
		}
	})
}

// TestIPv6PeersAreNetworks checks that the IPv6 addresses of one /64 network share a budget, and
// that other addresses do not.
func TestIPv6PeersAreNetworks(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.1":             "192.0.2.1",
		"::ffff:192.0.2.1":      "::ffff:192.0.2.1",
		"2001:db8:1:2:3:4:5:6":  "2001:db8:1:2::",
		"2001:db8:1:2:ffff::":   "2001:db8:1:2::",
		"2001:db8:1:3::":        "2001:db8:1:3::",
		"fe80::1%eth0":          "fe80::",
		"not an address at all": "not an address at all",
	} {
		t.Run(address, func(t *testing.T) {
			if got := peerOf(&auditinternal.Event{SourceIPs: []string{address}}); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	if got := peerOf(&auditinternal.Event{}); got != "" {
		t.Errorf("no address: %s", got)
	}
}

// TestUnauthenticatedEventsAreShortened checks that the long texts of an unauthenticated request
// are cut in the log, but not in the event itself. A short event, and the URI of an authenticated
// caller, are written unchanged.
func TestUnauthenticatedEventsAreShortened(t *testing.T) {
	t.Parallel()
	r := newRecordingSink()
	short := eventFrom("192.0.2.1", "")
	short.RequestURI, short.ObjectRef = "/api/v1/pods", &auditinternal.ObjectReference{Resource: "pods"}
	r.ProcessEvents(short)
	if e := r.events(t)[0]; e.RequestURI != short.RequestURI || e.ObjectRef == nil {
		t.Errorf("%+v", e)
	}
	long := eventFrom("192.0.2.1", "")
	long.ObjectRef = &auditinternal.ObjectReference{Name: strings.Repeat("x", 1000)}
	r.ProcessEvents(long)
	e := r.events(t)[0]
	if len(e.RequestURI) != unauthenticatedText || !strings.HasSuffix(e.RequestURI, cutMark) || e.ObjectRef != nil {
		t.Errorf("%+v", e)
	}
	if len(long.RequestURI) != 1001 || long.ObjectRef == nil {
		t.Error("the event itself was changed")
	}
	r.ProcessEvents(eventFrom("192.0.2.1", "alice"))
	if e := r.events(t)[0]; len(e.RequestURI) != 1001 || len(e.Annotations) != 0 {
		t.Errorf("the URI of an authenticated caller was cut: %+v", e)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditfuzzer "k8s.io/apiserver/pkg/apis/audit/fuzzer"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// upstreamLine returns the line that upstream's backend writes for an event.
func upstreamLine(t *testing.T, event *auditinternal.Event) string {
	t.Helper()
	var out bytes.Buffer
	if !auditlog.NewBackend(&out, auditlog.FormatJson, auditv1.SchemeGroupVersion).ProcessEvents(event) {
		t.Fatalf("upstream does not write %v", event)
	}
	return out.String()
}

// TestAuditLogEqualsUpstream checks that the gateway writes the same lines as upstream's backend,
// for unusual and for random events.
func TestAuditLogEqualsUpstream(t *testing.T) {
	const strange = "\xff\n\"\\ \u2028<>&\x00"
	at := metav1.NewMicroTime(time.Date(2026, 11, 26, 1, 2, 3, 4_999, time.FixedZone("east", 5*3600+1800)))
	user := authenticationv1.UserInfo{
		Username: strange,
		UID:      strange,
		Groups:   []string{strange, "b"},
		Extra:    map[string]authenticationv1.ExtraValue{strange: {"b", strange}, "a": nil, "A": {}},
	}
	events := []*auditinternal.Event{
		{},
		{
			ImpersonatedUser:       &authenticationv1.UserInfo{},
			AuthenticationMetadata: &auditinternal.AuthenticationMetadata{},
			ObjectRef:              &auditinternal.ObjectReference{},
			ResponseStatus:         &metav1.Status{},
			SourceIPs:              []string{},
			Annotations:            map[string]string{},
		},
		{
			ResponseStatus:           &metav1.Status{Code: 200},
			RequestReceivedTimestamp: at,
			StageTimestamp:           at,
			Annotations:              map[string]string{"z": "", "a": "b", "m": strange},
		},
		{
			RequestURI:       strange,
			Verb:             strange,
			UserAgent:        strange,
			SourceIPs:        []string{strange, "a"},
			User:             user,
			ImpersonatedUser: &user,
			ObjectRef:        &auditinternal.ObjectReference{Name: strange, Namespace: strange, Subresource: strange},
			ResponseStatus: &metav1.Status{
				Status:  metav1.StatusFailure,
				Message: strange,
				Reason:  strange,
				Code:    403,
			},
			RequestObject: &runtime.Unknown{},
		},
	}
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, auditfuzzer.Funcs), rand.NewSource(1), audit.Codecs)
	for i := range 2000 {
		event := &auditinternal.Event{}
		fill.Fill(event)
		// Each combination must occur, so that each field is tested alone.
		if s := event.ResponseStatus; s != nil {
			if i&1 == 0 {
				s.ListMeta = metav1.ListMeta{}
			}
			if i&2 == 0 {
				s.Details = nil
			}
			if i&4 == 0 {
				s.Kind, s.APIVersion = "Status", "v1"
			}
		}
		events = append(events, event)
	}
	for _, event := range events {
		var out bytes.Buffer
		if !(auditLog{&out}).ProcessEvents(event, event) {
			t.Fatalf("not written: %v", event)
		}
		if want := upstreamLine(t, event); out.String() != want+want {
			t.Fatalf("%s, want twice %s", &out, want)
		}
	}
}

// TestUnencodableEventsAreReported checks that an event that cannot be encoded is not written, and
// that ProcessEvents returns false. The other events are written.
func TestUnencodableEventsAreReported(t *testing.T) {
	good := &auditinternal.Event{Verb: "get"}
	for _, body := range []*runtime.Unknown{
		{ContentType: "application/vnd.kubernetes.protobuf", Raw: []byte{1}}, {Raw: []byte{}}, {Raw: []byte("{")},
	} {
		for _, bad := range []*auditinternal.Event{{RequestObject: body}, {ResponseObject: body}} {
			var out bytes.Buffer
			if (auditLog{&out}).ProcessEvents(good, bad, good) {
				t.Errorf("%v: ProcessEvents returned true", bad)
			}
			if want := upstreamLine(t, good); out.String() != want+want {
				t.Errorf("%v: %s, want twice %s", bad, &out, want)
			}
		}
	}
}

// unsafeWriter lets other goroutines run while it writes a line. It is not safe for concurrent use.
type unsafeWriter struct{ lines []string }

func (s *unsafeWriter) Write(line []byte) (int, error) {
	before := s.lines
	goruntime.Gosched()
	s.lines = append(before, string(line))
	return len(line), nil
}

// TestConcurrentAuditWrites checks that lines of concurrent events do not mix, and that no line
// is lost.
func TestConcurrentAuditWrites(t *testing.T) {
	var out unsafeWriter
	log := auditLog{&wholeLines{out: &out}}
	var all sync.WaitGroup
	want := map[string]int{}
	for i := range 16 {
		event := &auditinternal.Event{RequestURI: strings.Repeat(string(rune('a'+i)), 1<<i)}
		want[upstreamLine(t, event)] = 100
		all.Go(func() {
			for range 100 {
				if !log.ProcessEvents(event) {
					t.Error("not written")
				}
			}
		})
	}
	all.Wait()
	got := map[string]int{}
	for _, line := range out.lines {
		got[line]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d different lines, %d in total", len(got), len(out.lines))
	}
}

// failOnceWriter fails at the first write, and records all writes.
type failOnceWriter struct{ lines []string }

func (f *failOnceWriter) Write(line []byte) (int, error) {
	if f.lines = append(f.lines, string(line)); len(f.lines) == 1 {
		return 0, errors.New("no space left on device")
	}
	return len(line), nil
}

// TestAuditLogReportsFailedWrites checks that ProcessEvents returns false if a write failed, and
// that it writes the later events. Each event is one write of one line, so that lines of concurrent
// events do not mix.
func TestAuditLogReportsFailedWrites(t *testing.T) {
	f := &failOnceWriter{}
	if (auditLog{f}).ProcessEvents(&auditinternal.Event{}, &auditinternal.Event{}, &auditinternal.Event{}) {
		t.Error("ProcessEvents returned true")
	}
	if len(f.lines) != 3 {
		t.Errorf("%d writes", len(f.lines))
	}
	for _, line := range f.lines {
		if strings.Index(line, "\n") != len(line)-1 {
			t.Errorf("%q is not exactly one line", line)
		}
	}
}

// fullDisk is a writer with space for a number of bytes.
type fullDisk struct {
	text            strings.Builder
	free            int
	missingNewlines int // lines for which only the space for the newline was missing
}

func (f *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), f.free)
	f.free -= n
	f.text.Write(b[:n])
	if n == len(b) {
		return n, nil
	}
	if n > 0 && n == len(b)-1 {
		f.missingNewlines++
	}
	return n, errors.New("no space left on device")
}

// TestAuditLogRecoversFromAFullDisk checks that an incomplete line does not affect later lines.
// While the missing newline cannot be written, no later line is written. The log has no empty
// lines.
func TestAuditLogRecoversFromAFullDisk(t *testing.T) {
	event := &auditinternal.Event{AuditID: "a"}
	whole := upstreamLine(t, event)
	n := len(whole)
	for _, first := range []int{0, 1, n / 2, n - 1, n, n + 1, 2*n - 1, 2 * n} {
		for second := range n + 3 {
			f := &fullDisk{free: first}
			log := auditLog{&wholeLines{out: f}}
			reported := 0
			for _, more := range []int{0, 0, second, 0, 10 * n, 0} {
				f.free += more
				if log.ProcessEvents(event) {
					reported++
				}
			}
			got := 0
			for text := range strings.Lines(f.text.String()) {
				switch text {
				case whole:
					got++
				case "\n":
					t.Fatalf("room for %d and %d bytes: an empty line", first, second)
				}
			}
			if got != reported+f.missingNewlines || reported < 2 {
				t.Fatalf("room for %d and %d bytes: %d whole lines, %d events reported as written, %d lacked the newline:\n%s",
					first, second, got, reported, f.missingNewlines, f.text.String())
			}
		}
	}
}

// BenchmarkAuditLog writes the event of a typical kubectl request, with upstream's backend and with
// auditLog.
func BenchmarkAuditLog(b *testing.B) {
	event := &auditinternal.Event{
		Level:      auditinternal.LevelMetadata,
		AuditID:    "024cb2f1-8564-4624-a9d8-9d92c0d04280",
		Stage:      auditinternal.StageResponseComplete,
		RequestURI: "/api/v1/namespaces/acme--web/configmaps/settings",
		Verb:       "get",
		SourceIPs:  []string{"192.0.2.1"},
		UserAgent:  "kubectl/v1.37.1 (linux/amd64) kubernetes/0000000",
		User: authenticationv1.UserInfo{
			Username: "alice",
			UID:      "u1",
			Groups:   []string{"dev", "tenant:acme", "system:authenticated"},
			Extra:    map[string]authenticationv1.ExtraValue{"kubetenant.dev/tenant": {"acme"}},
		},
		ObjectRef: &auditinternal.ObjectReference{
			Resource:   "configmaps",
			Namespace:  "acme--web",
			Name:       "settings",
			APIVersion: "v1",
		},
		ResponseStatus:           &metav1.Status{Code: 200},
		RequestReceivedTimestamp: metav1.NewMicroTime(time.Now()),
		StageTimestamp:           metav1.NewMicroTime(time.Now()),
		Annotations: map[string]string{
			"authorization.k8s.io/decision": "allow",
			"authorization.k8s.io/reason":   "",
			clusterAuditAnnotation:          "local",
		},
	}
	for name, sink := range map[string]audit.Sink{
		"upstream": auditlog.NewBackend(io.Discard, auditlog.FormatJson, auditv1.SchemeGroupVersion),
		"gateway":  auditLog{io.Discard},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !sink.ProcessEvents(event) {
					b.Fatal("not written")
				}
			}
		})
	}
}

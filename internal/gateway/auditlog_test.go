// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// lineOf returns the line that upstream's backend writes for an event.
func lineOf(t *testing.T, event *auditinternal.Event) string {
	t.Helper()
	var out bytes.Buffer
	if !auditlog.NewBackend(&out, auditlog.FormatJson, auditv1.SchemeGroupVersion).ProcessEvents(event) {
		t.Fatalf("upstream does not write %v", event)
	}
	return out.String()
}

// unsafeWriter lets other goroutines run while it writes a line. It is not safe for concurrent use.
type unsafeWriter struct{ lines []string }

func (s *unsafeWriter) Write(line []byte) (int, error) {
	before := s.lines
	runtime.Gosched()
	s.lines = append(before, string(line))
	return len(line), nil
}

// TestConcurrentAuditWrites checks that lines of concurrent events do not mix, and that no line
// is lost.
func TestConcurrentAuditWrites(t *testing.T) {
	var out unsafeWriter
	log := newAuditLog(&wholeLines{out: &out})
	var all sync.WaitGroup
	want := map[string]int{}
	for i := range 16 {
		event := &auditinternal.Event{RequestURI: strings.Repeat(string(rune('a'+i)), 1<<i)}
		want[lineOf(t, event)] = 100
		all.Go(func() {
			for range 100 {
				if _, err := log.write(event); err != nil {
					t.Error(err)
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

// TestAuditLogReportsFailedWrites checks that write returns an error if a write failed, and writes
// later events. Each event is one write of one line, so that lines of concurrent events do not mix.
func TestAuditLogReportsFailedWrites(t *testing.T) {
	f := &failOnceWriter{}
	log, event := newAuditLog(f), &auditinternal.Event{AuditID: "a"}
	if _, err := log.write(event); err == nil {
		t.Error("the failed write is not reported")
	}
	if n, err := log.write(event); err != nil || n != len(lineOf(t, event)) {
		t.Errorf("write() = %d, %v", n, err)
	}
	if want := lineOf(t, event); !slices.Equal(f.lines, []string{want, want}) {
		t.Errorf("got %q, want twice %q", f.lines, want)
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
	whole := lineOf(t, event)
	n := len(whole)
	for _, first := range []int{0, 1, n / 2, n - 1, n, n + 1, 2*n - 1, 2 * n} {
		for second := range n + 3 {
			f := &fullDisk{free: first}
			log := newAuditLog(&wholeLines{out: f})
			reported := 0
			for _, more := range []int{0, 0, second, 0, 10 * n, 0} {
				f.free += more
				if _, err := log.write(event); err == nil {
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

package gateway

import (
	"bytes"
	"errors"
	"math/rand"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditfuzzer "k8s.io/apiserver/pkg/apis/audit/fuzzer"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// TestAuditLogIsUpstreams: of whatever events, the log is what upstream's backend writes.
func TestAuditLogIsUpstreams(t *testing.T) {
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, auditfuzzer.Funcs), rand.NewSource(1), audit.Codecs)
	for range 1000 {
		event := &auditinternal.Event{}
		fill.Fill(event)
		var ours, theirs bytes.Buffer
		if !(auditLog{&ours}).ProcessEvents(event, event) || !auditlog.NewBackend(&theirs, auditlog.FormatJson, auditv1.SchemeGroupVersion).ProcessEvents(event, event) {
			t.Fatalf("not written: %v", event)
		}
		if !bytes.Equal(ours.Bytes(), theirs.Bytes()) {
			t.Fatalf("%s, want %s", &ours, &theirs)
		}
	}
}

// faulty fails the first write, and keeps each of the others.
type faulty struct{ lines []string }

func (f *faulty) Write(line []byte) (int, error) {
	if f.lines = append(f.lines, string(line)); len(f.lines) == 1 {
		return 0, errors.New("no space left on device")
	}
	return len(line), nil
}

// TestAuditLogFails: what cannot be written is told, for the request to be refused, and what follows is written: each event by one write,
// which keeps lines apart that are written at once.
func TestAuditLogFails(t *testing.T) {
	f := &faulty{}
	if (auditLog{f}).ProcessEvents(&auditinternal.Event{}, &auditinternal.Event{}, &auditinternal.Event{}) {
		t.Error("it says that all is written")
	}
	if len(f.lines) != 3 {
		t.Errorf("%d writes", len(f.lines))
	}
	for _, line := range f.lines {
		if strings.Index(line, "\n") != len(line)-1 {
			t.Errorf("%q is no line", line)
		}
	}
}

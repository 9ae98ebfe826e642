package gateway

import (
	"bytes"
	"errors"
	"math/rand"
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

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestAuditLogFails: what cannot be written is told, for the request to be refused.
func TestAuditLogFails(t *testing.T) {
	if (auditLog{full{}}).ProcessEvents(&auditinternal.Event{}) {
		t.Error("it says that it is written")
	}
}

package gateway

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditfuzzer "k8s.io/apiserver/pkg/apis/audit/fuzzer"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// TestAuditLogIsUpstreams: of whatever events, and of those that are the rule, whose status says no more than a code, the log is what upstream's
// backend writes.
func TestAuditLogIsUpstreams(t *testing.T) {
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, auditfuzzer.Funcs), rand.NewSource(1), audit.Codecs)
	for i := range 2000 {
		event := &auditinternal.Event{}
		fill.Fill(event)
		if s := event.ResponseStatus; s != nil && i%2 == 0 {
			s.TypeMeta, s.ListMeta, s.Details = metav1.TypeMeta{}, metav1.ListMeta{}, nil
		}
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

// BenchmarkAuditLog is an event of a request as kubectl sends them, by upstream's backend and by this one.
func BenchmarkAuditLog(b *testing.B) {
	event := &auditinternal.Event{Level: auditinternal.LevelMetadata, AuditID: "024cb2f1-8564-4624-a9d8-9d92c0d04280", Stage: auditinternal.StageResponseComplete,
		RequestURI: "/api/v1/namespaces/acme--web/configmaps/settings", Verb: "get", SourceIPs: []string{"192.0.2.1"}, UserAgent: "kubectl/v1.37.1 (linux/amd64) kubernetes/0000000",
		User:      authenticationv1.UserInfo{Username: "alice", UID: "u1", Groups: []string{"dev", "tenant:acme", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"kubetenant.dev/tenant": {"acme"}}},
		ObjectRef: &auditinternal.ObjectReference{Resource: "configmaps", Namespace: "acme--web", Name: "settings", APIVersion: "v1"}, ResponseStatus: &metav1.Status{Code: 200},
		RequestReceivedTimestamp: metav1.NewMicroTime(time.Now()), StageTimestamp: metav1.NewMicroTime(time.Now()),
		Annotations: map[string]string{"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "", clusterAnnotation: "local"}}
	for name, sink := range map[string]audit.Sink{"upstream": auditlog.NewBackend(io.Discard, auditlog.FormatJson, auditv1.SchemeGroupVersion), "gateway": auditLog{io.Discard}} {
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

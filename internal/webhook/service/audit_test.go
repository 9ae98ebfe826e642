// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/internal/webhook/service"
	"github.com/kubetenant/kubetenant/tenant"
)

// newAuditHandler returns a handler that serves /audit, and the directory of its streams.
func newAuditHandler(t testing.TB) (h http.Handler, directory string, w *fixture) {
	t.Helper()
	w = newFixture(t)
	directory = filepath.Join(t.TempDir(), "audit")
	streams, err := tenantaudit.Open(tenantaudit.Options{Directory: directory, MaxBytes: 100 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = streams.Close() })
	w.Limits.Timeout = time.Minute // sufficient on a busy machine
	records := tenantaudit.NewMetrics()
	w.registry.MustRegister(records.Registerables()...)
	resolver := w.Stack.AuditResolver()
	resolver.CallerKey, resolver.OwnerKey = "", ""
	w.Audit = &service.Audit{
		Sink:     tenantaudit.NewSink(streams, records),
		Resolver: resolver,
		Ready:    func() bool { return !w.stale.Load() },
	}
	return w.handler(t), directory, w
}

// sendAs sends a body to /audit. connection is the state of the TLS connection, or nil for a
// connection without TLS.
func sendAs(h http.Handler, connection *tls.ConnectionState, body string) int {
	answer, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, service.AuditPath, strings.NewReader(body))
	r.TLS = connection
	h.ServeHTTP(answer, r)
	return answer.Code
}

func send(h http.Handler, body string) int {
	return sendAs(h, &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}, body)
}

func auditEvent(id, user, of, verb, namespace string) auditv1.Event {
	e := auditv1.Event{
		AuditID:    types.UID(id),
		Stage:      auditv1.StageResponseComplete,
		Level:      auditv1.LevelMetadata,
		Verb:       verb,
		RequestURI: "/api/v1/namespaces/" + namespace + "/pods/p",
		User:       authenticationv1.UserInfo{Username: user, Groups: []string{"secret-group"}},
		ObjectRef: &auditv1.ObjectReference{
			Resource:   "pods",
			Namespace:  namespace,
			Name:       "p",
			APIVersion: "v1",
		},
		ResponseStatus: &metav1.Status{Code: 200},
		UserAgent:      "secret-agent",
		SourceIPs:      []string{"192.0.2.1"},
		StageTimestamp: metav1.NowMicro(),
		Annotations:    map[string]string{"authorization.k8s.io/decision": "allow"},
	}
	if of != "" {
		e.User.Extra = map[string]authenticationv1.ExtraValue{tenant.ExtraKey: {of}}
	}
	return e
}

func batch(t testing.TB, events ...auditv1.Event) string {
	t.Helper()
	text, err := json.Marshal(auditv1.EventList{
		TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "audit.k8s.io/v1"},
		Items:    events,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// stored returns the audit IDs in the records of a stream, and the text of the records.
func stored(t *testing.T, directory string, stream tenantaudit.Stream) (ids []string, text string) {
	t.Helper()
	visit := func(r *tenantaudit.Record, line []byte) error {
		ids, text = append(ids, r.ID), text+string(line)
		return nil
	}
	if err := tenantaudit.Read(t.Context(), directory, stream, tenantaudit.Filter{}, visit); err != nil {
		t.Fatal(err)
	}
	return ids, text
}

func TestAudit(t *testing.T) {
	h, directory, w := newAuditHandler(t)
	uuid := func(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }
	of := func(name string) tenantaudit.Stream {
		id, err := tenant.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		return tenantaudit.StreamOf(id, "")
	}
	expect := func(name string, want ...string) {
		t.Helper()
		stream := tenantaudit.System
		if name != "" {
			stream = of(name)
		}
		ids, text := stored(t, directory, stream)
		if !slices.Equal(ids, want) {
			t.Errorf("the stream of %q has %q, want %q", name, ids, want)
		}
		if strings.Contains(text, "secret") {
			t.Errorf("the stream of %q contains text that no record may contain: %s", name, text)
		}
	}
	list := batch(t,
		auditEvent(uuid(1), "alice", "a", "get", "a--web"),
		auditEvent(uuid(2), "bob", "b", "delete", "a--web"),
		auditEvent(uuid(3), "system:serviceaccount:b--web:robot", "", "get", "b--web"),
		auditEvent(uuid(4), "forged", "no tenant!", "delete", "b--web"), // a forged user has no tenant
		auditEvent(uuid(5), "", "", "delete", "b--web"))
	for range 2 { // the second request is a replay
		if code := send(h, list); code != http.StatusOK {
			t.Fatal(code)
		}
		expect("a", uuid(1), uuid(2))
		expect("b", uuid(2), uuid(3), uuid(4))
		expect("", uuid(1), uuid(2), uuid(3), uuid(4), uuid(5))
	}
	_, text := stored(t, directory, of("a"))
	if strings.Contains(text, "bob") || !strings.Contains(text, "alice") {
		t.Errorf("the stream of a has %s", text)
	}
	one := auditEvent(uuid(6), "alice", "a", "get", "a--web")
	if code := send(h, batch(t, one, one)); code != http.StatusOK { // twice in one batch
		t.Fatal(code)
	}
	expect("a", uuid(1), uuid(2), uuid(6))
	// A caller of a tenant cannot hide a request by reusing the ID of another request.
	hidden := auditEvent(uuid(6), "alice", "a", "delete", "a--web")
	unknown := auditEvent(uuid(7), "alice", "a", "get", "a--web")
	unknown.Stage = "Unknown"
	if code := send(h, batch(t, hidden, unknown)); code != http.StatusOK {
		t.Fatal(code)
	}
	expect("a", uuid(1), uuid(2), uuid(6), uuid(6), uuid(7))
	w.stale.Store(true)
	later := batch(t, auditEvent(uuid(8), "alice", "a", "get", "a--web"))
	if code := send(h, later); code != http.StatusInternalServerError {
		t.Errorf("%d before the tenants are known", code)
	}
	w.stale.Store(false)
	if code := send(h, later); code != http.StatusOK {
		t.Errorf("%d when it is sent again", code)
	}
	expect("a", uuid(1), uuid(2), uuid(6), uuid(6), uuid(7), uuid(8))
}

// failedRecords returns the number of failed records and rejected batches of the stream System.
func failedRecords(t *testing.T, w *fixture) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "kubetenant_audit_stream_records_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if strings.Contains(m.String(), `"failed"`) && strings.Contains(m.String(), `"system"`) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestAuditRejectsInvalidRequests(t *testing.T) {
	h, directory, w := newAuditHandler(t)
	good := batch(t, auditEvent("1", "alice", "a", "get", "a--web"))
	other := strings.Replace(good, `"kind":"EventList"`, `"kind":"Event"`, 1)
	refused := map[string]string{
		"invalid JSON":     good[:len(good)-2],
		"no JSON":          "\x00",
		"empty":            "",
		"no object":        "[]",
		"another kind":     other,
		"another group":    strings.Replace(good, "audit.k8s.io", "audit.example.com", 1),
		"no list":          strings.Replace(good, `"items":[`, `"items":{"a":[`, 1) + "}",
		"two bodies":       good + good,
		"a wrong kind":     strings.Replace(good, `"EventList"`, `7`, 1),
		"kind after items": `{"items":[],"kind":"EventList","apiVersion":"audit.k8s.io/v1"}`,
		"without a kind":   `{}`,
	}
	for name, body := range refused {
		t.Run(name, func(t *testing.T) {
			if code := send(h, body); code != http.StatusBadRequest {
				t.Errorf("%d", code)
			}
		})
	}
	for name, body := range map[string]string{
		"unknown field":  strings.Replace(good, `"items"`, `"Items"`, 1),
		"without events": batch(t),
	} {
		t.Run(name, func(t *testing.T) {
			if code := send(h, body); code != http.StatusOK {
				t.Errorf("%d", code)
			}
		})
	}
	// A body of 100 MB is rejected, without reading it if its length is known.
	connection := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	for _, length := range []int64{100 << 20, -1} {
		spaces := io.LimitReader(repeatingReader(" "), 100<<20)
		r := httptest.NewRequest(http.MethodPost, service.AuditPath, io.MultiReader(strings.NewReader(good[:1]), spaces))
		r.ContentLength, r.TLS = length, connection
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		if answer.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("100 MB: %d", answer.Code)
		}
	}
	if entries, _ := filepath.Glob(filepath.Join(directory, "*.jsonl")); len(entries) > 0 {
		t.Errorf("a rejected batch is stored in %q", entries)
	}
	if got, want := failedRecords(t, w), float64(len(refused)+2); got != want {
		t.Errorf("%v failures were counted, want %v", got, want)
	}
}

// repeatingReader is a reader that repeats a text without end.
type repeatingReader string

func (r repeatingReader) Read(to []byte) (int, error) {
	return copy(to, strings.Repeat(string(r), len(to)/len(r)+1)), nil
}

// TestAuditSkipsBadEvents checks that an event that cannot be decoded does not discard the other
// events of its batch.
func TestAuditSkipsBadEvents(t *testing.T) {
	for name, bad := range map[string]string{
		"a number":          `7`,
		"a list":            `[[{"a":[]}]]`,
		"wrong type":        `{"verb":7,"user":{"groups":[[1],{"a":2}]}}`,
		"a wrong time":      `{"stageTimestamp":"yesterday","objectRef":{"name":"p"}}`,
		"a wrong type deep": `{"user":{"extra":{"a":[{"b":{}}]}},"verb":"get"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h, directory, w := newAuditHandler(t)
			list := batch(t, auditEvent("1", "alice", "a", "get", "a--web"), auditEvent("2", "alice", "a", "get", "a--web"))
			list = strings.Replace(list, `,{"level"`, `,`+bad+`,{"level"`, 1)
			if code := send(h, list); code != http.StatusOK || !strings.Contains(list, bad) {
				t.Fatal(code)
			}
			if ids, _ := stored(t, directory, "id-a"); len(ids) != 2 {
				t.Errorf("%q is stored", ids)
			}
			if got := failedRecords(t, w); got != 1 {
				t.Errorf("%v failures were counted, want 1", got)
			}
		})
	}
	// kube-apiserver encodes different names that are not UTF-8 as the same text. Such a request is
	// stored.
	h, directory, w := newAuditHandler(t)
	list := batch(t, auditEvent("1", "alice", "a", "get", "a--web"))
	list = strings.Replace(list, `"extra":{`, `"extra":{"\ufffd":["1"],"\ufffd":["2"],"`+"\xff"+`":["3"],`, 1)
	if code := send(h, list); code != http.StatusOK {
		t.Fatal(code)
	}
	if ids, _ := stored(t, directory, "id-a"); len(ids) != 1 || failedRecords(t, w) != 0 {
		t.Errorf("%q is stored", ids)
	}
}

// TestAuditOfLargeEvents checks that long texts in an event do not make the service lose the batch,
// and that the used memory does not grow with the size of the batch.
func TestAuditOfLargeEvents(t *testing.T) {
	h, directory, w := newAuditHandler(t)
	const megabyte = 1 << 20
	var parts []io.Reader
	long := strings.Repeat(`\u0026`, megabyte)
	for i := range 9 {
		e := batch(t, auditEvent(fmt.Sprint(i), "alice", "a", "get", "a--web"))
		begin, rest, _ := strings.Cut(e, `"items":[`)
		if i == 0 {
			parts = append(parts, strings.NewReader(begin+`"items":[`))
		} else {
			parts = append(parts, strings.NewReader(","))
		}
		event, _, _ := strings.Cut(rest, `]}`+"\n")
		event = strings.TrimSuffix(event, "]}")
		head, tail, _ := strings.Cut(event, "/pods/p")
		parts = append(parts, strings.NewReader(head+"/pods/p?"), strings.NewReader(long), strings.NewReader(tail))
	}
	parts = append(parts, strings.NewReader("]}"))
	body := &memoryReader{Reader: io.MultiReader(parts...)}
	body.measure()
	before := body.most
	r := httptest.NewRequest(http.MethodPost, service.AuditPath, body)
	r.ContentLength, r.TLS = -1, &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	if answer.Code != http.StatusOK {
		t.Fatalf("%d after %d bytes: %s", answer.Code, body.read, answer.Body)
	}
	if ids, _ := stored(t, directory, "id-a"); len(ids) != 9 || failedRecords(t, w) != 0 {
		t.Errorf("%q is stored", ids)
	}
	if used := (body.most - before) >> 20; used > 32 {
		t.Errorf("%d MiB are used for a batch of %d MiB", used, body.read>>20)
	}
}

// memoryReader measures the used memory during reads.
type memoryReader struct {
	io.Reader
	read       int
	next, most uint64
}

func (m *memoryReader) Read(to []byte) (int, error) {
	n, err := m.Reader.Read(to)
	m.read += n
	if uint64(m.read) >= m.next {
		m.next += 4 << 20
		m.measure()
	}
	return n, err
}

func (m *memoryReader) measure() {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.most = max(m.most, stats.HeapAlloc)
}

// TestAuditNeedsClientCertificate checks that clients without a verified certificate get 404.
func TestAuditNeedsClientCertificate(t *testing.T) {
	h, directory, w := newAuditHandler(t)
	good := batch(t, auditEvent("1", "alice", "a", "get", "a--web"))
	for name, connection := range map[string]*tls.ConnectionState{
		"no TLS": nil, "no certificate": {}, "a certificate that is not verified": {
			PeerCertificates: []*x509.Certificate{{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if code := sendAs(h, connection, good); code != http.StatusNotFound {
				t.Errorf("%d", code)
			}
		})
	}
	w.Anonymous, w.Register = &service.Anonymous{}, newFixture(t).Register
	if code := send(w.handler(t), good); code != http.StatusNotFound {
		t.Errorf("a service that does not authenticate clients: %d", code)
	}
	w.Anonymous, w.Audit, w.Register = nil, nil, newFixture(t).Register
	if code := send(w.handler(t), good); code != http.StatusNotFound {
		t.Errorf("a service without streams: %d", code)
	}
	if entries, _ := filepath.Glob(filepath.Join(directory, "*.jsonl")); len(entries) > 0 {
		t.Errorf("a rejected batch is stored in %q", entries)
	}
}

// TestUnstoredBatchIsNotAcknowledged checks that the response is an error if a batch cannot be
// written to the disk.
func TestUnstoredBatchIsNotAcknowledged(t *testing.T) {
	h, directory, _ := newAuditHandler(t)
	good := batch(t, auditEvent("1", "alice", "a", "get", "a--web"))
	obstacles := []string{filepath.Join(directory, "id-a.jsonl"), filepath.Join(directory, "system.jsonl")}
	for _, name := range obstacles {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if code := send(h, good); code != http.StatusInternalServerError {
		t.Errorf("%d with directories instead of all files", code)
	}
	for _, name := range obstacles {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if code := send(h, good); code != http.StatusOK {
		t.Errorf("%d when it is sent again", code)
	}
	for _, stream := range []tenantaudit.Stream{"id-a", tenantaudit.System} {
		if ids, _ := stored(t, directory, stream); len(ids) != 1 {
			t.Errorf("%s has %q", stream, ids)
		}
	}
}

// batchEvents is the number of events in a batch of kube-apiserver.
const batchEvents = 400

// benchmarkEvents returns the events of a batch.
func benchmarkEvents(of int) []auditv1.Event {
	all := make([]auditv1.Event, 0, batchEvents)
	for i := range batchEvents {
		e := auditEvent(fmt.Sprintf("%08d-0000-0000-0000-%012d", of, i), "alice", "a", "get", "a--web")
		e.User.Groups = append(e.User.Groups, "system:authenticated", "tenant:a", "dev", "ops")
		all = append(all, e)
	}
	return all
}

// reportRates reports the events per second, and per second of processor time.
func reportRates(b *testing.B) func() {
	b.Helper()
	used := func() float64 {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
	}
	before := used()
	b.ResetTimer()
	return func() {
		b.StopTimer()
		b.ReportMetric(float64(b.N*batchEvents)/b.Elapsed().Seconds(), "events/s")
		b.ReportMetric(float64(b.N*batchEvents)/(used()-before), "events/cpu-s")
	}
}

// BenchmarkAudit sends batches of the size that kube-apiserver sends. Each batch is synced to the
// disk.
func BenchmarkAudit(b *testing.B) {
	h, _, _ := newAuditHandler(b)
	batches := make([]string, 0, 64)
	for i := range cap(batches) {
		batches = append(batches, batch(b, benchmarkEvents(i)...))
	}
	defer reportRates(b)()
	for i := range b.N {
		body := batches[i%len(batches)]
		if round := i / len(batches); round > 0 { // so that the batch is not a replay
			body = strings.ReplaceAll(body, "-0000-0000-0000-", fmt.Sprintf("-%04x-0000-0000-", round))
		}
		if code := send(h, body); code != http.StatusOK {
			b.Fatal(code)
		}
	}
}

// BenchmarkAuditUpstream writes the same events with upstream's log backend, which does not sync.
func BenchmarkAuditUpstream(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "audit.log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	backend := auditlog.NewBackend(file, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	events := make([]*auditinternal.Event, batchEvents)
	for i, e := range benchmarkEvents(0) {
		events[i] = &auditinternal.Event{}
		if err := auditv1.Convert_v1_Event_To_audit_Event(&e, events[i], nil); err != nil {
			b.Fatal(err)
		}
	}
	defer reportRates(b)()
	for range b.N {
		if !backend.ProcessEvents(events...) {
			b.Fatal("upstream failed")
		}
	}
}

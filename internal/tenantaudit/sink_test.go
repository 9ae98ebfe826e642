// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/test/waittest"
)

func sink(t *testing.T, o tenantaudit.Options) (*tenantaudit.Sink, func(want string)) {
	t.Helper()
	m, registry := tenantaudit.NewMetrics(), metrics.NewKubeRegistry()
	registry.MustRegister(m.Registerables()...)
	return tenantaudit.NewSink(open(t, o), m), func(want string) {
		t.Helper()
		var all strings.Builder
		all.WriteString("# HELP kubetenant_audit_stream_records_total [ALPHA] " + help + "\n" +
			"# TYPE kubetenant_audit_stream_records_total counter\n")
		for line := range strings.SplitSeq(want, ",") {
			var stream, result string
			var n int
			if _, err := fmt.Sscan(line, &stream, &result, &n); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&all, "kubetenant_audit_stream_records_total{result=%q,stream=%q} %d\n", result, stream, n)
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(all.String()),
			"kubetenant_audit_stream_records_total"); err != nil {
			t.Error(err)
		}
	}
}

const help = "Number of records of the audit streams, by the kind of the stream, which is system or tenant, and by " +
	"result. The result is written, failed if it was not stored or its batch was refused, dropped if the " +
	"queue was full, " +
	"or limited for requests that were not authenticated."

func unauthenticatedEvent(address string) *auditinternal.Event {
	e := event(authenticationv1.UserInfo{}, "get", "acme--web", "pods", "p")
	e.SourceIPs, e.ResponseStatus = []string{"203.0.113.9", address}, &metav1.Status{Code: http.StatusUnauthorized}
	return e
}

// TestUnauthenticatedRecordsAreLimited checks that at most ten events from each address are
// recorded in a burst. A client cannot forge its address, and all addresses together have a
// limit.
func TestUnauthenticatedRecordsAreLimited(t *testing.T) {
	s, counted := sink(t, tenantaudit.Options{})
	store := func(events ...*auditinternal.Event) {
		t.Helper()
		if err := s.Store(t.Context(), events, fixture()); err != nil {
			t.Fatal(err)
		}
	}
	var flood []*auditinternal.Event
	for i := range 50 {
		e := unauthenticatedEvent("192.0.2.7")
		e.SourceIPs[0] = fmt.Sprintf("198.51.100.%d", i) // X-Forwarded-For
		flood = append(flood, e)
	}
	store(flood...)
	counted("system limited 40,system written 20") // in System and in Unauthenticated
	flood = nil
	for i := range 50 { // addresses of one network
		flood = append(flood, unauthenticatedEvent(fmt.Sprintf("2001:db8::%x", i)))
	}
	store(flood...)
	counted("system limited 80,system written 40")
	store(event(caller("alice", "acme"), "get", "acme--web", "pods", "p"))
	counted("system limited 80,system written 41,tenant written 1")
	flood = nil
	for i := range 200 {
		flood = append(flood, unauthenticatedEvent(fmt.Sprintf("10.0.0.%d", i)))
	}
	store(flood...)
	if got := read(t, s.Streams().Directory(), tenantaudit.System); len(got) > 21+90 {
		t.Errorf("many addresses wrote %d records", len(got))
	}
	expect(t, s.Streams().Directory(), "id-acme", "p")
	if got, all := read(t, s.Streams().Directory(), tenantaudit.Unauthenticated), read(t, s.Streams().Directory(),
		tenantaudit.System); len(got) != len(all)-1 {
		t.Errorf("%d of %d records are in the stream of unauthenticated requests", len(got), len(all))
	}
}

// TestTenantsDoNotRotateUnauthenticatedRecords checks that the requests of a tenant do not remove
// the records of rejected credentials.
func TestTenantsDoNotRotateUnauthenticatedRecords(t *testing.T) {
	s, _ := sink(t, tenantaudit.Options{MaxBytes: 1 << 10, MaxBackups: 1})
	store := func(e *auditinternal.Event) {
		t.Helper()
		if err := s.Store(t.Context(), []*auditinternal.Event{e}, fixture()); err != nil {
			t.Fatal(err)
		}
	}
	store(unauthenticatedEvent("192.0.2.7"))
	for range 20 {
		store(event(caller("alice", "acme"), "get", "acme--web", "pods", "p"))
	}
	expect(t, s.Streams().Directory(), tenantaudit.Unauthenticated, "p")
}

func TestStoreReportsFailedWrites(t *testing.T) {
	faults := tenantaudit.Faults{}
	s, counted := sink(t, faults.Use(tenantaudit.Options{Directory: t.TempDir()}))
	e := event(caller("alice", "acme"), "get", "acme--web", "pods", "p")
	faults.Room.Store(10)
	if s.Store(t.Context(), []*auditinternal.Event{e}, fixture()) == nil {
		t.Error("a write to a full disk returned no error")
	}
	counted("system failed 1,tenant failed 1")
	faults.Room.Store(-1)
	if err := s.Store(t.Context(), []*auditinternal.Event{e}, fixture()); err != nil {
		t.Error(err)
	}
	expect(t, s.Streams().Directory(), "id-acme", "p")
}

// TestBackend checks that a tenant cannot fill the whole queue, that dropped events are counted,
// and that no request is denied.
func TestBackend(t *testing.T) {
	s, counted := sink(t, tenantaudit.Options{})
	b := tenantaudit.NewBackend(s)
	of, stop := b.For(fixture()), make(chan struct{})
	process := func(name, tenant string) {
		t.Helper()
		if !of.ProcessEvents(event(caller(name, tenant), "get", "acme--web", "pods", "p")) {
			t.Fatal("the server denies the request")
		}
	}
	for range 7_000 {
		process("alice", "acme")
	}
	counted("system dropped 2000,tenant dropped 2000") // one tenant can use half of the queue
	for range 3_000 {
		process("bob", "globex")
	}
	counted("system dropped 2500,tenant dropped 2500") // the next tenant can use half of the rest
	process("root", "system")
	process("carol", "initech")
	counted("system dropped 2500,tenant dropped 2500")
	if err := of.Run(stop); err != nil {
		t.Fatal(err)
	}
	close(stop)
	of.Shutdown()
	counted("system dropped 2500,system written 7502,tenant dropped 2500,tenant written 7501")
	process("alice", "acme") // the backend drops the event after Shutdown
	counted("system dropped 2501,system written 7502,tenant dropped 2501,tenant written 7501")
}

// TestDiskDoesNotRespond checks that Store returns before its deadline and that a server can shut
// down if the disk does not respond.
func TestDiskDoesNotRespond(t *testing.T) {
	faults := tenantaudit.Faults{}
	s, counted := sink(t, faults.Use(tenantaudit.Options{Directory: t.TempDir()}))
	e := event(caller("alice", "acme"), "get", "acme--web", "pods", "p")
	release := make(chan struct{})
	respond := sync.OnceFunc(func() { close(release) })
	t.Cleanup(respond)
	faults.Hold.Store(&release)
	for _, why := range []string{"it writes", "another batch writes"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := s.Store(ctx, []*auditinternal.Event{e}, fixture()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", why, err)
		}
		cancel()
	}
	counted("system failed 2,tenant failed 2")
	b, stop := tenantaudit.NewBackend(s), make(chan struct{})
	if err := b.Run(stop); err != nil {
		t.Fatal(err)
	}
	b.For(fixture()).ProcessEvents(e)
	close(stop)
	b.Shutdown()
	counted("system failed 3,tenant failed 3")
	if err := s.Streams().Close(); err == nil {
		t.Error("the streams are closed during a write")
	}
	respond()
	waittest.Until(t, s.Streams().Close)
	if err := s.Streams().Write(t.Context(), placed("a", "1")); err == nil {
		t.Error("closed streams were written")
	}
}

// TestOneBadFile checks that a file that cannot be opened affects only its own stream.
func TestOneBadFile(t *testing.T) {
	s, counted := sink(t, tenantaudit.Options{})
	obstacle := filepath.Join(s.Streams().Directory(), "id-acme.jsonl")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	events := []*auditinternal.Event{
		event(caller("alice", "acme"), "get", "acme--web", "pods", "p"),
		event(caller("bob", "globex"), "get", "globex--web", "pods", "q"),
	}
	for range 2 {
		if err := s.Store(t.Context(), events, fixture()); err != nil {
			t.Fatal(err)
		}
	}
	counted("system written 4,tenant failed 2,tenant written 2")
	expect(t, s.Streams().Directory(), "id-globex", "q", "q")
	expect(t, s.Streams().Directory(), tenantaudit.System, "p", "q", "p", "q")
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if err := s.Store(t.Context(), events, fixture()); err != nil {
		t.Fatal(err)
	}
	expect(t, s.Streams().Directory(), "id-acme", "p")
}

func TestSeen(t *testing.T) {
	now := time.Now()
	seen := tenantaudit.NewSeen(func() time.Time { return now })
	one := event(caller("alice", "acme"), "get", "acme--web", "pods", "p")
	again := *one
	if got := seen.New([]*auditinternal.Event{one, &again}); len(got) != 1 {
		t.Errorf("%d events are new, want 1", len(got))
	}
	if got := seen.New([]*auditinternal.Event{one}); len(got) != 1 {
		t.Error("an event that was not stored is not new")
	}
	seen.Add([]*auditinternal.Event{one})
	for range 3 {
		if got := seen.New([]*auditinternal.Event{&again}); len(got) != 0 {
			t.Error("a replayed event is new")
		}
		now = now.Add(199 * time.Second)
	}
	// A caller can choose the audit ID. The same ID must not hide a different request.
	for name, change := range map[string]func(*auditinternal.Event){
		"stage":    func(e *auditinternal.Event) { e.Stage = auditinternal.StagePanic },
		"verb":     func(e *auditinternal.Event) { e.Verb = "delete" },
		"uri":      func(e *auditinternal.Event) { e.RequestURI += "2" },
		"user":     func(e *auditinternal.Event) { e.User.Username = "bob" },
		"as":       func(e *auditinternal.Event) { e.ImpersonatedUser = &authenticationv1.UserInfo{Username: "bob"} },
		"code":     func(e *auditinternal.Event) { e.ResponseStatus = &metav1.Status{Code: 403} },
		"received": func(e *auditinternal.Event) { e.RequestReceivedTimestamp = metav1.NowMicro() },
		"reached":  func(e *auditinternal.Event) { e.StageTimestamp = metav1.NowMicro() },
	} {
		t.Run(name, func(t *testing.T) {
			other := *one
			change(&other)
			if len(seen.New([]*auditinternal.Event{&other})) != 1 {
				t.Errorf("an event with another %s is not new", name)
			}
		})
	}
	now = now.Add(21 * time.Minute)
	if len(seen.New([]*auditinternal.Event{one})) != 1 {
		t.Error("an event is remembered forever")
	}
}

func TestServe(t *testing.T) {
	s := open(t, tenantaudit.Options{})
	write(t, s, placed("a", "1", "2")...)
	write(t, s, placed("b", "secret")...)
	recorder := httptest.NewRecorder()
	s.Serve(recorder, httptest.NewRequest(http.MethodGet, "/", nil), "a", tenantaudit.Filter{})
	result := recorder.Result()
	if result.StatusCode != http.StatusOK || result.Header.Get("Content-Type") != "application/x-ndjson" ||
		result.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d, %v", result.StatusCode, result.Header)
	}
	lines := bytes.Split(bytes.TrimSuffix(recorder.Body.Bytes(), []byte("\n")), []byte("\n"))
	if len(lines) != 2 || !bytes.Contains(lines[1], []byte(`"name":"2"`)) {
		t.Errorf("the body is %s", recorder.Body)
	}
}

// TestFollowEnds checks that Serve ends a followed stream, so that the server checks the rights of
// its caller again.
func TestFollowEnds(t *testing.T) {
	s := open(t, tenantaudit.WithMaxFollow(tenantaudit.Options{}, 100*time.Millisecond))
	write(t, s, placed("a", "1")...)
	recorder := httptest.NewRecorder()
	s.Serve(recorder, httptest.NewRequest(http.MethodGet, "/", nil), "a", tenantaudit.Filter{Follow: true})
	if !strings.Contains(recorder.Body.String(), `"name":"1"`) {
		t.Errorf("the body is %s", recorder.Body)
	}
}

func TestParseQuery(t *testing.T) {
	q, err := tenantaudit.ParseQuery("since=2026-11-28T01:00:00.5Z&user=alice&denied=true&follow=true&tenant=acme&other=1")
	want := tenantaudit.Filter{
		Since:  time.Date(2026, 11, 28, 1, 0, 0, 500_000_000, time.UTC),
		User:   "alice",
		Denied: true,
		Follow: true,
	}
	if err != nil || q.Tenant != "acme" || !q.Filter.Since.Equal(want.Since) || q.Filter.User != want.User ||
		!q.Filter.Denied || !q.Filter.Follow {
		t.Errorf("%+v, %v", q, err)
	}
	for _, wrong := range []string{
		"since=yesterday", "denied=secret", "follow=2", "tenant=acme&tenant=globex", "user=a&user=b", "%zz", "a;b=secret",
	} {
		if _, err := tenantaudit.ParseQuery(wrong); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

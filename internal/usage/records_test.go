// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// memoryTarget is a [usage.Target] that stores lines in memory.
type memoryTarget struct {
	mu    sync.Mutex
	err   error
	lines []byte
	sends int
	most  int
}

func (m *memoryTarget) Send(_ context.Context, lines []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sends++
	if m.err != nil {
		return m.err
	}
	m.most = max(m.most, len(lines))
	m.lines = append(m.lines, lines...)
	return nil
}

func (m *memoryTarget) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// latest returns the last record of each key, like a consumer of records.
func (m *memoryTarget) latest(t *testing.T) map[usage.Key]usage.Record {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	return latestOf(t, m.lines)
}

func latestOf(t *testing.T, lines []byte) map[usage.Key]usage.Record {
	t.Helper()
	all, invalid := usage.Parse(lines)
	if invalid != 0 {
		t.Errorf("%d lines are not records", invalid)
	}
	latest := map[usage.Key]usage.Record{}
	for i := range all {
		latest[all[i].Key()] = all[i]
	}
	return latest
}

func requestsOf(latest map[usage.Key]usage.Record) (n int64) {
	for _, r := range latest {
		n += r.Requests
	}
	return n
}

// recordsFixture contains a recorder and records that use a directory.
type recordsFixture struct {
	*usage.Records
	clock    *clock
	recorder *usage.Recorder
	metrics  *usage.Metrics
	registry metrics.KubeRegistry
}

func newRecordsFixture(t *testing.T, directory string, target usage.Target) *recordsFixture {
	t.Helper()
	c, d := newClock(), newDirectory("acme", "initech")
	return newRecordsFixtureAt(t, directory, target, c, d)
}

func newRecordsFixtureAt(t *testing.T, directory string, target usage.Target, c *clock, d *directory) *recordsFixture {
	t.Helper()
	r := &recordsFixture{
		clock:    c,
		recorder: usage.NewRecorder(c.now, d.exists, d.uid),
		metrics:  usage.NewMetrics(),
		registry: metrics.NewKubeRegistry(),
	}
	for _, m := range r.metrics.Registerables() {
		r.registry.MustRegister(m)
	}
	r.Records = usage.NewRecords(usage.RecordsOptions{
		Recorder:  r.recorder,
		Target:    target,
		Directory: directory,
		Cluster:   "eu1",
		Server:    "cp-0",
		Component: usage.Webhook,
		Metrics:   r.metrics,
	})
	t.Cleanup(r.Close)
	return r
}

func (r *recordsFixture) use(t *testing.T, requests int) {
	t.Helper()
	for range requests {
		r.recorder.Allowed(tenanttest.ID(t, "acme"))
	}
}

// count returns the value of the metric with the given name and label value.
func (r *recordsFixture) count(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && testutil.LabelsMatch(m, map[string]string{labelOf(name): label}) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func labelOf(name string) string {
	if name == "kubetenant_usage_errors_total" {
		return "operation"
	}
	return "result"
}

func spoolFiles(t *testing.T, directory string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "lock" {
			continue
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s: mode %v; want 0600", e.Name(), info.Mode())
		}
		names = append(names, e.Name())
	}
	return names
}

// TestDelivery checks that a completed hour is sent immediately, and the current hour every ten
// minutes.
func TestDelivery(t *testing.T) {
	to, dir := &memoryTarget{}, t.TempDir()
	r := newRecordsFixture(t, dir, to)
	deliver := func(wantSends int, want int64) {
		t.Helper()
		r.Collect(t.Context())
		if err := r.DeliverOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := requestsOf(to.latest(t)); got != want || to.sends != wantSends {
			t.Fatalf("%d requests in %d deliveries; want %d in %d", got, to.sends, want, wantSends)
		}
	}
	r.use(t, 3)
	deliver(0, 0)
	r.clock.add(9 * time.Minute)
	deliver(0, 0)
	r.clock.add(time.Minute)
	deliver(1, 3)
	r.clock.add(20 * time.Minute)
	deliver(1, 3) // there are no changes
	r.use(t, 2)
	deliver(2, 5)
	r.use(t, 1)
	deliver(2, 5)
	r.clock.add(time.Hour)
	deliver(3, 6)
	if names := spoolFiles(t, dir); len(names) != 0 {
		t.Errorf("the spool has %q after the acknowledgment", names)
	}
	if n := r.count(t, "kubetenant_usage_records_total", "sent"); n != 3 {
		t.Errorf("%v records sent; want 3", n)
	}
	for key := range to.latest(t) {
		if key.Cluster != "eu1" || key.Server != "cp-0" || key.UID != "uid-of-acme" {
			t.Errorf("key %+v", key)
		}
	}
}

// TestBatches checks that the size of deliveries is limited, and that each line is delivered.
func TestBatches(t *testing.T) {
	const tenants = 4000
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
	}
	to := &memoryTarget{}
	r := newRecordsFixtureAt(t, t.TempDir(), to, newClock(), newDirectory(names...))
	for _, name := range names {
		r.recorder.Allowed(tenanttest.ID(t, name))
	}
	r.clock.add(time.Hour)
	r.Collect(t.Context())
	if err := r.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(to.latest(t)); n != tenants || to.sends < 2 || to.most > 512<<10 {
		t.Errorf("%d records in %d deliveries of at most %d bytes", n, to.sends, to.most)
	}
}

// TestRestart checks that the next process sends the spooled records with the start time of the
// first process, and that incomplete files are removed.
func TestRestart(t *testing.T) {
	to, dir := &memoryTarget{err: errors.New("down")}, t.TempDir()
	first := newRecordsFixture(t, dir, to)
	first.use(t, 7)
	first.Collect(t.Context())
	if err := os.WriteFile(filepath.Join(dir, "1-1.jsonl.tmp"), []byte(`{"clus`), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := newRecordsFixture(t, dir, to)
	if err := locked.DeliverOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("two processes use one directory: %v", err)
	}
	first.Close()
	to.fail(nil)
	c := newClock()
	c.add(time.Minute)
	second := newRecordsFixtureAt(t, dir, to, c, newDirectory("acme"))
	second.use(t, 4)
	second.Collect(t.Context())
	if err := second.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.add(time.Hour)
	second.Collect(t.Context())
	if err := second.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	latest := to.latest(t)
	if len(latest) != 2 || requestsOf(latest) != 11 {
		t.Errorf("records %+v; want one of each process, 11 requests", latest)
	}
	if names := spoolFiles(t, dir); len(names) != 0 {
		t.Errorf("the spool has %q", names)
	}
}

// TestFullDisk checks that records are retained while the disk is full for some time, and that the
// errors are counted.
func TestFullDisk(t *testing.T) {
	to, dir := &memoryTarget{}, t.TempDir()
	r := newRecordsFixture(t, dir, to)
	r.use(t, 3)
	r.WriteTo("/dev/full")
	r.Collect(t.Context())
	r.use(t, 2)
	r.Collect(t.Context())
	r.clock.add(time.Hour)
	r.use(t, 1)
	r.Collect(t.Context())
	if n := r.count(t, "kubetenant_usage_errors_total", "spool"); n < 3 {
		t.Errorf("%v errors of the spool; want at least 3", n)
	}
	r.WriteTo("")
	r.Collect(t.Context())
	r.clock.add(time.Hour)
	r.Collect(t.Context())
	if err := r.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := requestsOf(to.latest(t)); got != 6 {
		t.Errorf("%d requests; want 6", got)
	}
	// The directory cannot be created.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := newRecordsFixture(t, filepath.Join(file, "spool"), to)
	bad.use(t, 1)
	bad.Collect(t.Context())
	if n := bad.count(t, "kubetenant_usage_errors_total", "spool"); n != 1 {
		t.Errorf("%v errors of a spool that cannot be created; want 1", n)
	}
	// If the disk is full for more than 48 hours, older records are lost, and the loss is counted.
	r.WriteTo("/dev/full")
	for range 60 {
		r.use(t, 1)
		r.Collect(t.Context())
		r.clock.add(time.Hour)
	}
	r.WriteTo("")
	r.Collect(t.Context())
	if n := r.count(t, "kubetenant_usage_records_total", "dropped"); n < 10 || n > 13 {
		t.Errorf("%v records dropped; want about 12", n)
	}
}

// TestFullTarget checks that a file target on a full disk does not acknowledge records.
func TestFullTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	if err := usage.NewFile(path, 1, 1).Send(t.Context(), []byte("{}\n")); err == nil {
		t.Error("a file on a full disk acknowledged a record")
	}
}

// TestSpoolLimits checks that unacknowledged records are removed after seven days, and if the
// spool exceeds its maximum size. A clock that is set forward does not remove records before one
// delivery of them was tried.
func TestSpoolLimits(t *testing.T) {
	to, dir := &memoryTarget{err: errors.New("down")}, t.TempDir()
	r := newRecordsFixture(t, dir, to)
	for range 24 * 8 {
		r.use(t, 1)
		r.Collect(t.Context())
		if err := r.DeliverOnce(t.Context()); err == nil && len(spoolFiles(t, dir)) > 1 {
			t.Fatal("no error")
		}
		r.clock.add(time.Hour)
	}
	names := spoolFiles(t, dir)
	if n := r.count(t, "kubetenant_usage_records_total", "dropped"); len(names) > 24*7+1 || n != float64(24*8-len(names)) {
		t.Errorf("%d files, %v records dropped; want 7 days", len(names), n)
	}
	r.SetMax(2000)
	_ = r.DeliverOnce(t.Context())
	if names := spoolFiles(t, dir); len(names) == 0 || len(names) > 10 {
		t.Errorf("%d files; want at most 2,000 bytes", len(names))
	}
	to.fail(nil)
	if err := r.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(to.latest(t)); n == 0 {
		t.Error("no record was sent after the size limit was enforced")
	}

	jumped := newRecordsFixture(t, t.TempDir(), to)
	jumped.use(t, 5)
	jumped.Collect(t.Context())
	jumped.clock.add(1000 * time.Hour)
	jumped.Collect(t.Context())
	before := len(to.latest(t))
	if err := jumped.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(to.latest(t)) - before; n != 1 {
		t.Errorf("%d records from before the jump; want 1", n)
	}
}

// TestRecordsClockJumps checks that a consumer receives all records, even if the clock jumps and
// the target fails sometimes.
func TestRecordsClockJumps(t *testing.T) {
	to := &memoryTarget{}
	d := newDirectory("acme", "initech")
	r := newRecordsFixtureAt(t, t.TempDir(), to, newClock(), d)
	total := 0
	for i, jump := range []time.Duration{
		time.Hour, -time.Hour, 100 * time.Hour, -100 * time.Hour, -1000 * time.Hour, 1000 * time.Hour,
		time.Hour, -2 * time.Hour, 500 * time.Hour, -499 * time.Hour, time.Minute, 0, time.Hour,
	} {
		to.fail(nil)
		if i%3 == 0 {
			to.fail(errors.New("down"))
		}
		r.clock.add(jump)
		r.use(t, i+1)
		r.recorder.Denied(tenanttest.ID(t, "initech"))
		total += i + 2
		r.Collect(t.Context())
		_ = r.DeliverOnce(t.Context())
		if i == 4 { // another Tenant object with this name
			d.set("initech", "second")
			r.recorder.Check(tenanttest.ID(t, "initech"))
		}
	}
	to.fail(nil)
	r.clock.add(time.Hour)
	r.Collect(t.Context())
	if err := r.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := requestsOf(to.latest(t)); got != int64(total) {
		t.Errorf("%d requests; want %d", got, total)
	}
}

// TestOtherFilesInSpoolAreIgnored checks that only records are sent from a spool that also contains
// other files, invalid lines and symbolic links.
func TestOtherFilesInSpoolAreIgnored(t *testing.T) {
	to, dir := &memoryTarget{}, t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	line, _ := usage.Lines([]usage.Record{record()})
	for name, content := range map[string]string{
		secret:                                    string(line),
		filepath.Join(dir, "notes.jsonl"):         string(line),
		filepath.Join(dir, "5-490000.jsonl"):      "garbage\n" + string(line) + `{"cluster":"e`,
		filepath.Join(dir, "-5-490000.jsonl"):     string(line),
		filepath.Join(dir, "5--1.jsonl"):          string(line),
		filepath.Join(dir, "5-99999999999.jsonl"): string(line),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "6-490000.jsonl")); err != nil {
		t.Fatal(err)
	}
	r := newRecordsFixture(t, dir, to)
	if err := r.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if to.sends != 1 || len(to.latest(t)) != 1 {
		t.Errorf("%d deliveries: %s", to.sends, to.lines)
	}
	if n := r.count(t, "kubetenant_usage_records_total", "dropped"); n != 2 {
		t.Errorf("%v lines dropped; want 2", n)
	}
}

// TestFile checks that the file target writes complete lines after a crash within a line, and
// renames its file before the file exceeds its maximum size.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "records.jsonl")
	line, _ := usage.Lines([]usage.Record{record()})
	if err := os.WriteFile(path, line[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	f := usage.NewFile(path, 1, 2)
	for range 2 {
		if err := f.Send(t.Context(), line); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if want := string(line[:20]) + "\n" + string(line) + string(line); err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
	batch := bytes.Repeat(line, 500<<10/len(line))
	for range 12 {
		if err := f.Send(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, func() error {
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 3 {
			return fmt.Errorf("%d files, %w; want the file and 2 renamed ones", len(files), err)
		}
		return nil
	})
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 || info.Size() > 1<<20 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestEndpoint checks the requests to an endpoint with TLS: their headers and body, the token,
// which is read for each request, and the certificate authority.
func TestEndpoint(t *testing.T) {
	var got []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type")+" "+
			string(body))
	}))
	defer server.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "first\n")
	write(ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	e := usage.NewEndpoint(server.URL+"/records", ca, token, waittest.Limit)
	send := func() error { return e.Send(t.Context(), []byte("line\n")) }
	if err := send(); err != nil {
		t.Fatal(err)
	}
	write(token, "second")
	if err := send(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"POST /records Bearer first application/x-ndjson line\n",
		"POST /records Bearer second application/x-ndjson line\n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q; want %q", got, want)
	}
	for name, spoil := range map[string]func(){
		"no token":       func() { write(token, "\n") },
		"two tokens":     func() { write(token, "first\nX-Other: second") },
		"a huge token":   func() { write(token, strings.Repeat("x", 70<<10)) },
		"no token file":  func() { _ = os.Remove(token) },
		"no authority":   func() { write(ca, "nothing") },
		"no CA file":     func() { _ = os.Remove(ca) },
		"another server": func() { e = usage.NewEndpoint(server.URL, "", "", waittest.Limit) },
		"no server":      func() { server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			before, certificate := e, string(pem.EncodeToMemory(&pem.Block{
				Type:  "CERTIFICATE",
				Bytes: server.Certificate().Raw,
			}))
			write(token, "first")
			write(ca, certificate)
			got = nil
			spoil()
			err := send()
			if err == nil || len(got) != 0 {
				t.Errorf("%v, requests %q", err, got)
			} else if strings.Contains(err.Error(), "first") || strings.Contains(err.Error(), server.URL) {
				t.Errorf("the error contains a secret: %v", err)
			}
			e = before
		})
	}
}

// TestFaultyEndpoints checks that a faulty response does not acknowledge records.
func TestFaultyEndpoints(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	html := func(kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte("<html>Please log in</html>"))
		}
	}
	release := make(chan struct{})
	defer close(release)
	faults := map[string]http.HandlerFunc{
		"400": status(http.StatusBadRequest),
		"401": status(http.StatusUnauthorized),
		"403": status(http.StatusForbidden),
		"404": status(http.StatusNotFound),
		"413": status(http.StatusRequestEntityTooLarge),
		"429": status(http.StatusTooManyRequests),
		"500": status(http.StatusInternalServerError),
		"503": status(http.StatusServiceUnavailable),
		"304": status(http.StatusNotModified),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"an HTML page":              html("text/html; charset=utf-8"),
		"an HTML page in uppercase": html("Text/HTML"),
		"an XHTML page":             html("application/xhtml+xml"),
		"a closed connection":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"an incomplete answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{}"))
		},
		"no answer": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // so that the server notices that the client is gone
			select {
			case <-r.Context().Done():
			case <-release:
			}
		},
		"no end of the answer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-release:
			}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			handler, received := fault, []byte(nil)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				now := handler
				mu.Unlock()
				now(w, r)
			}))
			defer server.Close()
			timeout := waittest.Limit
			if strings.HasPrefix(name, "no ") {
				timeout = 50 * time.Millisecond
			}
			dir := t.TempDir()
			r := newRecordsFixture(t, dir, usage.NewEndpoint(server.URL+"/records", "", "", timeout))
			r.use(t, 5)
			r.Collect(t.Context())
			r.clock.add(time.Hour)
			for range 2 {
				if err := r.DeliverOnce(t.Context()); err == nil {
					t.Fatal("the records were acknowledged")
				}
			}
			if names := spoolFiles(t, dir); len(names) != 1 {
				t.Fatalf("the spool has %q; want the hour", names)
			}
			if n := r.count(t, "kubetenant_usage_records_total", "failed"); n != 2 {
				t.Errorf("%v records failed; want 2", n)
			}
			mu.Lock()
			handler = func(w http.ResponseWriter, r *http.Request) {
				received, _ = io.ReadAll(r.Body)
				w.WriteHeader(http.StatusNoContent)
			}
			mu.Unlock()
			r = restarted(t, r, dir, server.URL)
			if err := r.DeliverOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := requestsOf(latestOf(t, received)); got != 5 {
				t.Errorf("%d requests received; want 5", got)
			}
			if names := spoolFiles(t, dir); len(names) != 0 {
				t.Errorf("the spool has %q", names)
			}
		})
	}
}

// restarted returns the fixture of another process that uses the same directory.
func restarted(t *testing.T, before *recordsFixture, dir, url string) *recordsFixture {
	t.Helper()
	before.Close()
	c := newClock()
	c.add(2 * time.Hour)
	return newRecordsFixtureAt(t, dir, usage.NewEndpoint(url, "", "", waittest.Limit), c, newDirectory())
}

// TestDeliver checks that a failing delivery is retried and does not stop writes to the spool.
func TestDeliver(t *testing.T) {
	to, dir := &memoryTarget{err: errors.New("down")}, t.TempDir()
	r := newRecordsFixture(t, dir, to)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Deliver(ctx)
	}()
	r.use(t, 5)
	r.Collect(ctx)
	r.clock.add(time.Hour)
	r.Collect(ctx)
	sends := func() int {
		to.mu.Lock()
		defer to.mu.Unlock()
		return to.sends
	}
	waittest.Until(t, func() error {
		if n := sends(); n < 2 {
			return fmt.Errorf("%d deliveries; want another one after a failure", n)
		}
		return nil
	})
	to.fail(nil)
	r.use(t, 3) // the current hour is sent when the process ends
	r.Collect(ctx)
	cancel()
	<-done
	if got := requestsOf(to.latest(t)); got != 8 {
		t.Errorf("%d requests; want 8", got)
	}
}

// childVariable is the environment variable that makes the test binary record requests until it is
// killed.
const childVariable = "KUBETENANT_USAGE_TEST_DIRECTORY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		recordUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// recordUntilKilled records one request after another. It prints the number of requests in the
// spool.
func recordUntilKilled(dir string) {
	d := newDirectory("acme")
	recorder := usage.NewRecorder(time.Now, d.exists, d.uid)
	records := usage.NewRecords(usage.RecordsOptions{
		Recorder:  recorder,
		Target:    &memoryTarget{err: errors.New("down")},
		Directory: dir,
		Server:    "cp-0",
		Metrics:   usage.NewMetrics(),
	})
	acme := tenanttest.ID(&testing.T{}, "acme")
	for i := 1; ; i++ {
		recorder.Allowed(acme)
		records.Collect(context.Background())
		fmt.Println(i)
	}
}

// TestKill kills processes with SIGKILL, and checks that the next process sends all spooled records
// with the start times of the killed processes.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	want := int64(0)
	const processes = 3
	for i := range processes {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("the process printed %q", lines.Text())
			}
			last = n
			if n == int64(20+7*i) {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait()
		want += last
	}
	to := &memoryTarget{}
	c := newClock()
	c.set(time.Now().Add(time.Hour))
	r := newRecordsFixtureAt(t, dir, to, c, newDirectory("acme"))
	if err := r.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	latest := to.latest(t)
	starts := map[time.Time]bool{}
	for key := range latest {
		starts[key.Started] = true
	}
	// One more request of each process may be in the spool although its line is missing.
	if got := requestsOf(latest); got < want || got > want+processes || len(starts) != processes {
		t.Errorf("%d requests of %d processes; want %d to %d of %d", got, len(starts), want, want+processes, processes)
	}
}

// FuzzSpoolName checks that a name that is accepted contains no path separator and ends in its
// hour.
func FuzzSpoolName(f *testing.F) {
	f.Add("1764291600123456789-490081.jsonl")
	f.Add("1-2.jsonl")
	f.Add("../1-2.jsonl")
	f.Add("01-2.jsonl")
	f.Fuzz(func(t *testing.T, name string) {
		hour, ok := usage.ParseSpoolName(name)
		end := fmt.Sprintf("-%d.jsonl", hour)
		if ok && (hour < 0 || strings.ContainsAny(name, "/\\\x00") || !strings.HasSuffix(name, end)) {
			t.Errorf("%q is hour %d", name, hour)
		}
	})
}

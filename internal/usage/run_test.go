// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/internal/usage/usagetest"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// requestsIn returns the number of requests in all hours of a TenantUsage.
func requestsIn(s *usagetest.Server, name string) (n int64) {
	if u := s.Usage(name); u != nil {
		for i := range u.Servers {
			for _, h := range u.Servers[i].Hours {
				n += h.Requests
			}
		}
	}
	return n
}

// TestHangingDisk checks that a disk that does not respond stops neither the writes of TenantUsages
// nor their last pass, and that all records are written after the disk responds again.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, to, c := usagetest.New(t), newDirectory("acme"), &memoryTarget{}, newClock()
		s.AddTenant("acme", "uid-of-acme")
		r := newRecordsFixtureAt(t, t.TempDir(), to, c, d)
		release := make(chan struct{})
		r.BlockSpool(release)
		running := r.start(t, s)
		time.Sleep(time.Second) // the delivery waits for a record
		r.use(t, 3)
		time.Sleep(2 * time.Minute)
		if n := requestsIn(s, "acme"); n != 3 {
			t.Errorf("the TenantUsage has %d requests; want 3", n)
		}
		r.use(t, 2)
		time.Sleep(time.Minute)
		began := time.Now()
		running.Stop(t.Context())
		if waited := time.Since(began); waited != 15*time.Second {
			t.Errorf("Stop returned after %v; want 15 seconds", waited)
		}
		if n := requestsIn(s, "acme"); n != 5 {
			t.Errorf("after Stop, the TenantUsage has %d requests; want 5", n)
		}
		close(release)
		running.Stop(t.Context())
		if n := requestsOf(to.latest(t)); n != 5 {
			t.Errorf("%d requests in records; want 5", n)
		}
	})
}

// TestDeletedTenantOnFullDisk checks that the records of a deleted tenant are retained until they
// are in the spool.
func TestDeletedTenantOnFullDisk(t *testing.T) {
	to, c, d := &memoryTarget{}, newClock(), newDirectory("acme", "initech")
	r := newRecordsFixtureAt(t, t.TempDir(), to, c, d)
	r.WriteTo("/dev/full")
	r.use(t, 3)
	r.recorder.Denied(tenanttest.ID(t, "initech"))
	r.Collect(t.Context())
	d.remove("initech")
	for range 5 {
		c.add(time.Hour)
		r.use(t, 1)
		r.Collect(t.Context())
	}
	r.WriteTo("")
	r.Collect(t.Context())
	c.add(time.Hour)
	if err := r.DeliverOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := requestsOf(to.latest(t)); n != 9 {
		t.Errorf("%d requests; want 9, including one of the deleted tenant", n)
	}
	if n := r.count(t, "kubetenant_usage_records_total", "dropped"); n != 0 {
		t.Errorf("%v records dropped; want none", n)
	}
	// The entry of the deleted tenant is then removed.
	r.Collect(t.Context())
	if n := len(r.recorder.RecordsOf(begin)); n != 1 {
		t.Errorf("%d entries of the first hour; want only the entry of acme", n)
	}
}

// TestManyDeletedTenantsOnFullDisk checks that the number of deleted tenants in memory is limited,
// and that records that are lost because of the limit are counted.
func TestManyDeletedTenantsOnFullDisk(t *testing.T) {
	const deleted = 10_100
	c, d := newClock(), newDirectory()
	r := newRecordsFixtureAt(t, t.TempDir(), &memoryTarget{}, c, d)
	r.WriteTo("/dev/full")
	for i := range deleted {
		name := fmt.Sprintf("t-%d", i)
		d.set(name, "uid-of-"+name)
		r.recorder.Denied(tenanttest.ID(t, name))
		d.remove(name)
	}
	r.Collect(t.Context())
	c.add(3 * time.Hour)
	r.Collect(t.Context())
	left, lost := len(r.recorder.RecordsOf(begin)), r.count(t, "kubetenant_usage_records_total", "dropped")
	if left != 10_000 || lost != deleted-10_000 {
		t.Errorf("%d entries, %v records dropped; want 10,000 and 100", left, lost)
	}
}

// TestSaveTenantUsages checks that requests are still recorded after the last TenantUsages have
// been written.
func TestSaveTenantUsages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, to, c := usagetest.New(t), &memoryTarget{}, newClock()
		s.AddTenant("acme", "uid-of-acme")
		r := newRecordsFixtureAt(t, t.TempDir(), to, c, newDirectory("acme"))
		running := r.start(t, s)
		r.use(t, 3)
		running.SaveTenantUsages(t.Context())
		if n := requestsIn(s, "acme"); n != 3 {
			t.Errorf("the TenantUsage has %d requests; want 3", n)
		}
		r.use(t, 2)
		time.Sleep(time.Minute)
		r.use(t, 1)
		running.Stop(t.Context())
		if n := requestsOf(to.latest(t)); n != 6 {
			t.Errorf("%d requests in records; want 6", n)
		}
	})
}

// start starts to collect totals and to write records and TenantUsages.
func (r *recordsFixture) start(t *testing.T, s *usagetest.Server) *usage.Running {
	t.Helper()
	return usage.Start(t.Context(), r.recorder, usage.RunOptions{
		Records: r.Records,
		Writer: usage.NewWriter(usage.WriterOptions{
			Recorder: r.recorder,
			Client:   s,
			Server:   "cp-0",
			Metrics:  r.metrics,
		}),
	})
}

// TestUnsavedAfterRestart checks that the next process writes the totals that the last process
// could not write to TenantUsages, and that it writes them only once.
func TestUnsavedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, to, dir, d, c := usagetest.New(t), &memoryTarget{}, t.TempDir(), newDirectory("acme", "initech"), newClock()
		s.AddTenant("acme", "uid-of-acme")
		s.AddTenant("initech", "uid-of-initech")
		process := func(use func(*recordsFixture), fail error) {
			s.Fail(nil)
			r := newRecordsFixtureAt(t, dir, to, c, d)
			running := r.start(t, s)
			time.Sleep(2 * time.Minute)
			use(r)
			s.Fail(fail)
			running.Stop(t.Context())
			c.add(time.Minute)
		}
		down := errors.New("down")
		process(func(r *recordsFixture) {
			r.use(t, 3)
			time.Sleep(20 * time.Minute) // so that the first requests are written
			r.use(t, 2)
			c.add(time.Hour)
			r.use(t, 4)
		}, down)
		d.remove("acme") // its Tenant is unknown for some time
		process(func(r *recordsFixture) { r.recorder.Denied(tenanttest.ID(t, "initech")) }, down)
		d.set("acme", "uid-of-acme")
		for range 2 {
			process(func(*recordsFixture) {}, nil)
			if got := hoursOf(s.Usage("acme"), "cp-0"); got != "0:5/0 1:4/0" {
				t.Errorf("acme: %s; want 0:5/0 1:4/0", got)
			}
			if got := hoursOf(s.Usage("initech"), "cp-0"); got != "1:1/1" {
				t.Errorf("initech: %s; want 1:1/1", got)
			}
		}
		if n := requestsOf(to.latest(t)); n != 10 {
			t.Errorf("%d requests in records; want 10", n)
		}
	})
}

// TestFaultyDiskIsLoggedOnce checks that a disk that is full for a long time causes only one log
// entry.
func TestFaultyDiskIsLoggedOnce(t *testing.T) {
	var out ktesting.BufferTL
	logger := ktesting.NewLogger(&out, ktesting.NewConfig())
	ctx := klog.NewContext(t.Context(), logger)
	r := newRecordsFixture(t, t.TempDir(), &memoryTarget{})
	for range 3 {
		r.WriteTo("/dev/full")
		for range 10 {
			r.use(t, 1)
			r.Collect(ctx)
		}
		r.WriteTo("")
		r.Collect(ctx)
	}
	if n := strings.Count(out.String(), "usage.directory"); n != 3 {
		t.Errorf("%d lines in the log; want one for each time at which the disk was full:\n%s", n, out.String())
	}
	if n := r.count(t, "kubetenant_usage_errors_total", "spool"); n != 30 {
		t.Errorf("%v errors; want 30", n)
	}
}

// TestRefusedRecords checks that records that the endpoint rejects do not delay other records, and
// that only the rejected batches are sent again.
func TestRefusedRecords(t *testing.T) {
	const tenants = 5000 // so that there is more than one batch
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("t-%d", i)
	}
	refused := names[tenants-1]
	var mu sync.Mutex
	var received []byte
	requests, refuses := 0, true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		requests++
		if refuses && strings.Contains(string(body), `"uid-of-`+refused+`"`) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		received = append(received, body...)
	}))
	defer server.Close()
	dir := t.TempDir()
	c := newClock()
	r := newRecordsFixtureAt(t, dir, usage.NewEndpoint(server.URL, "", "", waittest.Limit), c, newDirectory(names...))
	for _, name := range names {
		r.recorder.Allowed(tenanttest.ID(t, name))
	}
	c.add(time.Hour)
	r.recorder.Allowed(tenanttest.ID(t, names[0]))
	r.Collect(t.Context())
	c.add(time.Hour)
	err := r.DeliverOnce(t.Context())
	if !errors.Is(err, usage.ErrRejected) || !strings.Contains(err.Error(), "413") {
		t.Errorf("%v; want that the endpoint refused records", err)
	}
	if len(spoolFiles(t, dir)) != 1 {
		t.Errorf("the spool has %q; want the first hour only", spoolFiles(t, dir))
	}
	before := requests
	if err := r.DeliverOnce(t.Context()); err == nil || requests != before+1 {
		t.Errorf("%v, %d requests; want only the batch that was refused", err, requests-before)
	}
	refuses = false
	if err := r.DeliverOnce(t.Context()); err != nil || len(spoolFiles(t, dir)) != 0 {
		t.Fatalf("%v, the spool has %q", err, spoolFiles(t, dir))
	}
	if n := requestsOf(latestOf(t, received)); n != tenants+1 {
		t.Errorf("%d requests received; want %d", n, tenants+1)
	}
}

// TestFileRenamedByAnotherProgram checks that the file target creates a new file after another
// program renames or removes its file, and returns an error if another process writes its file.
func TestFileRenamedByAnotherProgram(t *testing.T) {
	dir := t.TempDir()
	path, moved := filepath.Join(dir, "new", "records.jsonl"), filepath.Join(dir, "moved")
	line, _ := usage.Lines([]usage.Record{record()})
	f := usage.NewFile(path, 1, 2)
	for _, change := range []func() error{
		func() error { return os.Rename(path, moved) },
		func() error { return os.Remove(path) },
		func() error { // as logrotate does with "create"
			return errors.Join(os.Rename(path, moved), os.WriteFile(path, nil, 0o600))
		},
		func() error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		if err := f.Send(t.Context(), line); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := f.Send(t.Context(), line); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != string(line) {
			t.Errorf("%s, %v; want the record in the new file", data, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Send(t.Context(), line); err != nil {
		t.Fatal(err)
	}
	err := usage.NewFile(path, 1, 2).Send(t.Context(), line)
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("two processes write one file: %v", err)
	}
}

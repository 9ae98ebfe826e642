// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/tenantaudit"
)

func open(t *testing.T, o tenantaudit.Options) *tenantaudit.Streams {
	t.Helper()
	if o.Directory == "" {
		o.Directory = filepath.Join(t.TempDir(), "audit")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 20
	}
	s, err := tenantaudit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// placed returns records with the given names in a stream.
func placed(stream tenantaudit.Stream, names ...string) (out []tenantaudit.Placed) {
	for _, name := range names {
		out = append(out, tenantaudit.Placed{Stream: stream, Record: &tenantaudit.Record{Name: name}})
	}
	return out
}

// read returns the names of the records of a stream.
func read(t *testing.T, directory string, stream tenantaudit.Stream) (found []string) {
	t.Helper()
	visit := func(r *tenantaudit.Record, _ []byte) error {
		found = append(found, r.Name)
		return nil
	}
	err := tenantaudit.Read(t.Context(), directory, stream, tenantaudit.Filter{}, visit)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func expect(t *testing.T, directory string, stream tenantaudit.Stream, want ...string) {
	t.Helper()
	if got := read(t, directory, stream); !slices.Equal(got, want) {
		t.Errorf("%s has %q, want %q", stream, got, want)
	}
}

func write(t *testing.T, s *tenantaudit.Streams, all ...tenantaudit.Placed) {
	t.Helper()
	if err := s.Write(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

func TestOneSyncForEachFileOfABatch(t *testing.T) {
	faults := tenantaudit.Faults{}
	s := open(t, faults.Use(tenantaudit.Options{Directory: t.TempDir()}))
	write(t, s, slices.Concat(placed("a", "1", "2"), placed("b", "3"), placed("a", "4"))...)
	if n := faults.Syncs.Load(); n != 2 {
		t.Errorf("%d syncs for two files", n)
	}
	expect(t, s.Directory(), "a", "1", "2", "4")
	expect(t, s.Directory(), "b", "3")
}

func TestModes(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "audit")
	if err := os.Mkdir(directory, 0o755); err != nil { // #nosec G301 -- too open on purpose
		t.Fatal(err)
	}
	for range 2 {
		s := open(t, tenantaudit.Options{Directory: directory})
		write(t, s, placed("a", "1")...)
		for name, want := range map[string]os.FileMode{".": 0o700, "a.jsonl": 0o600, "lock": 0o600} {
			t.Run(name, func(t *testing.T) {
				info, err := os.Stat(filepath.Join(directory, name))
				if err != nil {
					t.Fatal(err)
				}
				if got := info.Mode().Perm(); got != want {
					t.Errorf("%s has the mode %o, want %o", name, got, want)
				}
			})
		}
		// The mode of a directory on a volume can change before the next start.
		if err := errors.Join(s.Close(), os.Chmod(directory, 0o770)); err != nil { // #nosec G302 -- as above
			t.Fatal(err)
		}
	}
}

// TestSharedDirectoryIsRejected checks that Open rejects a directory with files of other programs,
// and does not change its mode.
func TestSharedDirectoryIsRejected(t *testing.T) {
	log := t.TempDir()
	if err := errors.Join(os.Chmod(log, 0o755), os.WriteFile(filepath.Join(log, "syslog"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, directory := range []string{log, link, link + "/"} {
		if _, err := tenantaudit.Open(tenantaudit.Options{Directory: directory, MaxBytes: 1}); err == nil {
			t.Errorf("%s was opened", directory)
		}
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode was changed: %v (%v)", info, err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	s := open(t, tenantaudit.Options{})
	o := tenantaudit.Options{Directory: s.Directory(), MaxBytes: 1}
	if _, err := tenantaudit.Open(o); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the second Open() = %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), placed("a", "1")); err == nil {
		t.Error("closed streams were written")
	}
	again, err := tenantaudit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// TestSymbolicLinks checks that records are not written through a symbolic link, and that a stream
// is not read through one.
func TestSymbolicLinks(t *testing.T) {
	for _, kind := range []string{"outside", "inside", "dangling", "directory"} {
		t.Run(kind, func(t *testing.T) {
			s := open(t, tenantaudit.Options{})
			write(t, s, placed("other", "secret")...)
			victim := filepath.Join(t.TempDir(), "victim")
			if err := os.WriteFile(victim, []byte("{\"name\":\"secret\"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			target := map[string]string{"outside": victim, "inside": "other.jsonl", "dangling": "nothing.jsonl"}[kind]
			link := filepath.Join(s.Directory(), "a.jsonl")
			var err error
			if target == "" {
				err = os.Mkdir(link, 0o700)
			} else {
				err = os.Symlink(target, link)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Write(t.Context(), placed("a", "1")); err == nil {
				t.Error("the record was written")
			}
			err = tenantaudit.Read(t.Context(), s.Directory(), "a", tenantaudit.Filter{},
				func(r *tenantaudit.Record, _ []byte) error {
					t.Errorf("read %s through the link", r.Name)
					return nil
				})
			if err == nil {
				t.Error("the link was read")
			}
			expect(t, s.Directory(), "other", "secret")
			if text, _ := os.ReadFile(victim); strings.Contains(string(text), `"1"`) {
				t.Error("the record is in another file")
			}
			if _, err := os.Lstat(filepath.Join(s.Directory(), "nothing.jsonl")); err == nil {
				t.Error("the file behind the link was created")
			}
		})
	}
	t.Run("replaces an open file", func(t *testing.T) {
		s := open(t, tenantaudit.Options{})
		write(t, s, placed("a", "1")...)
		link := filepath.Join(s.Directory(), "a.jsonl")
		if err := errors.Join(os.Remove(link), os.Symlink("other.jsonl", link)); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), placed("a", "2")); err == nil {
			t.Error("the record was written")
		}
	})
	t.Run("replaces the lock", func(t *testing.T) {
		directory := t.TempDir()
		if err := os.Symlink("elsewhere", filepath.Join(directory, "lock")); err != nil {
			t.Fatal(err)
		}
		if _, err := tenantaudit.Open(tenantaudit.Options{Directory: directory, MaxBytes: 1}); err == nil {
			t.Error("a lock that is a link was accepted")
		}
	})
}

func TestFullDisk(t *testing.T) {
	for _, truncates := range []string{"rolled back", "not rolled back"} {
		t.Run(truncates, func(t *testing.T) {
			faults := tenantaudit.Faults{}
			s := open(t, faults.Use(tenantaudit.Options{Directory: t.TempDir()}))
			write(t, s, placed("a", "1")...)
			faults.Truncate.Store(truncates != "rolled back")
			for room := range int64(60) {
				faults.Room.Store(room)
				if err := s.Write(t.Context(), slices.Concat(placed("a", "lost"), placed("b", "lost"))); err == nil {
					t.Fatalf("a write succeeded with room for %d bytes", room)
				}
			}
			faults.Room.Store(-1)
			faults.Truncate.Store(false)
			write(t, s, slices.Concat(placed("a", "2"), placed("b", "3"))...)
			write(t, s, placed("a", "4")...)
			got := read(t, s.Directory(), "a")
			if truncates == "rolled back" && !slices.Equal(got, []string{"1", "2", "4"}) {
				t.Errorf("the stream has %q", got)
			}
			// A line that could not be removed must not corrupt the next line.
			for _, name := range []string{"1", "2", "4"} {
				if !slices.Contains(got, name) {
					t.Errorf("%s is lost: %q", name, got)
				}
			}
			if got := read(t, s.Directory(), "b"); !slices.Contains(got, "3") {
				t.Errorf("the other stream has %q", got)
			}
		})
	}
}

func TestFailedSync(t *testing.T) {
	faults := tenantaudit.Faults{}
	s := open(t, faults.Use(tenantaudit.Options{Directory: t.TempDir()}))
	write(t, s, placed("a", "1")...)
	faults.Sync.Store(true)
	if err := s.Write(t.Context(), slices.Concat(placed("a", "2"), placed("b", "2"))); err == nil {
		t.Fatal("a record that is not on the disk was acknowledged")
	}
	faults.Sync.Store(false)
	write(t, s, slices.Concat(placed("a", "2"), placed("b", "2"))...)
	expect(t, s.Directory(), "a", "1", "2")
	expect(t, s.Directory(), "b", "2")
}

// TestNamesAreSynced checks that a record in a new file is acknowledged only after the directory is
// synced.
func TestNamesAreSynced(t *testing.T) {
	faults := tenantaudit.Faults{}
	s := open(t, faults.Use(tenantaudit.Options{Directory: t.TempDir(), MaxBytes: 100}))
	faults.SyncNames.Store(true)
	for range 2 {
		if err := s.Write(t.Context(), placed("a", "1")); err == nil {
			t.Fatal("a record whose file may not be on the disk was acknowledged")
		}
	}
	faults.SyncNames.Store(false)
	write(t, s, placed("a", "1")...)
	if n := faults.NameSyncs.Load(); n != 3 {
		t.Errorf("the directory was synced %d times, want 3", n)
	}
	write(t, s, placed("a", "2")...)
	if n := faults.NameSyncs.Load(); n != 3 {
		t.Errorf("after a record in the same file, the directory was synced %d times, want 3", n)
	}
	write(t, s, placed("a", strings.Repeat("x", 90))...)
	if n := faults.NameSyncs.Load(); n != 4 {
		t.Errorf("after a rotation, the directory was synced %d times, want 4", n)
	}
}

// TestIncompleteLineIsEnded checks that the first record after an incomplete line, which a killed
// process leaves, can be read.
func TestIncompleteLineIsEnded(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "audit")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, "a.jsonl")
	if err := os.WriteFile(file, []byte("{\"name\":\"1\"}\n{\"name\":\"to"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, directory, "a", "1")
	s := open(t, tenantaudit.Options{Directory: directory})
	write(t, s, placed("a", "2")...)
	expect(t, directory, "a", "1", "2")
}

func TestRotation(t *testing.T) {
	now := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	s := open(t, tenantaudit.Options{MaxBytes: 120, MaxBackups: 3, Now: func() time.Time { return now }})
	var want []string
	for i := range 30 {
		now = now.Add(time.Duration(1-i%3) * time.Second) // the clock also jumps back and stops
		name := fmt.Sprint(100 + i)
		want = append(want, name)
		write(t, s, placed("a", name)...)
	}
	got := read(t, s.Directory(), "a")
	if len(got) < 6 || !slices.Equal(got, want[len(want)-len(got):]) {
		t.Errorf("read %q", got)
	}
	entries, err := filepath.Glob(filepath.Join(s.Directory(), "a*"))
	if err != nil || len(entries) != 4 {
		t.Errorf("files are %q (%v), want 3 rotated and one current", entries, err)
	}
	for _, entry := range entries {
		if info, err := os.Stat(entry); err != nil || info.Size() > 120 {
			t.Errorf("%s: %v, %v", entry, info, err)
		}
	}
}

// TestNoTenantHasTheNameOfARotatedFile checks that no stream of a tenant has the name of a rotated
// file of another tenant.
func TestNoTenantHasTheNameOfARotatedFile(t *testing.T) {
	s := open(t, tenantaudit.Options{MaxBytes: 60})
	acme := tenantaudit.StreamOf(id("acme"), "")
	for range 5 {
		write(t, s, placed(acme, "own")...)
	}
	for _, other := range []string{"acme-20261128T010000.000000000Z", "acme.jsonl", "acme-1"} {
		write(t, s, placed(tenantaudit.StreamOf(id(other), ""), "secret")...)
	}
	if got := read(t, s.Directory(), acme); len(got) != 5 || slices.Contains(got, "secret") {
		t.Errorf("the stream has %q", got)
	}
}

func TestMaxAge(t *testing.T) {
	now := time.Now()
	s := open(t, tenantaudit.Options{MaxBytes: 60, MaxAge: time.Hour, Now: func() time.Time { return now }})
	const deleted, a = tenantaudit.Stream("id-deleted"), tenantaudit.Stream("id-a")
	for range 3 {
		write(t, s, placed(deleted, "1")...)
	}
	// These files do not belong to a stream.
	others := []string{
		"notes.jsonl", "2026-11-28T01.jsonl", "id-.jsonl", "ID-A.jsonl", "notes@20261128T010000.000000000Z.jsonl",
	}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(s.Directory(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	jumped := now
	now = now.Add(2 * time.Hour) // the clock is wrong for half an hour
	write(t, s, placed(a, "1")...)
	now = now.Add(30 * time.Minute)
	write(t, s, placed(a, "1")...)
	now = jumped.Add(30 * time.Minute)
	write(t, s, placed(a, "1")...)
	if got := read(t, s.Directory(), deleted); len(got) != 3 {
		t.Errorf("a wrong clock deleted records: %q", got)
	}
	now = now.Add(2 * time.Hour)
	write(t, s, placed(a, "2")...)
	now = now.Add(time.Hour + time.Second)
	write(t, s, placed(a, "3")...)
	if got := read(t, s.Directory(), deleted); len(got) > 0 {
		t.Errorf("old records remain: %q", got)
	}
	if got := read(t, s.Directory(), a); !slices.Contains(got, "3") {
		t.Errorf("the stream has %q", got)
	}
	write(t, s, placed(deleted, "2")...)
	expect(t, s.Directory(), deleted, "2")
	for _, name := range others {
		if _, err := os.Stat(filepath.Join(s.Directory(), name)); err != nil {
			t.Error(err)
		}
	}
}

// TestMaxTotal checks that the largest stream loses its oldest file first, and that a small stream
// loses nothing.
func TestMaxTotal(t *testing.T) {
	now := time.Now()
	s := open(t, tenantaudit.Options{MaxBytes: 100, MaxTotalBytes: 1000, Now: func() time.Time { return now }})
	const large, small = tenantaudit.Stream("id-large"), tenantaudit.Stream("id-small")
	for i := range 4 {
		write(t, s, placed(small, fmt.Sprint(i))...)
	}
	for i := range 100 {
		now = now.Add(time.Second)
		write(t, s, placed(large, fmt.Sprint(i))...)
	}
	expect(t, s.Directory(), small, "0", "1", "2", "3")
	got := read(t, s.Directory(), large)
	if len(got) < 5 || got[len(got)-1] != "99" || got[0] != fmt.Sprint(100-len(got)) {
		t.Errorf("the large stream has %q", got)
	}
	files, err := filepath.Glob(filepath.Join(s.Directory(), "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 1100 || total < 500 {
		t.Errorf("all files have %d bytes, want at most 1000 plus one file", total)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	faults := tenantaudit.Faults{}
	s := open(t, faults.Use(tenantaudit.Options{Directory: t.TempDir()}))
	var batch []tenantaudit.Placed
	for i := range 700 {
		batch = append(batch, placed(tenantaudit.Stream(fmt.Sprint(i)), "1")...)
	}
	write(t, s, batch...)
	write(t, s, batch...)
	if most := faults.MostOpened.Load(); most > 257 { // one more while an opened file replaces another file
		t.Errorf("%d files were open", most)
	}
	for i := range 700 {
		expect(t, s.Directory(), tenantaudit.Stream(fmt.Sprint(i)), "1", "1")
	}
	if err := s.Close(); err != nil || faults.Opened.Load() != 0 {
		t.Errorf("%d files are open (%v)", faults.Opened.Load(), err)
	}
}

// TestRecreatedTenant checks that the stream of a recreated tenant does not contain the records of
// the deleted tenant with the same ID.
func TestRecreatedTenant(t *testing.T) {
	s := open(t, tenantaudit.Options{})
	acme := id("acme")
	write(t, s, placed(tenantaudit.StreamOf(acme, "u-1"), "old")...)
	write(t, s, placed(tenantaudit.StreamOf(acme, ""), "without")...)
	expect(t, s.Directory(), tenantaudit.StreamOf(acme, "u-2"))
	expect(t, s.Directory(), tenantaudit.StreamOf(acme, "u-1"), "old")
}

func TestFilter(t *testing.T) {
	s := open(t, tenantaudit.Options{})
	begun := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	var all []tenantaudit.Placed
	for i, code := range []int32{200, 403, 401, 200, 404} {
		all = append(all, tenantaudit.Placed{Stream: "a", Record: &tenantaudit.Record{
			Time:    begun.Add(time.Duration(i) * time.Minute),
			Name:    fmt.Sprint(i),
			Code:    code,
			User:    []string{"alice", "bob"}[i%2],
			Cluster: []string{"eu", "us", "eu"}[i%3],
		}})
	}
	write(t, s, all...)
	for want, filter := range map[string]tenantaudit.Filter{
		"01234": {},
		"234":   {Since: begun.Add(2 * time.Minute)},
		"13":    {User: "bob"},
		"12":    {Denied: true},
		"2":     {Denied: true, User: "alice"},
		"14":    {Cluster: "us"},
	} {
		t.Run(want, func(t *testing.T) {
			var got strings.Builder
			if err := tenantaudit.Read(t.Context(), s.Directory(), "a", filter, func(r *tenantaudit.Record, _ []byte) error {
				got.WriteString(r.Name)
				return nil
			}); err != nil || got.String() != want {
				t.Errorf("%+v selects %s, want %s (%v)", filter, got.String(), want, err)
			}
		})
	}
}

// TestOldRecordsAreSkippedCheaply checks that records that a filter excludes by time are skipped
// with few allocations.
func TestOldRecordsAreSkippedCheaply(t *testing.T) {
	s := open(t, tenantaudit.Options{})
	var all []tenantaudit.Placed
	for i := range 1000 {
		all = append(all, tenantaudit.Placed{Stream: "a", Record: &tenantaudit.Record{
			Cluster:  `"time":"2026-11-29T01:00:00Z"`,
			Time:     time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC),
			ID:       fmt.Sprint(i),
			Verb:     "get",
			Resource: "pods",
			Name:     "p",
			User:     "alice",
		}})
	}
	write(t, s, all...)
	visit := func(*tenantaudit.Record, []byte) error { return errors.New("an old record is visited") }
	filter := tenantaudit.Filter{Since: time.Date(2026, 11, 28, 1, 0, 0, 1, time.UTC)}
	if n := testing.AllocsPerRun(10, func() {
		if err := tenantaudit.Read(t.Context(), s.Directory(), "a", filter, visit); err != nil {
			t.Error(err)
		}
	}); n > 2000 {
		t.Errorf("%v allocations for 1000 records", n)
	}
}

func TestInvalidLinesAreSkipped(t *testing.T) {
	directory := t.TempDir()
	text := strings.Join([]string{
		`{"name":"1"}`, ``, `no JSON`, `[]`, `{"name":2}`, `{"name":"` + strings.Repeat("x", 3*tenantaudit.MaxLine) + `"}`,
		`{"name":"2"}`, `{"name":"` + strings.Repeat("y", tenantaudit.MaxLine-11) + `"}`, "\x00\xff",
		`{"name":"3"}`, `{"name":"torn"}`,
	}, "\n")
	if err := os.WriteFile(filepath.Join(directory, "a.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := read(t, directory, "a")
	for i, name := range got {
		if len(name) > 10 {
			got[i] = name[:1]
		}
	}
	if want := []string{"1", "2", "y", "3"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

// TestFollow checks that a followed stream continues after rotations.
func TestFollow(t *testing.T) {
	s := open(t, tenantaudit.Options{MaxBytes: 200})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- tenantaudit.Read(ctx, s.Directory(), "a", tenantaudit.Filter{Follow: true},
			func(r *tenantaudit.Record, _ []byte) error {
				select {
				case next <- r.Name:
				case <-ctx.Done():
				}
				return nil
			})
	}()
	for i := range 40 {
		name := fmt.Sprint(i)
		write(t, s, placed("a", name)...)
		if i%4 != 3 { // several records are written and the file is rotated between two reads
			continue
		}
		for j := i - 3; j <= i; j++ {
			if got := <-next; got != fmt.Sprint(j) {
				t.Fatalf("read %s, want %d", got, j)
			}
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

// TestFollowAfterRollback checks that a reader that has read the records of a failed write also
// reads the records that follow.
func TestFollowAfterRollback(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "a.jsonl")
	first, lost := "{\"name\":\"1\"}\n", "{\"name\":\"lost, and longer than the others\"}\n{\"name\":\"torn"
	if err := os.WriteFile(file, []byte(first+lost), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next, idle, ended := make(chan string), make(chan struct{}), make(chan error, 1)
	send := func(r *tenantaudit.Record, _ []byte) error {
		select {
		case next <- r.Name:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	filter := tenantaudit.Filter{Follow: true, Idle: func() error {
		select {
		case idle <- struct{}{}:
		case <-ctx.Done():
		}
		return nil
	}}
	go func() { ended <- tenantaudit.Read(ctx, directory, "a", filter, send) }()
	for range 2 {
		<-next
	}
	<-idle
	if err := os.Truncate(file, int64(len(first))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the reader has read the shorter file
		<-idle
	}
	appended, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2", "3"} {
		if _, err := fmt.Fprintf(appended, "{\"name\":%q}\n", name); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"2", "3"} {
		got := ""
		for got == "" {
			select {
			case got = <-next:
			case <-idle:
			}
		}
		if got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
	cancel()
	if err := errors.Join(appended.Close(), <-ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"name\":\"1\"}\n{\"name\":"), 7)
	f.Add([]byte(strings.Repeat("x", 70<<10)+"\n{}\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		directory := t.TempDir()
		if at = max(0, min(at, len(text))); at > 0 {
			rotated := filepath.Join(directory, "a@20261128T010000.000000000Z.jsonl")
			if err := os.WriteFile(rotated, text[:at], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(directory, "a.jsonl"), text[at:], 0o600); err != nil {
			t.Fatal(err)
		}
		records := 0
		visit := func(_ *tenantaudit.Record, line []byte) error {
			if records++; len(line) > tenantaudit.MaxLine {
				t.Errorf("a line has %d bytes", len(line))
			}
			return nil
		}
		err := tenantaudit.Read(t.Context(), directory, "a", tenantaudit.Filter{}, visit)
		if err != nil || records > strings.Count(string(text), "\n") {
			t.Errorf("%d records, %v", records, err)
		}
	})
}

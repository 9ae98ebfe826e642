// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reload_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// reports collects the errors that a File reports, including nil.
type reports struct {
	mu  sync.Mutex
	all []error
}

func (r *reports) add(_ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err)
}

// wait waits for the nth report, counted from 1, and returns it.
func (r *reports) wait(t *testing.T, n int) error {
	t.Helper()
	var report error
	waittest.Until(t, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.all) < n {
			return fmt.Errorf("no report %d", n)
		}
		report = r.all[n-1]
		return nil
	})
	return report
}

// follow opens a file and runs it.
func follow(t *testing.T, path string, parse func([]byte) (string, error)) (*reload.File[string], *reports) {
	t.Helper()
	r := &reports{}
	f, err := reload.Open(path, parse, r.add)
	if err != nil {
		t.Fatal(err)
	}
	go f.Run(t.Context())
	return f, r
}

func parse(data []byte) (string, error) {
	if strings.HasPrefix(string(data), "bad") {
		return "", errors.New("bad content")
	}
	return strings.TrimSpace(string(data)), nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
}

func TestFileReloadsAndRetainsTheLastValidVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	f, r := follow(t, path, parse)
	if *f.Load() != "one" {
		t.Fatalf("Load() = %q", *f.Load())
	}
	write(t, path, "two")
	if err := r.wait(t, 1); err != nil || *f.Load() != "two" {
		t.Fatalf("after a good version: %v, Load() = %q", err, *f.Load())
	}
	write(t, path, "bad")
	if err := r.wait(t, 2); err == nil || !strings.Contains(err.Error(), path+": bad content") || *f.Load() != "two" {
		t.Fatalf("after a bad version: %v, Load() = %q", err, *f.Load())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := r.wait(t, 3); !errors.Is(err, os.ErrNotExist) || *f.Load() != "two" {
		t.Fatalf("after removal: %v, Load() = %q", err, *f.Load())
	}
	write(t, path, "three")
	if err := r.wait(t, 4); err != nil || *f.Load() != "three" {
		t.Fatalf("after the file exists again: %v, Load() = %q", err, *f.Load())
	}
}

func TestFileFollowsSymbolicLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		write(t, filepath.Join(dir, name), name)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("one", link); err != nil {
		t.Fatal(err)
	}
	f, r := follow(t, link, parse)
	if err := os.Symlink("two", link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	if err := r.wait(t, 1); err != nil || *f.Load() != "two" {
		t.Fatalf("after the link moved: %v, Load() = %q", err, *f.Load())
	}
}

// TestRejectedVersionIsRetried checks that a rejected version is tried again, because it may
// depend on another file.
func TestRejectedVersionIsRetried(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	write(t, path, "one")
	f, r := follow(t, path, func(data []byte) (string, error) {
		if string(data) == "two\n" {
			if _, err := os.Stat(other); err != nil {
				return "", err
			}
		}
		return strings.TrimSpace(string(data)), nil
	})
	write(t, path, "two")
	if err := r.wait(t, 1); err == nil || *f.Load() != "one" {
		t.Fatalf("before the other file exists: %v, Load() = %q", err, *f.Load())
	}
	write(t, other, "ready")
	if err := r.wait(t, 2); err != nil || *f.Load() != "two" {
		t.Fatalf("after the other file exists: %v, Load() = %q", err, *f.Load())
	}
}

func TestOpenFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := reload.Open(filepath.Join(dir, "missing"), parse, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of a missing file = %v", err)
	}
	if _, err := reload.Open(dir, parse, nil); err == nil {
		t.Error("Open of a directory = nil")
	}
	path := filepath.Join(dir, "f")
	write(t, path, "bad")
	if _, err := reload.Open(path, parse, nil); err == nil || !strings.Contains(err.Error(), "bad content") {
		t.Errorf("Open of a bad file = %v", err)
	}
}

// writeInPlace writes to a file without a rename, like some editors and shells.
func writeInPlace(t *testing.T, path string, flag int, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestIncompleteFileIsNotUsed checks that an incomplete file is not used while it grows, or if
// the writer stops within a line.
func TestIncompleteFileIsNotUsed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one,,acme")
	var seen sync.Map
	f, r := follow(t, path, func(data []byte) (string, error) {
		seen.Store(string(data), true)
		return parse(data)
	})
	writeInPlace(t, path, os.O_TRUNC, "")
	time.Sleep(time.Second)
	if got := *f.Load(); got != "one,,acme" {
		t.Fatalf("an emptied file was used: %q", got)
	}
	for range 40 { // longer than several checks
		writeInPlace(t, path, os.O_APPEND, "x")
		time.Sleep(50 * time.Millisecond)
	}
	writeInPlace(t, path, os.O_APPEND, "two,,ac")
	begun := time.Now()
	time.Sleep(2 * time.Second)
	if got := *f.Load(); got != "one,,acme" {
		t.Fatalf("an incomplete file was used after %v: %q", time.Since(begun), got)
	}
	writeInPlace(t, path, os.O_APPEND, "me\n")
	if err := r.wait(t, 1); err != nil || !strings.HasSuffix(*f.Load(), "two,,acme") {
		t.Fatalf("the complete file: %v, %q", err, *f.Load())
	}
	seen.Range(func(content, _ any) bool {
		if !strings.HasSuffix(content.(string), "\n") {
			t.Errorf("an incomplete file was used: %q", content)
		}
		return true
	})
}

// TestFileWithoutFinalNewlineIsUsedLater checks that a file without a newline at its end is used
// after a delay.
func TestFileWithoutFinalNewlineIsUsedLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	r := &reports{}
	f, err := reload.Open(path, parse, r.add)
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	go f.Run(klog.NewContext(t.Context(), logger))
	begun := time.Now()
	writeInPlace(t, path, os.O_TRUNC, "two")
	if err := r.wait(t, 1); err != nil || *f.Load() != "two" {
		t.Fatalf("%v, %q", err, *f.Load())
	}
	if took := time.Since(begun); took < 5*time.Second {
		t.Errorf("the file was used after %v, want at least 5s", took)
	}
	log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if n := strings.Count(log, "Waiting for the end of a new version"); n != 1 {
		t.Errorf("the log reports %d times that the file may be incomplete: %s", n, log)
	}
}

// TestSameSizeAndTimeIsDetected checks that a version with the same size and modification time is
// detected.
func TestSameSizeAndTimeIsDetected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, r := follow(t, path, parse)
	writeInPlace(t, path, 0, "two\n")
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := r.wait(t, 1); err != nil || *f.Load() != "two" {
		t.Fatalf("%v, %q", err, *f.Load())
	}
}

// TestRecentFileIsCheckedTwice checks that Open does not read a file while it is being written.
func TestRecentFileIsCheckedTwice(t *testing.T) {
	t.Parallel()
	const writes, settle = 12, 100 * time.Millisecond
	path := filepath.Join(t.TempDir(), "f")
	var begun, ended [writes]time.Time // indexed by the length of the file before a write
	grow := func(n int) {
		begun[n] = time.Now()
		writeInPlace(t, path, os.O_APPEND|os.O_CREATE, "o")
		ended[n] = time.Now()
	}
	grow(0)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for n := 1; n < writes; n++ {
			time.Sleep(settle / 2)
			grow(n)
		}
	}()
	f, err := reload.Open(path, parse, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-stop
	// On a busy machine, the writer may stop for so long that the file is read before its end.
	n := len(*f.Load())
	if n < writes && ended[n].Sub(begun[n-1]) < settle {
		t.Errorf("read with %d of %d bytes; the next byte was written after %v", n, writes, ended[n].Sub(begun[n-1]))
	}
}

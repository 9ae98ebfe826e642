package reload_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/internal/waittest"
)

// reports collects what a File reports.
type reports struct {
	mu  sync.Mutex
	all []error
}

func (r *reports) add(_ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err)
}

// wait returns the nth report, counted from 1.
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

func parse(data []byte) (string, error) {
	if strings.HasPrefix(string(data), "bad") {
		return "", errors.New("bad content")
	}
	return string(data), nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
}

func TestFileFollowsAndKeepsTheLastGoodVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	var r reports
	f, err := reload.Open(path, parse, r.add)
	if err != nil {
		t.Fatal(err)
	}
	go f.Run(t.Context())
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
		t.Fatalf("after it is back: %v, Load() = %q", err, *f.Load())
	}
}

func TestFileFollowsSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		write(t, filepath.Join(dir, name), name)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("one", link); err != nil {
		t.Fatal(err)
	}
	var r reports
	f, err := reload.Open(link, parse, r.add)
	if err != nil {
		t.Fatal(err)
	}
	go f.Run(t.Context())
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

// TestARefusedVersionIsTriedAgain: what it depends on may become ready later.
func TestARefusedVersionIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	write(t, path, "one")
	var r reports
	f, err := reload.Open(path, func(data []byte) (string, error) {
		if string(data) == "two" {
			if _, err := os.Stat(other); err != nil {
				return "", err
			}
		}
		return string(data), nil
	}, r.add)
	if err != nil {
		t.Fatal(err)
	}
	go f.Run(t.Context())
	write(t, path, "two")
	if err := r.wait(t, 1); err == nil || *f.Load() != "one" {
		t.Fatalf("before it is ready: %v, Load() = %q", err, *f.Load())
	}
	write(t, other, "ready")
	if err := r.wait(t, 2); err != nil || *f.Load() != "two" {
		t.Fatalf("after it is ready: %v, Load() = %q", err, *f.Load())
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := reload.Open(filepath.Join(dir, "missing"), parse, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of a missing file = %v", err)
	}
	if _, err := reload.Open(dir, parse, nil); err == nil {
		t.Error("Open of a folder = nil")
	}
	path := filepath.Join(dir, "f")
	write(t, path, "bad")
	if _, err := reload.Open(path, parse, nil); err == nil || !strings.Contains(err.Error(), "bad content") {
		t.Errorf("Open of a bad file = %v", err)
	}
}

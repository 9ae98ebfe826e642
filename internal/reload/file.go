// Package reload keeps what was read from a file current while the file changes.
package reload

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Interval is the time between two looks at a file. Looking (one stat) instead of waiting for
// events works alike for renames, symbolic links of mounted ConfigMaps, and network file systems.
const Interval = 500 * time.Millisecond

// retryAfter is how many looks after a refused version it is tried again: it may have named another
// file that was not ready yet.
const retryAfter = 10

// Report is told what became of each new version of a file: a nil error when it took effect, else
// why the version before it stays. It MUST be safe for concurrent use.
type Report func(path string, err error)

// File holds the last good content of one file. It is made by [Open] and safe for concurrent use.
type File[T any] struct {
	path    string
	parse   func([]byte) (T, error)
	report  Report
	seen    version // of the last look, by Run's goroutine only
	refused error   // why seen was refused, by Run's goroutine only
	looks   int     // since then
	current atomic.Pointer[T]
}

// version tells one content of a file from the next without reading it.
type version struct {
	modified time.Time
	size     int64
	info     os.FileInfo // tells a file renamed into place from its predecessor
}

// Open reads path and parses it. Its error names the path. A nil report is allowed.
// Changes take effect only while [File.Run] runs.
func Open[T any](path string, parse func([]byte) (T, error), report Report) (*File[T], error) {
	if report == nil {
		report = func(string, error) {}
	}
	f := &File[T]{path: path, parse: parse, report: report}
	v, err := look(path)
	if err != nil {
		return nil, err
	}
	f.seen = v
	data, err := os.ReadFile(path) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, err
	}
	return f, f.take(data)
}

// Load returns the last good content. The caller must not change it.
func (f *File[T]) Load() *T { return f.current.Load() }

// Run looks at the file every [Interval] until ctx ends. A version that cannot be read or parsed
// leaves the old content in place; it is reported once, and tried again now and then. At most one
// Run per File.
func (f *File[T]) Run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) { f.check() }, Interval)
}

// check parses a version that was the same before and after it was read: a file caught in the
// middle of being written is read again at the next look.
func (f *File[T]) check() {
	before, err := look(f.path)
	if err != nil {
		if f.seen.info != nil { // report the disappearance once
			f.seen = version{}
			f.report(f.path, err)
		}
		return
	}
	retry := false
	if before.same(f.seen) {
		if f.looks++; f.refused == nil || f.looks < retryAfter {
			return
		}
		retry = true
	}
	data, err := os.ReadFile(f.path)
	if after, lookErr := look(f.path); lookErr != nil || !after.same(before) {
		return
	}
	f.seen, f.looks = before, 0
	if err == nil {
		err = f.take(data)
	}
	told := retry && err != nil && err.Error() == f.refused.Error()
	f.refused = err
	if !told {
		f.report(f.path, err)
	}
}

// take makes data the current content if it can be parsed.
func (f *File[T]) take(data []byte) error {
	content, err := f.parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.current.Store(&content)
	return nil
}

func look(path string) (version, error) {
	info, err := os.Stat(path)
	if err != nil {
		return version{}, err
	}
	if !info.Mode().IsRegular() {
		return version{}, fmt.Errorf("%s: not a regular file", path)
	}
	return version{modified: info.ModTime(), size: info.Size(), info: info}, nil
}

func (v version) same(w version) bool {
	return v.info != nil && w.info != nil && os.SameFile(v.info, w.info) &&
		v.size == w.size && v.modified.Equal(w.modified)
}

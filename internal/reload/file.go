// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package reload keeps what was read from a file current while the file changes.
package reload

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Interval is the time between two looks at a file. Looking (one stat) instead of waiting for
// events works alike for renames, symbolic links of mounted ConfigMaps, and network file systems.
const Interval = 500 * time.Millisecond

// retryAfter is how many looks after a refused version it is tried again: it may have named another
// file that was not ready yet.
const retryAfter = 10

const (
	// settle is the time to a second look at a version that was not seen before: what is being
	// written, in place, is another one by then.
	settle = 100 * time.Millisecond
	// old is how long ago a file was last written that counts at the first look, at the start.
	old = time.Second
	// unended is how long a version stays the same that counts although its last line does not end:
	// it may have been cut off.
	unended = 5 * time.Second
)

// Report is told what became of each new version of a file: a nil error when it took effect, else
// why the version before it stays. It MUST be safe for concurrent use.
type Report func(path string, err error)

// File holds the last good content of one file. It is made by [Open] and safe for concurrent use.
type File[T any] struct {
	path   string
	parse  func([]byte) (T, error)
	report Report

	// By Run's goroutine only.
	seen    version // the last that counted or was refused
	refused error   // why seen was
	looks   int     // since then
	next    version // one that was seen and does not count yet
	since   time.Time
	awaited version // one whose end is awaited

	current atomic.Pointer[T]
}

// version tells one content of a file from the next without reading it. Size and times
// alone would not: a file may be renamed into place with both of its predecessor's, and its
// time of modification be set.
type version struct {
	modified, changed time.Time
	size              int64
	info              os.FileInfo // its device and number
}

// Open reads path and parses it. Its error names the path. A nil report is allowed. It
// waits a moment for a file that was written less than a second ago. Changes take effect
// only while [File.Run] runs.
func Open[T any](path string, parse func([]byte) (T, error), report Report) (*File[T], error) {
	if report == nil {
		report = func(string, error) {}
	}
	f := &File[T]{path: path, parse: parse, report: report}
	v, err := lookUntilSettled(path)
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

// Whole says that a file is written to its end: [Open] need not look twice. It sets
// its time of modification.
func Whole(path string) error {
	at := time.Now().Add(-2 * old)
	return os.Chtimes(path, at, at)
}

// lookUntilSettled looks at a file again while it is being written, a few times.
func lookUntilSettled(path string) (version, error) {
	v, err := look(path)
	for range unended / settle {
		if err != nil || time.Since(v.modified) > old {
			break
		}
		time.Sleep(settle)
		before := v
		if v, err = look(path); err == nil && v.same(before) {
			break
		}
	}
	return v, err
}

// Run looks at the file every [Interval] until ctx ends. A new version counts when a second look
// finds it unchanged, one whose last line does not end some seconds later. A version that cannot be
// read or parsed leaves the old content in place; it is reported once, and tried again now and
// then. At most one Run per File.
func (f *File[T]) Run(ctx context.Context) {
	for {
		wait := Interval
		if f.check(ctx) {
			wait = settle
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// check looks at the file, and reports whether to look again soon.
func (f *File[T]) check(ctx context.Context) (soon bool) {
	found, err := look(f.path)
	if err != nil {
		if f.seen.info != nil { // report the disappearance once
			f.seen, f.next = version{}, version{}
			f.report(f.path, err)
		}
		return false
	}
	retry := false
	switch {
	case found.same(f.seen):
		f.next = version{}
		if f.looks++; f.refused == nil || f.looks < retryAfter {
			return false
		}
		retry = true
	case !found.same(f.next):
		f.next, f.since = found, time.Now()
		return true
	}
	data, err := os.ReadFile(f.path)
	if after, lookErr := look(f.path); lookErr != nil || !after.same(found) {
		return true
	}
	if !retry && !bytes.HasSuffix(data, []byte("\n")) { // an empty one too: that is how writing in place begins
		if !found.same(f.awaited) {
			f.awaited = found
			klog.FromContext(ctx).Info("Waiting for the end of a new version of a file, which does not end with a newline",
				"path", f.path)
		}
		if time.Since(f.since) < unended {
			return false
		}
		klog.FromContext(ctx).Info("The file does not end with a newline and may be incomplete", "path", f.path)
	}
	f.seen, f.next, f.looks = found, version{}, 0
	if err == nil {
		err = f.take(data)
	}
	told := retry && err != nil && err.Error() == f.refused.Error()
	f.refused = err
	if !told {
		f.report(f.path, err)
	}
	return false
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
	return version{
		modified: info.ModTime(),
		changed:  changeTime(info),
		size:     info.Size(),
		info:     info,
	}, nil
}

func (v version) same(w version) bool {
	return v.info != nil && w.info != nil && os.SameFile(v.info, w.info) &&
		v.size == w.size && v.modified.Equal(w.modified) && v.changed.Equal(w.changed)
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package reload reads a file and reads it again when it changes.
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

// Interval is the time between two checks of a file. A check of an unchanged file is one stat.
// Unlike file system events, it also works for renames, symbolic links of mounted ConfigMaps, and
// network file systems.
const Interval = 500 * time.Millisecond

// retryAfter is the number of checks after which a rejected version is tried again. The version
// may depend on another file that was not ready yet.
const retryAfter = 10

const (
	// settleTime is the time until the second check of a new version. If the file is being written
	// in place, the second check finds another version.
	settleTime = 100 * time.Millisecond
	// settledAge is the minimum age of a file that [Open] reads without a second check.
	settledAge = time.Second
	// newlineTimeout is the time after which a version is used although it does not end with a
	// newline. Until then, the version may be incomplete.
	newlineTimeout = 5 * time.Second
)

// Report is called for each new version of a file, and once if the file disappears. If err is nil,
// the version is in use. Otherwise, the previous version stays in use, and err is the reason.
// Report MUST be safe for concurrent use.
type Report func(path string, err error)

// File contains the last valid content of one file. [Open] creates it. It is safe for concurrent
// use.
type File[T any] struct {
	path   string
	parse  func([]byte) (T, error)
	report Report

	// Only the goroutine of Run uses these fields.
	seen       version // the last version that was used or rejected
	lastErr    error   // why seen was rejected
	checks     int     // the number of checks since seen was set
	next       version // a new version that waits for its second check
	since      time.Time
	incomplete version // a version without a newline at its end

	current atomic.Pointer[T]
}

// version distinguishes the contents of a file without reading them. Size and times are not
// sufficient. A file that is renamed into place may have the size and the times of its predecessor,
// and a modification time can be set.
type version struct {
	modified, changed time.Time
	size              int64
	info              os.FileInfo // for the device and the inode
}

// Open reads and parses a file. Its error contains the path. report may be nil. If the file was
// written less than a second ago, Open waits until the file no longer changes, but at most about
// 5 seconds. Changes take effect only while [File.Run] runs.
func Open[T any](path string, parse func([]byte) (T, error), report Report) (*File[T], error) {
	if report == nil {
		report = func(string, error) {}
	}
	f := &File[T]{path: path, parse: parse, report: report}
	v, err := waitUntilSettled(path)
	if err != nil {
		return nil, err
	}
	f.seen = v
	data, err := os.ReadFile(path) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, err
	}
	return f, f.apply(data)
}

// Load returns the last valid content. The caller MUST NOT change it.
func (f *File[T]) Load() *T { return f.current.Load() }

// MarkComplete marks a file as complete, so that [Open] does not wait. It sets the modification
// time of the file to a time in the past.
func MarkComplete(path string) error {
	at := time.Now().Add(-2 * settledAge)
	return os.Chtimes(path, at, at)
}

// waitUntilSettled waits while a file is being written, but at most about newlineTimeout. It
// returns the version that the last check found.
func waitUntilSettled(path string) (version, error) {
	v, err := statFile(path)
	for range newlineTimeout / settleTime {
		if err != nil || time.Since(v.modified) > settledAge {
			break
		}
		time.Sleep(settleTime)
		before := v
		if v, err = statFile(path); err == nil && v.equal(before) {
			break
		}
	}
	return v, err
}

// Run checks the file every [Interval] until ctx ends. It uses a new version if a second check
// finds it unchanged. A version without a newline at its end must stay unchanged for some seconds.
// If a version cannot be read or parsed, the old content stays in use. The error is reported once,
// and the version is tried again at intervals. Call Run at most once for each File.
func (f *File[T]) Run(ctx context.Context) {
	for {
		wait := Interval
		if f.check(ctx) {
			wait = settleTime
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// check checks the file, and reports whether to check again soon.
func (f *File[T]) check(ctx context.Context) (soon bool) {
	found, err := statFile(f.path)
	if err != nil {
		if f.seen.info != nil { // report the disappearance once
			f.seen, f.next = version{}, version{}
			f.report(f.path, err)
		}
		return false
	}
	retry := false
	switch {
	case found.equal(f.seen):
		f.next = version{}
		if f.checks++; f.lastErr == nil || f.checks < retryAfter {
			return false
		}
		retry = true
	case !found.equal(f.next):
		f.next = found
		f.since = time.Now()
		return true
	}
	data, err := os.ReadFile(f.path)
	if after, lookErr := statFile(f.path); lookErr != nil || !after.equal(found) {
		return true
	}
	if !retry && !bytes.HasSuffix(data, []byte("\n")) { // also if empty, because a write in place begins so
		if !found.equal(f.incomplete) {
			f.incomplete = found
			klog.FromContext(ctx).Info("Waiting for the end of a new version of a file, which does not end with a newline",
				"path", f.path)
		}
		if time.Since(f.since) < newlineTimeout {
			return false
		}
		klog.FromContext(ctx).Info("The file does not end with a newline and may be incomplete", "path", f.path)
	}
	f.seen = found
	f.next = version{}
	f.checks = 0
	if err == nil {
		err = f.apply(data)
	}
	reported := retry && err != nil && err.Error() == f.lastErr.Error()
	f.lastErr = err
	if !reported {
		f.report(f.path, err)
	}
	return false
}

// apply makes data the current content if it can be parsed.
func (f *File[T]) apply(data []byte) error {
	content, err := f.parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.current.Store(&content)
	return nil
}

func statFile(path string) (version, error) {
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

func (v version) equal(w version) bool {
	return v.info != nil && w.info != nil && os.SameFile(v.info, w.info) &&
		v.size == w.size && v.modified.Equal(w.modified) && v.changed.Equal(w.changed)
}

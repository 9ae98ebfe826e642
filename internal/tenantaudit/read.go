// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"
)

// maxLine is the maximum length of a line in bytes. Longer lines are skipped. All records are
// shorter.
const maxLine = 64 << 10

// pollInterval is the interval at which a reader that follows a stream checks for new records.
const pollInterval = 250 * time.Millisecond

// Filter selects records. The zero value selects all records of a stream.
type Filter struct {
	// Since excludes records with an earlier time.
	Since time.Time
	// User selects the records of the user with the given name.
	User string
	// Denied selects the records of requests with the response status 401 or 403.
	Denied bool
	// Cluster selects the records of the given cluster.
	Cluster string
	// Follow specifies whether the read waits for new records until the context ends.
	Follow bool
	// Idle is called each time when all records have been read. If it returns an error, the read ends.
	Idle func() error
}

func (f *Filter) selects(r *Record) bool {
	switch {
	case r.Time.Before(f.Since), f.User != "" && r.User != f.User, f.Cluster != "" && r.Cluster != f.Cluster:
		return false
	}
	return !f.Denied || r.Code == http.StatusForbidden || r.Code == http.StatusUnauthorized
}

// Read calls visit for each selected record of a stream in a directory, oldest first, until visit
// returns an error. visit also receives the line of the record, which it MUST NOT retain. Read
// skips lines that are not records. It does not follow symbolic links. A stream without files has
// no records. If the filter follows the stream, Read returns only after an error. When the
// context ends, this is the error of the context.
func Read(ctx context.Context, directory string, stream Stream, f Filter, visit func(*Record, []byte) error) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return fmt.Errorf("audit streams: %w", err)
	}
	defer func() { _ = root.Close() }()
	r := &reader{
		root:   root,
		stream: stream,
		filter: f,
		visit:  visit,
	}
	return r.run(ctx)
}

// reader reads the files of a stream in order.
type reader struct {
	root   *os.Root
	stream Stream
	filter Filter
	visit  func(*Record, []byte) error
	last   string // the last rotated file that was read
}

func (r *reader) run(ctx context.Context) error {
	for {
		if err := r.readRotated(ctx); err != nil {
			return err
		}
		again, err := r.readCurrent(ctx)
		if err != nil || !again {
			return err
		}
	}
}

// readRotated reads the rotated files that have not been read yet.
func (r *reader) readRotated(ctx context.Context) error {
	all, err := r.unread()
	if err != nil {
		return err
	}
	for _, name := range all {
		r.last = name
		if _, at, _ := parseName(name); at.Before(r.filter.Since) {
			continue // all records of the file are older
		}
		f, err := openToRead(r.root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file was deleted after it was listed
		}
		if err != nil {
			return err
		}
		err = r.visitLines(ctx, &lines{file: f})
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) unread() ([]string, error) {
	all, err := backups(r.root, r.stream)
	return slices.DeleteFunc(all, func(name string) bool { return name <= r.last }), err
}

// readCurrent reads the file that has not been rotated. It returns true if the caller must check
// for rotated files and read again.
func (r *reader) readCurrent(ctx context.Context) (again bool, err error) {
	f, err := openToRead(r.root, fileOf(r.stream))
	if errors.Is(err, fs.ErrNotExist) {
		return r.wait(ctx)
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	if missed, err := r.unread(); err != nil || len(missed) > 0 { // the file was rotated after the rotated files were read
		return true, err
	}
	for text := (&lines{file: f}); ; {
		isCurrent := isSameFile(
			r.root,
			fileOf(r.stream),
			f,
		) // checked before the read, so that a rotated file is read to its end
		if err := text.rewind(f); err != nil {
			return false, err
		}
		if err := r.visitLines(ctx, text); err != nil {
			return false, err
		}
		if !isCurrent {
			return true, r.skip(f)
		}
		if again, err := r.wait(ctx); err != nil || !again {
			return false, err
		}
	}
}

// skip marks the given file as read, if it was rotated while it was being read.
func (r *reader) skip(f *os.File) error {
	all, err := r.unread()
	for _, name := range all {
		if isSameFile(r.root, name, f) {
			r.last = name
		}
	}
	return err
}

// wait waits until new records may exist. It returns false if the filter does not follow.
func (r *reader) wait(ctx context.Context) (again bool, err error) {
	if r.filter.Idle != nil {
		if err := r.filter.Idle(); err != nil {
			return false, err
		}
	}
	if !r.filter.Follow {
		return false, nil
	}
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-timer.C:
		return true, nil
	}
}

// visitLines calls visit for the selected records up to the end of a file.
func (r *reader) visitLines(ctx context.Context, text *lines) error {
	for {
		line, err := text.next()
		if errors.Is(err, io.EOF) {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if r.isOld(line) {
			if err := ctx.Err(); err != nil {
				return err
			}
			continue
		}
		record := Record{}
		if json.Unmarshal(line, &record) != nil || !r.filter.selects(&record) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.visit(&record, line); err != nil {
			return err
		}
	}
}

// isOld reports whether a line is a record with a time before Since. It decodes only the time,
// because most records may be old.
func (r *reader) isOld(line []byte) bool {
	if r.filter.Since.IsZero() {
		return false
	}
	_, rest, _ := bytes.Cut(line, []byte(`"time":"`))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	at, err := time.Parse(time.RFC3339Nano, string(text))
	return err == nil && at.Before(r.filter.Since)
}

// openToRead opens a file for reading. It does not follow a symbolic link.
func openToRead(root *os.Root, name string) (*os.File, error) {
	if err := checkRegular(root, name); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", name, errNotRegular)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// lines reads the lines of a file. It skips lines that are longer than maxLine.
type lines struct {
	file     io.Reader
	buffer   []byte // bytes that were read and not returned yet
	returned int    // bytes of the buffer that the last call returned
	skipping bool   // the rest of a line that is too long is skipped
}

// rewind moves to the end of a file that has become shorter, because a failed write removed lines
// that were already read.
func (l *lines) rewind(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil || info.Size() >= at {
		return err
	}
	l.buffer = l.buffer[:0]
	l.returned = 0
	l.skipping = false
	_, err = f.Seek(info.Size(), io.SeekStart)
	return err
}

// next returns the next complete line without its newline. The line is valid until the next call.
// The error is [io.EOF] at the end of the file. The file may end with an incomplete line.
func (l *lines) next() ([]byte, error) {
	l.buffer = l.buffer[:copy(l.buffer, l.buffer[l.returned:])]
	l.returned = 0
	if cap(l.buffer) == 0 {
		l.buffer = make([]byte, 0, maxLine+1)
	}
	searched := 0
	for {
		if end := bytes.IndexByte(l.buffer[searched:], '\n'); end >= 0 {
			line := l.buffer[:searched+end]
			l.returned = len(line) + 1
			if !l.skipping {
				return line, nil
			}
			l.skipping = false
			l.buffer = l.buffer[:copy(l.buffer, l.buffer[l.returned:])]
			l.returned, searched = 0, 0
			continue
		}
		searched = len(l.buffer)
		if searched == cap(l.buffer) {
			l.skipping = true
			l.buffer = l.buffer[:0]
			searched = 0
		}
		n, err := l.file.Read(l.buffer[len(l.buffer):cap(l.buffer)])
		l.buffer = l.buffer[:len(l.buffer)+n]
		if n == 0 && err == nil {
			err = io.ErrNoProgress
		}
		if n == 0 {
			return nil, err
		}
	}
}

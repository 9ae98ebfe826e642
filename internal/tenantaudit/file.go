// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// extension is the suffix of the names of the files of streams.
const extension = ".jsonl"

func fileOf(stream Stream) string { return string(stream) + extension }

var errNotRegular = errors.New("not a regular file: remove it")

// checkRegular returns an error if a file exists and is not regular, such as a symbolic link.
func checkRegular(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", name, errNotRegular)
	}
	return nil
}

// file is an open file of a stream.
type file interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
}

// openFile opens a file for reading and appending, and creates it if it does not exist. It does not
// follow a symbolic link.
func openFile(root *os.Root, name string) (file, error) {
	if err := checkRegular(root, name); err != nil {
		return nil, err
	}
	// With O_NONBLOCK, the call does not block if the name now belongs to a named pipe.
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, fileMode)
}

// syncNames syncs a directory, so that the names of new files are on the disk.
func syncNames(root *os.Root) error {
	directory, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// isSameFile reports whether a name refers to an open file.
func isSameFile(root *os.Root, name string, f interface{ Stat() (fs.FileInfo, error) }) bool {
	named, err := root.Lstat(name)
	if err != nil || !named.Mode().IsRegular() {
		return false
	}
	opened, err := f.Stat()
	return err == nil && os.SameFile(named, opened)
}

// streamFile is the open file of a stream.
type streamFile struct {
	file

	name    string
	size    int64
	synced  int64 // the size that is known to be on the disk
	damaged bool  // the file must be opened again
}

// openStream opens the file of a stream. If the last line of the file is incomplete, for example
// after a crash, it appends a newline, so that the next record begins a new line.
func (s *Streams) openStream(stream Stream) (*streamFile, error) {
	name := fileOf(stream)
	opened, err := s.options.open(s.root, name)
	if err != nil {
		return nil, err
	}
	f := &streamFile{file: opened, name: name}
	if err := f.begin(s.root); err != nil {
		f.close()
		return nil, err
	}
	s.unsynced = s.unsynced || f.size == 0
	return f, nil
}

func (f *streamFile) begin(root *os.Root) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !isSameFile(root, f.name, f) {
		return fmt.Errorf("%s: %w", f.name, errNotRegular)
	}
	f.size, f.synced = info.Size(), info.Size()
	if f.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, f.size-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		return f.append([]byte{'\n'})
	}
	return nil
}

// isCurrent reports whether the file is not damaged and still has its name.
func (f *streamFile) isCurrent(root *os.Root) bool { return !f.damaged && isSameFile(root, f.name, f) }

// append appends lines. The lines MUST be complete.
func (f *streamFile) append(lines []byte) error {
	n, err := f.Write(lines)
	f.size += int64(n)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	return err
}

// rollback removes the part of the file that is not synced. The next write opens the file again. If
// rollback cannot remove the part, the last line of the file may be incomplete until then.
func (f *streamFile) rollback() {
	f.damaged = true
	_ = f.Truncate(f.synced)
}

func (f *streamFile) close() { _ = f.Close() } // each line has been synced

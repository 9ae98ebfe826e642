// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// renamedFormat is the format of the time in the name of a renamed file.
const renamedFormat = "2006-01-02T15-04-05.000000000"

var errFileLocked = errors.New("another process writes the file: set usage.file.path to a file of this process only")

// File is a [Target] that appends records to a file. It renames the file before the file exceeds
// its maximum size. Another program may rename the file too.
type File struct {
	path    string
	maxSize int64
	backups int

	mu   sync.Mutex
	file *os.File // locked, or nil
	torn bool     // the last line of the file may be incomplete
}

// NewFile returns a target that writes to the file at path. It retains the given number of renamed
// files, or all of them if backups is 0.
func NewFile(path string, megabytes, backups int) *File {
	return &File{
		path:    path,
		maxSize: int64(megabytes) << 20,
		backups: backups,
	}
}

// Send implements [Target]. It returns after the records are on the disk.
func (f *File) Send(_ context.Context, lines []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := f.open()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 && size+int64(len(lines)) > f.maxSize {
		if err := f.rename(); err != nil {
			return err
		}
		if info, err = f.open(); err != nil {
			return err
		}
	}
	if f.torn && endsWithinLine(f.file, info) {
		lines = append([]byte{'\n'}, lines...)
	}
	f.torn = true // in case the write fails
	if _, err := f.file.Write(lines); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.torn = false
	return nil
}

// open opens the file if it is not open, or if another program has renamed or removed it.
func (f *File) open() (os.FileInfo, error) {
	if f.file != nil {
		info, err := f.file.Stat()
		if at, failed := os.Stat(f.path); err == nil && failed == nil && os.SameFile(info, at) {
			return info, nil
		}
		_ = f.file.Close()
		f.file = nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o750); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600) // #nosec G304 -- the configuration names it
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // #nosec G115 -- a descriptor
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errFileLocked
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(f.path)) // the file may be new
	}
	info, failed := file.Stat()
	if err = errors.Join(err, failed); err != nil {
		_ = file.Close()
		return nil, err
	}
	f.file = file
	f.torn = true
	return info, nil
}

// rename renames the file and removes the oldest renamed files above the limit.
func (f *File) rename() error {
	extension := filepath.Ext(f.path)
	prefix := strings.TrimSuffix(f.path, extension) + "-"
	if err := os.Rename(f.path, prefix+time.Now().UTC().Format(renamedFormat)+extension); err != nil {
		return err
	}
	_ = f.file.Close()
	f.file = nil
	directory := filepath.Dir(f.path)
	entries, err := os.ReadDir(directory)
	if err != nil || f.backups == 0 {
		return err
	}
	var renamed []string
	for _, e := range entries {
		path := filepath.Join(directory, e.Name())
		at, isFile := strings.CutPrefix(path, prefix)
		at, hasExtension := strings.CutSuffix(at, extension)
		if _, err := time.Parse(renamedFormat, at); isFile && hasExtension && err == nil {
			renamed = append(renamed, path)
		}
	}
	slices.Sort(renamed)
	for _, path := range renamed[:max(0, len(renamed)-f.backups)] {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// endsWithinLine reports whether the last line of a file is incomplete, for example after a crash.
func endsWithinLine(file *os.File, info os.FileInfo) bool {
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err := file.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}

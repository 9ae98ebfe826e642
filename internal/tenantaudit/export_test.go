// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// MaxLine is the maximum length of a line in bytes.
const MaxLine = maxLine

// WithMaxFollow sets the maximum time for which a stream is followed.
func WithMaxFollow(o Options, most time.Duration) Options {
	o.maxFollow = most
	return o
}

// Faults make operations on the files of streams fail.
type Faults struct {
	// Room is the number of bytes that can be written before the disk is full. If negative, there is
	// no limit.
	Room atomic.Int64
	// Sync, Truncate and SyncNames make these operations fail.
	Sync, Truncate, SyncNames atomic.Bool
	// Hold blocks syncs until the channel closes, like a disk that does not respond.
	Hold atomic.Pointer[chan struct{}]
	// NameSyncs is the number of syncs of the directory.
	NameSyncs atomic.Int64
	// Syncs is the number of syncs of files. Opened is the number of open files. MostOpened is the
	// maximum of Opened.
	Syncs, Opened, MostOpened atomic.Int64
}

// Use returns options that make streams use the faults.
func (f *Faults) Use(o Options) Options {
	f.Room.Store(-1)
	o.closeWait = 50 * time.Millisecond
	o.open = func(root *os.Root, name string) (file, error) {
		opened, err := openFile(root, name)
		if err != nil {
			return nil, err
		}
		f.MostOpened.Store(max(f.MostOpened.Load(), f.Opened.Add(1)))
		return &faultyFile{opened, f}, nil
	}
	o.syncNames = func(root *os.Root) error {
		f.NameSyncs.Add(1)
		if f.SyncNames.Load() {
			return fs.ErrInvalid
		}
		return syncNames(root)
	}
	return o
}

type faultyFile struct {
	file

	faults *Faults
}

func (f *faultyFile) Write(text []byte) (int, error) {
	room := f.faults.Room.Load()
	if room < 0 || int64(len(text)) <= room {
		if room >= 0 {
			f.faults.Room.Add(-int64(len(text)))
		}
		return f.file.Write(text)
	}
	n, err := f.file.Write(text[:room])
	f.faults.Room.Store(0)
	if err == nil {
		err = fs.ErrInvalid
	}
	return n, err
}

func (f *faultyFile) Sync() error {
	f.faults.Syncs.Add(1)
	if hold := f.faults.Hold.Load(); hold != nil {
		<-*hold
	}
	if f.faults.Sync.Load() {
		return fs.ErrInvalid
	}
	return f.file.Sync()
}

func (f *faultyFile) Truncate(size int64) error {
	if f.faults.Truncate.Load() {
		return fs.ErrInvalid
	}
	return f.file.Truncate(size)
}

func (f *faultyFile) Close() error {
	f.faults.Opened.Add(-1)
	return f.file.Close()
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/lru"
)

// maxOpen is the maximum number of open files of streams.
const maxOpen = 256

// syncers is the maximum number of concurrent syncs. A file system can combine concurrent syncs.
const syncers = 16

const (
	directoryMode = 0o700
	fileMode      = 0o600
)

// Options configure [Streams].
type Options struct {
	// Directory is the path of the directory with the files. It is created if it does not exist.
	// Required.
	Directory string
	// MaxBytes is the size at which a file is rotated. Required.
	MaxBytes int64
	// MaxBackups is the maximum number of rotated files of a stream. If 0, there is no limit.
	MaxBackups int
	// MaxAge is how long a file is retained after its last record. If 0, there is no limit.
	MaxAge time.Duration
	// MaxTotalBytes is the total size of all files above which rotated files are deleted. If 0,
	// there is no limit.
	MaxTotalBytes int64
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time

	open      func(*os.Root, string) (file, error) // for tests
	syncNames func(*os.Root) error                 // for tests
	closeWait time.Duration                        // for tests
	maxFollow time.Duration                        // for tests
}

// closeWait is the maximum time for which the shutdown of a server waits for a disk that does not
// respond.
const closeWait = 10 * time.Second

// Streams stores the records of streams in a directory. Each stream has one current file, and
// rotated files with the time of the rotation in their names. No file is read or written through a
// symbolic link. Safe for concurrent use.
//
// Upstream's rotation (lumberjack, v2.2.1) is not used. It cannot sync a file, it follows symbolic
// links, and for each stream it starts a goroutine and reads the whole directory.
type Streams struct {
	options Options
	root    *os.Root
	lock    *flock.Flock
	readers readers

	semaphore chan struct{} // contains a value while the fields below are in use
	open      *lru.Cache    // maps a Stream to a *streamFile
	lastPrune time.Time
	expired   map[string]bool // the files that were too old at the last check
	bytesLeft int64           // bytes that can be written before the total size is checked again
	closed    bool
	// unsynced specifies whether the directory entries of new files may not be on the disk yet.
	unsynced bool
}

var (
	errDirectoryInUse = errors.New("another process writes audit streams into the directory: use another directory")
	errClosed         = errors.New("the server no longer writes audit streams")
)

// lockFile is the name of the file that the process that writes the streams locks.
const lockFile = "lock"

// Open opens the streams in a directory. Only one process can have the streams of a directory open.
func Open(o Options) (*Streams, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.open == nil {
		o.open = openFile
	}
	if o.syncNames == nil {
		o.syncNames = syncNames
	}
	if o.maxFollow == 0 {
		o.maxFollow = maxFollow
	}
	if o.closeWait == 0 {
		o.closeWait = closeWait
	}
	if err := prepare(o.Directory); err != nil {
		return nil, fmt.Errorf("audit streams: %w", err)
	}
	root, err := os.OpenRoot(o.Directory)
	if err != nil {
		return nil, fmt.Errorf("audit streams: %w", err)
	}
	if err := checkRegular(root, lockFile); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	lock := flock.New(filepath.Join(o.Directory, lockFile), flock.SetPermissions(fileMode))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("audit streams: %w", err), root.Close())
	case !locked:
		return nil, errors.Join(fmt.Errorf("audit streams: %s: %w", o.Directory, errDirectoryInUse), root.Close())
	}
	s := &Streams{
		options:   o,
		root:      root,
		lock:      lock,
		readers:   readers{active: map[readerKey]int{}},
		semaphore: make(chan struct{}, 1),
	}
	s.open = lru.NewWithEvictionFunc(maxOpen, func(_ lru.Key, value any) { value.(*streamFile).close() })
	return s, nil
}

var (
	errLink            = errors.New("a symbolic link: set the directory to which it leads")
	errSharedDirectory = errors.New("other users can access the directory and it has other files: use an empty directory")
)

// prepare creates a directory that other users cannot access. It changes the mode of an existing
// directory only if the directory is empty or contains a lock file of audit streams.
func prepare(directory string) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(directory)), directoryMode); err != nil {
		return err
	}
	if err := os.Mkdir(directory, directoryMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(filepath.Clean(directory))
	switch {
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s: %w", directory, errLink)
	case info.Mode().Perm()&^directoryMode == 0:
		return nil
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lockFile }) {
		return fmt.Errorf("%s: %w", directory, errSharedDirectory)
	}
	if err := os.Chmod(directory, directoryMode); err != nil { // #nosec G302 -- a directory
		return fmt.Errorf("other users can access the directory, set its mode to 0700: %w", err)
	}
	return nil
}

// Directory returns the directory of the streams.
func (s *Streams) Directory() string { return s.options.Directory }

// begin waits until no other call writes to the streams. The caller MUST call end if the error is
// nil.
func (s *Streams) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case s.semaphore <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the disk does not respond: %w", context.Cause(ctx))
	}
}

func (s *Streams) end() { <-s.semaphore }

// Close closes the files. If the disk does not respond, it returns an error after 10 s.
func (s *Streams) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.closeWait)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("close the audit streams: %w", err)
	}
	defer s.end()
	if s.closed {
		return nil
	}
	s.closed = true
	s.open.Clear()
	return errors.Join(s.lock.Close(), s.root.Close())
}

// LostError reports the streams whose files could not be opened. The records of all other streams
// have been stored.
type LostError struct {
	// Streams maps each lost stream to its error.
	Streams map[Stream]error
}

// Error returns the errors of the streams.
func (e *LostError) Error() string {
	return "audit streams: " + errors.Join(slices.Collect(maps.Values(e.Streams))...).Error()
}

// Write stores records. If it returns nil, all records are on the disk. If it returns a
// [*LostError], all records of the other streams are on the disk. After any other error, the caller
// may write all records again, and records that were stored before the error then exist twice. If
// ctx ends, the records may still be stored later.
func (s *Streams) Write(ctx context.Context, all []Placed) error {
	lines := map[Stream][]byte{}
	var order []Stream
	for _, placed := range all {
		text, err := json.Marshal(placed.Record)
		if err != nil {
			return fmt.Errorf("audit streams: %w", err)
		}
		if lines[placed.Stream] == nil {
			order = append(order, placed.Stream)
		}
		lines[placed.Stream] = append(append(lines[placed.Stream], text...), '\n')
	}
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("audit streams: %w", err)
	}
	result := make(chan error, 1)
	go func() {
		defer s.end()
		result <- s.writeAll(order, lines)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("audit streams: the disk does not respond: %w", context.Cause(ctx))
	}
}

// writeAll appends lines to streams. The caller must have called begin.
func (s *Streams) writeAll(streams []Stream, lines map[Stream][]byte) error {
	if s.closed {
		return errClosed
	}
	s.pruneIfDue()
	lost := &LostError{Streams: map[Stream]error{}}
	for part := range slices.Chunk(streams, maxOpen) { // no file of a part is evicted before its sync
		if err := s.write(part, lines, lost); err != nil {
			return fmt.Errorf("audit streams: %w", err)
		}
	}
	size := 0
	for _, text := range lines {
		size += len(text)
	}
	s.shrink(int64(size))
	if len(lost.Streams) > 0 {
		return lost
	}
	return nil
}

// isDiskError reports whether an error affects all streams.
func isDiskError(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EMFILE, syscall.ENFILE,
	}, func(of error) bool { return errors.Is(err, of) })
}

// write appends lines to streams and syncs their files. After an error, it removes the appended
// lines. It adds each stream whose file cannot be opened to lost. The caller must have called
// begin.
func (s *Streams) write(streams []Stream, lines map[Stream][]byte, lost *LostError) (err error) {
	written := make([]*streamFile, 0, len(streams))
	defer func() {
		for _, f := range written {
			if err != nil {
				f.rollback()
			} else {
				f.synced = f.size
			}
		}
	}()
	for _, stream := range streams {
		f, err := s.file(stream, int64(len(lines[stream])))
		if err != nil && !isDiskError(err) {
			lost.Streams[stream] = err
			continue
		}
		if err != nil {
			return err
		}
		written = append(written, f)
		if err := f.append(lines[stream]); err != nil {
			return err
		}
	}
	var syncing errgroup.Group
	syncing.SetLimit(syncers)
	for _, f := range written {
		syncing.Go(f.Sync)
	}
	if err := syncing.Wait(); err != nil {
		return err
	}
	return s.syncNewNames()
}

// syncNewNames syncs the directory if it has a new file. Otherwise, the file could be lost in a
// power failure. A rotation also creates a new file. The caller must have called begin.
func (s *Streams) syncNewNames() error {
	if !s.unsynced {
		return nil
	}
	err := s.options.syncNames(s.root)
	s.unsynced = err != nil
	return err
}

// file returns the open file of a stream. It rotates the file first if room more bytes would exceed
// MaxBytes. The caller must have called begin.
func (s *Streams) file(stream Stream, room int64) (*streamFile, error) {
	if found, ok := s.open.Get(stream); ok {
		f := found.(*streamFile)
		if f.isCurrent(s.root) && (f.size == 0 || f.size+room <= s.options.MaxBytes) {
			return f, nil
		}
		s.open.Remove(stream)
	}
	f, err := s.openStream(stream)
	if err != nil {
		return nil, err
	}
	if f.size > 0 && f.size+room > s.options.MaxBytes {
		f.close()
		if err := s.rotate(stream); err != nil {
			return nil, err
		}
		if f, err = s.openStream(stream); err != nil {
			return nil, err
		}
	}
	s.open.Add(stream, f)
	return f, nil
}

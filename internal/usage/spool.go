// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	spoolSuffix = ".jsonl"
	spoolTemp   = ".tmp"
	lockName    = "lock"

	// maxSpoolFile is the maximum size of a file of the spool, in bytes. The records of 100,000
	// tenants need 40 MB.
	maxSpoolFile = 256 << 20
)

var errSpoolLocked = errors.New("another process uses the directory: set usage.directory to a directory of this " +
	"process only")

// spool is a directory with the records that are not acknowledged yet. It has one file for each
// process and hour. Files are replaced atomically, so after a crash a file has the content of one
// write. Safe for concurrent use.
type spool struct {
	directory string
	// create creates a file or truncates it.
	create func(name string) (spoolFile, error)

	mu       sync.Mutex
	lockFile *os.File
	writes   map[string]uint64 // the number of writes of each file by this process
}

type spoolFile interface {
	io.WriteCloser
	Sync() error
}

// spoolEntry is a file of the spool.
type spoolEntry struct {
	name    string
	started int64 // start of the process, in nanoseconds since 1970
	hour    int32
	size    int64
	version uint64 // the number of writes of the file by this process
}

func newSpool(directory string) *spool {
	return &spool{
		directory: directory,
		writes:    map[string]uint64{},
		create: func(name string) (spoolFile, error) {
			return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // #nosec G304 -- in our directory
		},
	}
}

// open creates the directory and locks it until the process ends or close is called. It removes
// incomplete files of earlier processes.
func (s *spool) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockFile != nil {
		return nil
	}
	if err := os.MkdirAll(s.directory, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(s.directory, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { // #nosec G115 -- a descriptor
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errSpoolLocked
		}
		return err
	}
	s.lockFile = file
	unfinished, err := filepath.Glob(filepath.Join(s.directory, "*"+spoolSuffix+spoolTemp))
	for _, name := range unfinished {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// close unlocks the directory.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockFile != nil {
		_ = s.lockFile.Close()
		s.lockFile = nil
	}
}

func spoolName(started time.Time, hour int32) string {
	return fmt.Sprintf("%d-%d%s", started.UnixNano(), hour, spoolSuffix)
}

// parseSpoolName returns the start time and the hour in a name that [spoolName] returned.
func parseSpoolName(name string) (started int64, hour int32, ok bool) {
	stem, isFile := strings.CutSuffix(name, spoolSuffix)
	first, second, both := strings.Cut(stem, "-")
	if !isFile || !both {
		return 0, 0, false
	}
	started, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	number, err := strconv.ParseInt(second, 10, 32)
	if err != nil || number < 0 || started < 0 || spoolName(time.Unix(0, started), int32(number)) != name {
		return 0, 0, false
	}
	return started, int32(number), true
}

// write replaces the file of a process and an hour.
func (s *spool) write(started time.Time, hour int32, lines []byte) error {
	return s.writeFile(spoolName(started, hour), lines)
}

// writeFile replaces a file. It returns after the file and its name are on the disk.
func (s *spool) writeFile(name string, lines []byte) (err error) {
	if err := s.open(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.directory, name)
	file, err := s.create(path + spoolTemp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path + spoolTemp)
		}
	}()
	_, err = file.Write(lines)
	if synced := file.Sync(); err == nil {
		err = synced
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err = os.Rename(path+spoolTemp, path); err != nil {
		return err
	}
	s.writes[name]++
	return syncDirectory(s.directory)
}

func syncDirectory(path string) error {
	directory, err := os.Open(path) // #nosec G304 -- the configuration names it
	if err != nil {
		return err
	}
	defer func() { _ = directory.Close() }()
	return directory.Sync()
}

// files returns the files of the spool, sorted by hour and by start of the process.
func (s *spool) files() ([]spoolEntry, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(s.directory)
	if err != nil {
		return nil, err
	}
	var all []spoolEntry
	for _, e := range entries {
		started, hour, ok := parseSpoolName(e.Name())
		info, err := e.Info()
		if !ok || err != nil || !info.Mode().IsRegular() {
			continue
		}
		all = append(all, spoolEntry{
			name:    e.Name(),
			started: started,
			hour:    hour,
			size:    info.Size(),
			version: s.writes[e.Name()],
		})
	}
	slices.SortFunc(all, func(a, b spoolEntry) int {
		return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.started, b.started))
	})
	return all, nil
}

// read returns the content of a file. It returns nothing for a file that is larger than
// maxSpoolFile.
func (s *spool) read(f *spoolEntry) ([]byte, error) {
	if f.size > maxSpoolFile {
		return nil, nil
	}
	file, err := os.Open(filepath.Join(s.directory, f.name)) // #nosec G304 -- in our directory
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxSpoolFile))
}

// remove removes a file, unless this process has written the file since f was listed.
func (s *spool) remove(f *spoolEntry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes[f.name] != f.version {
		return nil
	}
	delete(s.writes, f.name)
	if err := os.Remove(filepath.Join(s.directory, f.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDirectory(s.directory)
}

// batches divides lines into parts of at most limit bytes. A line that is longer than limit is a
// separate part.
func batches(lines []byte, limit int) (all [][]byte) {
	for len(lines) > 0 {
		end := len(lines)
		if end > limit {
			if at := bytes.LastIndexByte(lines[:limit], '\n'); at >= 0 {
				end = at + 1
			} else if at := bytes.IndexByte(lines, '\n'); at >= 0 {
				end = at + 1
			}
		}
		all = append(all, lines[:end])
		lines = lines[end:]
	}
	return all
}

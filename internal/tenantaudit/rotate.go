// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// rotationSeparator separates the name of a stream from the time of a rotation. The name of a
// stream does not contain it.
const rotationSeparator = "@"

// rotationTime is the format of the time in the name of a rotated file. Names in this format sort
// by time.
const rotationTime = "20060102T150405.000000000Z"

// pruneInterval is the interval at which the ages of all files are checked.
const pruneInterval = time.Hour

// backupOf returns the name of the file of a stream that is rotated at the given time.
func backupOf(stream Stream, at time.Time) string {
	return string(stream) + rotationSeparator + at.UTC().Format(rotationTime) + extension
}

// parseName returns the stream of a file and the time of its rotation. The time is zero if the file
// has not been rotated.
func parseName(name string) (stream Stream, rotated time.Time, ok bool) {
	base, found := strings.CutSuffix(name, extension)
	if !found || base == "" {
		return "", time.Time{}, false
	}
	text, at, found := strings.Cut(base, rotationSeparator)
	if !found {
		return Stream(text), time.Time{}, true
	}
	rotated, err := time.Parse(rotationTime, at)
	return Stream(text), rotated, err == nil && text != ""
}

// names returns the sorted names in a directory.
func names(root *os.Root) ([]string, error) {
	directory, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	all, err := directory.Readdirnames(-1)
	err = errors.Join(err, directory.Close())
	slices.Sort(all)
	return all, err
}

// backups returns the names of the rotated files of a stream, oldest first.
func backups(root *os.Root, stream Stream) (found []string, err error) {
	all, err := names(root)
	for _, name := range all {
		if of, rotated, ok := parseName(name); ok && of == stream && !rotated.IsZero() {
			found = append(found, name)
		}
	}
	return found, err
}

// rotate renames the file of a stream and deletes the oldest rotated files above MaxBackups. The
// caller MUST have closed the file.
func (s *Streams) rotate(stream Stream) error {
	old, err := backups(s.root, stream)
	if err != nil {
		return err
	}
	at := s.options.Now()
	if len(old) > 0 { // the clock may have jumped back
		if _, last, _ := parseName(old[len(old)-1]); !at.After(last) {
			at = last.Add(1)
		}
	}
	name := backupOf(stream, at)
	if err := s.root.Rename(fileOf(stream), name); err != nil {
		return err
	}
	if limit := s.options.MaxBackups; limit > 0 && len(old) >= limit {
		for _, name := range old[:len(old)+1-limit] {
			if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// pruneIfDue deletes the files that are too old, including the files of deleted tenants. Because
// the clock can be wrong, it deletes a file only if the file was already too old at the previous
// check, which was usually an hour before. The caller must have called begin.
func (s *Streams) pruneIfDue() {
	now := s.options.Now()
	if s.options.MaxAge == 0 || now.Sub(s.lastPrune) < pruneInterval && !now.Before(s.lastPrune) {
		return
	}
	s.lastPrune = now
	all, err := s.stored()
	if err != nil {
		return // the next call tries again
	}
	before := s.expired
	s.expired = map[string]bool{}
	for _, f := range all {
		if now.Sub(f.changed) <= s.options.MaxAge {
			continue
		}
		if !before[f.name] {
			s.expired[f.name] = true
			continue
		}
		if f.name == fileOf(f.stream) {
			s.open.Remove(f.stream)
		}
		_ = s.root.Remove(f.name) // the next call tries again
	}
}

// storedFile is a file of a stream in the directory.
type storedFile struct {
	name      string
	stream    Stream
	isRotated bool
	size      int64
	changed   time.Time
}

// stored returns the files of streams, sorted by name. It ignores other files in the directory.
func (s *Streams) stored() (found []storedFile, err error) {
	all, err := names(s.root)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		stream, rotated, ok := parseName(name)
		if !ok || !stream.isValid() {
			continue
		}
		info, err := s.root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		found = append(found, storedFile{
			name:      name,
			stream:    stream,
			isRotated: !rotated.IsZero(),
			size:      info.Size(),
			changed:   info.ModTime(),
		})
	}
	return found, nil
}

// shrink deletes rotated files if the total size of all files exceeds MaxTotalBytes. It deletes the
// oldest file of the largest stream first. written is the number of bytes written since the last
// call. The caller must have called begin.
func (s *Streams) shrink(written int64) {
	s.bytesLeft -= written
	if s.options.MaxTotalBytes == 0 || s.bytesLeft > 0 {
		return
	}
	all, err := s.stored()
	if err != nil {
		return // the next call tries again
	}
	var total int64
	sizes := map[Stream]int64{}
	rotated := map[Stream][]storedFile{}
	for _, f := range all {
		total += f.size
		sizes[f.stream] += f.size
		if f.isRotated {
			rotated[f.stream] = append(rotated[f.stream], f)
		}
	}
	for total > s.options.MaxTotalBytes && len(rotated) > 0 {
		largest := slices.MaxFunc(slices.Collect(maps.Keys(rotated)), func(a, b Stream) int {
			return cmp.Compare(sizes[a], sizes[b])
		})
		oldest := rotated[largest][0]
		_ = s.root.Remove(oldest.name) // the next call tries again
		total -= oldest.size
		sizes[largest] -= oldest.size
		if rotated[largest] = rotated[largest][1:]; len(rotated[largest]) == 0 {
			delete(rotated, largest)
		}
	}
	// If no rotated file is left, the next check is made when a new rotated file can exist.
	s.bytesLeft = max(s.options.MaxTotalBytes-total, s.options.MaxBytes)
}

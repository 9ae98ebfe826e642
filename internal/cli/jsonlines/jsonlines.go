// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonlines reads files with one JSON object on each line, such as usage records and
// audit streams. It also reads rotated and compressed files.
package jsonlines

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MaxLine is the maximum length of a line in bytes, without the line end. It limits the memory
// that a reader uses.
const MaxLine = 64 << 10

const (
	extension           = ".jsonl"
	extensionCompressed = extension + ".gz"
)

// ErrNoFiles reports that a directory contains no matching file.
var ErrNoFiles = errors.New("the directory contains no such *.jsonl or *.jsonl.gz files")

// errNotRegular reports that a file is a device, a pipe or a directory.
var errNotRegular = errors.New("not a regular file")

// ErrLongLine reports that a line is longer than [MaxLine].
var ErrLongLine = fmt.Errorf("the line is longer than %d bytes", MaxLine)

// Files returns the paths of the *.jsonl and *.jsonl.gz files in a directory for which accept
// returns true. accept receives the file name without the extension. Rotated files come first,
// oldest first, because their names contain "-" and a time before the extension. The error wraps
// [ErrNoFiles] if no file matches.
func Files(dir string, accept func(name string) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		name, ok := strings.CutSuffix(strings.TrimSuffix(entry.Name(), ".gz"), extension)
		if ok && accept(name) {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoFiles)
	}
	slices.Sort(paths) // "-" sorts before "."
	return paths, nil
}

// Read calls f for each non-empty line of a file. Line numbers begin at 1. text is valid only
// until f returns. If a line is longer than [MaxLine], f receives the beginning of the line and
// [ErrLongLine]. Read stops if f returns an error, and returns this error. Read's own errors
// contain the path.
func Read(path string, f func(number int, text []byte, err error) error) (err error) {
	file, err := open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	in := io.Reader(file)
	if strings.HasSuffix(path, extensionCompressed) {
		unzipped, err := gzip.NewReader(file)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		in = unzipped
	}
	return Lines(in, f, func(err error) error { return fmt.Errorf("%s: %w", path, err) })
}

// Lines is like [Read], but reads from in. It wraps read errors with wrap.
func Lines(in io.Reader, f func(number int, text []byte, err error) error, wrap func(error) error) error {
	lines := bufio.NewReaderSize(in, MaxLine+1)
	for number := 1; ; number++ {
		text, err := lines.ReadSlice('\n')
		var tooLong error
		if errors.Is(err, bufio.ErrBufferFull) {
			tooLong, text = ErrLongLine, bytes.Clone(text)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if text = bytes.TrimSpace(text); len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if failed := f(number, text, tooLong); failed != nil {
				return failed
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return wrap(err)
		}
	}
}

// open opens a regular file. It returns an error for a pipe, because opening a pipe would block.
func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	return os.Open(path) // #nosec G304 -- the caller names the directory
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An entry is a file in an archive. Its content is that of the file at path, or data if path is
// empty. An entry whose name ends with a slash is a folder.
type entry struct {
	name, path string
	data       []byte
	mode       fs.FileMode
}

func (e entry) open() (io.ReadCloser, int64, error) {
	if e.path == "" {
		return io.NopCloser(bytes.NewReader(e.data)), int64(len(e.data)), nil
	}
	f, err := os.Open(e.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// buildArchive writes the archive of a program for one platform.
func (r *release) buildArchive(a artifact) error {
	p := a.platforms[0]
	entries := []entry{
		{name: license, path: filepath.Join(r.source, license), mode: 0o644},
		{name: binaryName(a.program, p), path: r.binary(a.program, p), mode: 0o755},
	}
	if a.program == plugin && p.os != "windows" {
		entries = append(entries, entry{
			name: completion,
			path: filepath.Join(r.source, "cmd", plugin, completion),
			mode: 0o755,
		})
	}
	return writeFile(filepath.Join(r.dist, a.file), func(w io.Writer) error {
		if strings.HasSuffix(a.file, ".zip") {
			return writeZip(w, entries, r.time)
		}
		return writeTarGz(w, entries, r.time)
	})
}

// writeTarGz writes an archive whose bytes depend only on the entries and the time. [writeZip] does
// the same.
func writeTarGz(w io.Writer, entries []entry, when time.Time) error {
	z := gzip.NewWriter(w)
	if err := writeTar(z, entries, when); err != nil {
		return err
	}
	return z.Close()
}

func writeTar(w io.Writer, entries []entry, when time.Time) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		content, size, err := e.open()
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name:     e.name,
			Mode:     int64(e.mode),
			Size:     size,
			ModTime:  when,
			Typeflag: tar.TypeReg,
			Format:   tar.FormatUSTAR,
		}
		if strings.HasSuffix(e.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := copyEntry(header, t, content); err != nil {
			return err
		}
	}
	return t.Close()
}

func copyEntry(header *tar.Header, t *tar.Writer, content io.ReadCloser) error {
	defer func() { _ = content.Close() }()
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}

func writeZip(w io.Writer, entries []entry, when time.Time) error {
	z := zip.NewWriter(w)
	for _, e := range entries {
		content, _, err := e.open()
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: when.UTC()}
		header.SetMode(e.mode)
		f, err := z.CreateHeader(header)
		if err == nil {
			_, err = io.Copy(f, content)
		}
		_ = content.Close()
		if err != nil {
			return err
		}
	}
	return z.Close()
}

// filesUnder returns the files of a folder as entries, sorted by name. The names begin with prefix.
func filesUnder(folder, prefix string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		entries = append(entries, entry{name: prefix + filepath.ToSlash(name), path: path, mode: 0o644})
		return err
	})
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries, err
}

// writeFile creates a file with the content that write writes.
func writeFile(path string, write func(io.Writer) error) error {
	//nolint:gosec // the files of a release are public
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

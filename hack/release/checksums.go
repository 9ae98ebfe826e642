// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

func digestOf(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // a file of the release, whose folder the user specifies
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digests returns the SHA-256 digest of each file in a folder, by the name of the file. It rejects
// symbolic links and other special files, because they could refer to files outside the folder.
func digests(folder string) (map[string]string, error) {
	var names []string
	var problems []error
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if !d.Type().IsRegular() {
			problems = append(problems, fmt.Errorf("%s is not a regular file", filepath.ToSlash(name)))
			return err
		}
		names = append(names, name)
		return err
	})
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	found := map[string]string{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(parallel())
	for _, name := range names {
		g.Go(func() error {
			digest, err := digestOf(filepath.Join(folder, name))
			mu.Lock()
			defer mu.Unlock()
			found[filepath.ToSlash(name)] = digest
			return err
		})
	}
	return found, g.Wait()
}

// checksums returns the lines of checksums.txt in the format of sha256sum. It omits checksums.txt
// itself and its signature.
func checksums(files map[string]string) string {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != checksumsFile && name != checksumsFile+bundleSuffix {
			fmt.Fprintf(&lines, "%s  %s\n", files[name], name)
		}
	}
	return lines.String()
}

func (r *release) buildChecksums() error {
	files, err := digests(r.dist)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.dist, checksumsFile), func(w io.Writer) error {
		_, err := io.WriteString(w, checksums(files))
		return err
	})
}

// checkChecksums returns an error for each difference between checksums.txt and the files.
func checkChecksums(text string, files map[string]string) []error {
	listed := map[string]string{}
	var problems []error
	for line := range strings.Lines(text) {
		digest, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !found || listed[name] != "" {
			problems = append(problems, fmt.Errorf("%s: the line %q is malformed or repeated", checksumsFile, line))
			continue
		}
		listed[name] = digest
		switch files[name] {
		case digest:
		case "":
			problems = append(problems, fmt.Errorf("%s is missing", name))
		default:
			problems = append(problems, fmt.Errorf("%s differs from its digest in %s", name, checksumsFile))
		}
	}
	for name := range files {
		if listed[name] == "" && name != checksumsFile && name != checksumsFile+bundleSuffix {
			problems = append(problems, fmt.Errorf("%s is not in %s", name, checksumsFile))
		}
	}
	if len(problems) == 0 && text != checksums(files) {
		problems = append(problems, fmt.Errorf("%s is not in its canonical form", checksumsFile))
	}
	return problems
}

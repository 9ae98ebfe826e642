// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package jsonlines_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/kubetenant/kubetenant/internal/cli/jsonlines"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if strings.HasSuffix(path, ".gz") {
		var b strings.Builder
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		text = b.String()
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read returns the number and the beginning of each line of a file, and the error for the line,
// if any.
func read(path string) (lines []string, err error) {
	err = jsonlines.Read(path, func(number int, text []byte, err error) error {
		line := strconv.Itoa(number) + ":" + string(text[:min(len(text), 10)])
		if err != nil {
			line += " " + err.Error()
		}
		lines = append(lines, line)
		return nil
	})
	return lines, err
}

// TestFiles checks that rotated files are listed before the current file, and that other files are
// ignored.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"usage.jsonl", "usage-2026-11-28T01-00-00.000.jsonl", "usage-2026-11-27T01-00-00.000.jsonl.gz", "usage.json",
		"usage.jsonl.tmp", "other.jsonl",
	} {
		write(t, filepath.Join(dir, name), "{}")
	}
	files, err := jsonlines.Files(dir, func(name string) bool { return strings.HasPrefix(name, "usage") })
	want := []string{
		filepath.Join(dir, "usage-2026-11-27T01-00-00.000.jsonl.gz"),
		filepath.Join(dir, "usage-2026-11-28T01-00-00.000.jsonl"),
		filepath.Join(dir, "usage.jsonl"),
	}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := jsonlines.Files(dir, func(string) bool { return false }); !errors.Is(err, jsonlines.ErrNoFiles) {
		t.Errorf("%v", err)
	}
	if _, err := jsonlines.Files(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestRead checks the line numbers in plain and compressed files. The line after a line that is too
// long is still read.
func TestRead(t *testing.T) {
	long := strings.Repeat("x", jsonlines.MaxLine+1)
	fits := strings.Repeat("y", jsonlines.MaxLine)
	text := "{1}\n\n " + "{2}\r\n" + long + long + "\n" + fits + "\n{3"
	want := []string{
		"1:{1}", "3:{2}", "4:xxxxxxxxxx the line is longer than 65536 bytes", "5:yyyyyyyyyy", "6:{3",
	}
	for _, name := range []string{"a.jsonl", "a.jsonl.gz"} {
		path := filepath.Join(t.TempDir(), name)
		write(t, path, text)
		if lines, err := read(path); err != nil || !slices.Equal(lines, want) {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}
}

// TestReadFails checks that the error contains the path if a file cannot be read to its end. It
// also checks that Read stops at the first error from f.
func TestReadFails(t *testing.T) {
	dir := t.TempDir()
	cut, text := filepath.Join(dir, "cut.jsonl.gz"), filepath.Join(dir, "text.jsonl.gz")
	pipe := filepath.Join(dir, "p.jsonl")
	write(t, cut, "{1}\n{2}\n")
	data, err := os.ReadFile(cut)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, data[:len(data)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(text, []byte("no gzip file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{cut, text, pipe, filepath.Join(dir, "none.jsonl"), dir} {
		if _, err := read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	stop := errors.New("stop")
	write(t, text, "{1}\n{2}\n")
	calls := 0
	err = jsonlines.Read(text, func(int, []byte, error) error {
		calls++
		return stop
	})
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestLinesOfABrokenStream checks that f does not receive an incomplete last line if the stream
// breaks.
func TestLinesOfABrokenStream(t *testing.T) {
	broken := errors.New("broken")
	var lines []string
	in := io.MultiReader(strings.NewReader("{1}\n{2"), iotest.ErrReader(broken))
	err := jsonlines.Lines(in, func(_ int, text []byte, _ error) error {
		lines = append(lines, string(text))
		return nil
	}, func(err error) error { return err })
	if !errors.Is(err, broken) || !slices.Equal(lines, []string{"{1}"}) {
		t.Errorf("%q, %v", lines, err)
	}
}

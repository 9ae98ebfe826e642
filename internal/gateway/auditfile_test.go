// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// openTestLog opens a log with the given rotation.
func openTestLog(t *testing.T, path string, megabytes, backups int) *logFile {
	t.Helper()
	none := 0
	log, err := openLogFile(&configv1alpha1.GatewayAudit{
		LogPath:          path,
		MaxSizeMegabytes: &megabytes,
		MaxBackups:       &backups,
		MaxAgeDays:       &none,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.retire)
	return log
}

func writeLine(t *testing.T, log *logFile, line string) {
	t.Helper()
	if _, err := log.Write([]byte(line + "\n")); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAuditLogFollowsItsPath checks that an event is written to the file that currently has the
// path, even if another program renamed, removed, replaced or truncated the previous file.
func TestAuditLogFollowsItsPath(t *testing.T) {
	t.Parallel()
	changes := map[string]func(path string) error{
		"renamed": func(path string) error { return os.Rename(path, path+".1") },
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		},
		"renamed and created": func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
		},
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"copied and truncated": func(path string) error {
			text, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".1", text, 0o600), os.Truncate(path, 0))
		},
		"replaced by a symbolic link": func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink(path+".target", path))
		},
		"in a renamed folder": func(path string) error {
			folder := filepath.Dir(path)
			return errors.Join(os.Rename(folder, folder+".old"), os.Mkdir(folder, 0o700))
		},
	}
	for what, change := range changes {
		for _, megabytes := range []int{0, 1} {
			t.Run(fmt.Sprint(what, megabytes), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "logs", "audit.log")
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				log := openTestLog(t, path, megabytes, 0)
				writeLine(t, log, "before")
				for _, line := range []string{"first", "second"} {
					if err := change(path); err != nil {
						t.Fatal(err)
					}
					writeLine(t, log, line)
					if got := readText(t, path); got != line+"\n" {
						t.Errorf("%q, want %s", got, line)
					}
					_ = os.RemoveAll(path + ".1")
					_ = os.RemoveAll(path + ".target")
					_ = os.RemoveAll(filepath.Dir(path) + ".old")
				}
			})
		}
	}
}

// TestAuditLogFailsWithoutItsFile checks that writes fail while the path cannot be opened.
func TestAuditLogFailsWithoutItsFile(t *testing.T) {
	t.Parallel()
	for what, obstacle := range map[string]func(path string) error{
		"no folder": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old") },
		"a folder": func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.Mkdir(path, 0o700))
		},
		"a broken symbolic link": func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink(filepath.Join(path+".none", "x"), path))
		},
	} {
		for _, megabytes := range []int{0, 1} {
			t.Run(fmt.Sprint(what, megabytes), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "logs", "audit.log")
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				log := openTestLog(t, path, megabytes, 0)
				writeLine(t, log, "before")
				if err := obstacle(path); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if _, err := log.Write([]byte("lost\n")); err == nil {
						t.Fatal("Write returned no error for an event that was not written")
					}
				}
				_ = os.RemoveAll(path)
				_ = os.MkdirAll(filepath.Dir(path), 0o700)
				writeLine(t, log, "after")
				if got := readText(t, path); got != "after\n" {
					t.Errorf("%q, want the event after", got)
				}
			})
		}
	}
}

// TestAuditLogRotates checks that files do not exceed their maximum size, and that no event is lost
// or split between two files.
func TestAuditLogRotates(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "audit.log")
	log := openTestLog(t, path, 1, 0)
	long := strings.Repeat("x", 100<<10)
	for i := range 35 {
		writeLine(t, log, fmt.Sprint(i, " ", long))
	}
	files, err := filepath.Glob(filepath.Join(folder, "audit*.log"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v: want 4 files", files, err)
	}
	slices.Sort(files) // sorts by time, the current file last
	var all strings.Builder
	for _, file := range files {
		text := readText(t, file)
		if len(text) > 1<<20 || len(text) < 1 {
			t.Errorf("%s has %d bytes", file, len(text))
		}
		all.WriteString(text)
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	i := 0
	for line := range strings.Lines(all.String()) {
		if line != fmt.Sprint(i, " ", long, "\n") {
			t.Fatalf("line %d begins with %.20q", i, line)
		}
		i++
	}
	if i != 35 {
		t.Errorf("%d events, want 35", i)
	}
}

// TestConcurrentWritesDuringRotation checks that concurrent writers lose no event while the log is
// rotated and another goroutine renames the file.
func TestConcurrentWritesDuringRotation(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "audit.log")
	log := openTestLog(t, path, 1, 0)
	long := strings.Repeat("x", 10<<10)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 100 {
				writeLine(t, log, fmt.Sprint(i, "-", j, " ", long))
			}
		})
	}
	all.Go(func() {
		for i := range 5 {
			_ = os.Rename(path, filepath.Join(folder, fmt.Sprint("audit-moved", i, ".log")))
		}
	})
	all.Wait()
	seen := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(folder, "audit*.log"))
	for _, file := range files {
		for line := range strings.Lines(readText(t, file)) {
			seen[line] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d different lines in %d files, want 400", len(seen), len(files))
	}
}

// TestFullDeviceIsAnError checks that a write to a full device returns an error, and that a device
// is not rotated.
func TestFullDeviceIsAnError(t *testing.T) {
	t.Parallel()
	log := openTestLog(t, "/dev/full", 1, 1)
	if log.file == nil || log.file == log.rotating {
		t.Error("the device has a rotating writer")
	}
	for range 2 {
		if _, err := log.Write([]byte("lost\n")); err == nil {
			t.Error("Write to a full device returned no error")
		}
	}
}

// TestAuditLogMustBeRotatable checks that a log that cannot be rotated cannot be opened, unless
// rotation is off.
func TestAuditLogMustBeRotatable(t *testing.T) {
	t.Parallel()
	const path = "/proc/self/comm" // not even root can write this folder
	none := 0
	config := &configv1alpha1.GatewayAudit{LogPath: path, MaxBackups: &none, MaxAgeDays: &none}
	for megabytes, want := range []string{"", "maxSizeMegabytes: 0"} {
		config.MaxSizeMegabytes = &megabytes
		log, err := openLogFile(config)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", megabytes, err, want)
		}
		if log != nil {
			log.retire()
		}
	}
}

// TestAuditLogSettings checks that new rotation settings apply to the open file, and that a
// replaced log still writes the last events of its requests.
func TestAuditLogSettings(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "audit.log")
	log := openTestLog(t, path, 0, 0)
	long := strings.Repeat("x", 600<<10)
	for range 3 {
		writeLine(t, log, long)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "*")); len(files) != 1 {
		t.Fatalf("%v: the log was rotated without a maximum size", files)
	}
	log.configure(rotation{megabytes: 1})
	writeLine(t, log, "next")
	if got := readText(t, path); got != "next\n" {
		t.Errorf("%d bytes: not rotated", len(got))
	}
	log.retire()
	writeLine(t, log, "last")
	if got := readText(t, path); got != "next\nlast\n" || log.file != nil {
		t.Errorf("%q, open: %v", got, log.file != nil)
	}
}

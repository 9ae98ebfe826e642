// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package localserver_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubetenant/kubetenant/test/localserver"
)

// fake returns the path of a program that prints the output of a ready server. It runs the shell
// commands in before and after.
func fake(t *testing.T, before, after string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server")
	script := "#!/bin/sh\n" + before +
		"\necho ready after 1s\necho server https://127.0.0.1:1\necho Stop it with Ctrl-C\n" + after + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { // #nosec G306 -- it is run
		t.Fatal(err)
	}
	return path
}

// TestStopTwice checks that Stop can be called several times.
func TestStopTwice(t *testing.T) {
	s, err := localserver.Start(t.Context(), fake(t, "trap 'exit 0' TERM", "while :; do sleep 0.05; done"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestEndedByItself checks that each Stop returns the error of a server that exited by itself.
func TestEndedByItself(t *testing.T) {
	dir := t.TempDir() // the server's second argument
	s, err := localserver.Start(t.Context(), fake(t, "", `while ! [ -e "$2/end" ]; do sleep 0.01; done; exit 3`), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Stop(); err == nil {
			t.Error("no error")
		}
	}
	for _, program := range []string{"/bin/false", "/bin/true"} { // exits before it is ready
		if s, err := localserver.Start(t.Context(), program, t.TempDir()); err == nil {
			t.Errorf("started %+v", s)
		}
	}
}

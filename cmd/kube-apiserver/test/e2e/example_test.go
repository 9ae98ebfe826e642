// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// example is a running command of the folder examples. It runs until the test ends.
type example struct {
	log    string // the path of its log
	cmd    *exec.Cmd
	exited chan struct{} // closed when err is known
	err    error
}

// startExample builds and starts the command in the given folder of a module.
func startExample(t *testing.T, module, folder string, args ...string) *example {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "example")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, folder)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "example.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	e := &example{log: file.Name(), cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	e.cmd.Stderr, e.cmd.SysProcAttr = file, localserver.EndsWithParent()
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		e.err = e.cmd.Wait()
		close(e.exited)
	}()
	t.Cleanup(func() {
		_ = e.cmd.Process.Kill()
		<-e.exited
	})
	return e
}

// logged returns the log of the example.
func (e *example) logged(t *testing.T) string {
	t.Helper()
	text := readFile(t, e.log)
	return text
}

// stop sends SIGTERM, and checks that the example exits without an error.
func (e *example) stop(t *testing.T) {
	t.Helper()
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%v: %s", err, e.logged(t))
	}
	select {
	case <-e.exited:
		if e.err != nil {
			t.Errorf("%v: %s", e.err, e.logged(t))
		}
	case <-time.After(waittest.Limit):
		t.Errorf("the example does not stop: %s", e.logged(t))
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// binDir is the environment variable with the folder of the built commands.
const binDir = "KUBETENANT_BIN"

// TestMain reports missing commands before any test runs. The tests end when their parent process
// ends, and the servers end with the tests.
func TestMain(m *testing.M) {
	if dir := os.Getenv(binDir); dir != "" {
		for _, name := range []string{
			"kube-apiserver", "kubetenant-local", "kubectl", "vanilla-kube-apiserver", "kubectl-tenant", "kubetenant-webhook",
		} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				fmt.Fprintf(os.Stderr, "%v: run make test, which builds it\n", err)
				os.Exit(1)
			}
		}
	}
	go endWithParent()
	os.Exit(m.Run())
}

// endWithParent ends this process when its parent process has ended.
func endWithParent() {
	parent := os.Getppid()
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			fmt.Fprintln(os.Stderr, "whoever started the tests is gone")
			os.Exit(1)
		}
	}
}

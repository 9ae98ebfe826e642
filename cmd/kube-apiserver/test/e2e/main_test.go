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

// binDir is the environment variable that contains the folder of the built commands.
const binDir = "KUBETENANT_BIN"

// TestMain exits before any test runs if a command is missing. It also ends the tests when their
// parent process ends. The servers end with the tests.
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

// endWithParent exits this process when its parent process has ended.
func endWithParent() {
	parent := os.Getppid()
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			fmt.Fprintln(os.Stderr, "the parent process of the tests has ended")
			os.Exit(1)
		}
	}
}

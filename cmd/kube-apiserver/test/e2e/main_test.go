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

// binDir is the variable through which the built commands are found.
const binDir = "KUBETENANT_BIN"

// TestMain says at once what is missing, and ends with whoever started it: the
// servers end with this process.
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

// endWithParent ends this process when the one that started it is gone.
func endWithParent() {
	parent := os.Getppid()
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			fmt.Fprintln(os.Stderr, "whoever started the tests is gone")
			os.Exit(1)
		}
	}
}

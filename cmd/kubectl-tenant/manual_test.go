package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

const manual = "../../docs/cli"

// TestManual: docs/cli is what the commands say about themselves. make golden writes it.
func TestManual(t *testing.T) {
	// Defaults that depend on the machine are shown as they would be written.
	t.Setenv("HOME", "~")
	t.Setenv("KUBECACHEDIR", "")
	dir := t.TempDir()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		dir = manual
	}
	if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
		t.Fatal(err)
	}
	root := newCommand()
	root.Use = "kubectl tenant"
	quieten(root)
	if err := doc.GenMarkdownTree(root, dir); err != nil {
		t.Fatal(err)
	}
	released := time.Date(2026, time.November, 22, 0, 0, 0, 0, time.UTC)
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "KUBECTL-TENANT", Section: "1", Source: "kubetenant", Manual: "kubectl tenant", Date: &released}, filepath.Join(dir, "man")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(t, manual), files(t, dir)); diff != "" {
		t.Errorf("docs/cli is not what the commands say: make golden\n%s", diff)
	}
}

// quieten leaves out the line that says when a page was generated.
func quieten(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, c := range cmd.Commands() {
		quieten(c)
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

const manual = "../../docs/cli"

// TestManual checks that docs/cli contains the help of the commands. "make golden" updates it.
func TestManual(t *testing.T) {
	// These defaults depend on the machine.
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
	released := time.Date(2026, time.November, 22, 0, 0, 0, 0, time.UTC)
	header := &doc.GenManHeader{
		Title:   "KUBECTL-TENANT",
		Section: "1",
		Source:  "kubetenant",
		Manual:  "kubectl tenant",
		Date:    &released,
	}
	generate := func(c *cobra.Command) {
		if err := doc.GenMarkdownTree(c, dir); err != nil {
			t.Fatal(err)
		}
		if err := doc.GenManTree(c, header, filepath.Join(dir, "man")); err != nil {
			t.Fatal(err)
		}
	}
	everybodys := func(hidden bool) {
		root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = hidden })
	}
	everybodys(true) // the flags of all commands have their own page
	generate(root)
	everybodys(false)
	options, _, err := root.Find([]string{"options"})
	if err != nil {
		t.Fatal(err)
	}
	generate(options)
	if diff := cmp.Diff(files(t, manual), files(t, dir)); diff != "" {
		t.Errorf("docs/cli differs from the help of the commands: run make golden\n%s", diff)
	}
}

// TestHelpFits checks that the help of each command fits the page width, and omits the flags
// that all commands accept.
func TestHelpFits(t *testing.T) {
	t.Setenv("HOME", "~")
	var commands func(c *cobra.Command) []*cobra.Command
	commands = func(c *cobra.Command) []*cobra.Command {
		all := []*cobra.Command{c}
		for _, sub := range c.Commands() {
			all = append(all, commands(sub)...)
		}
		return all
	}
	for _, c := range commands(newCommand()) {
		path := strings.Fields(c.CommandPath())[2:]   // after "kubectl tenant"
		if len(path) > 0 && path[0] == "completion" { // provided by cobra
			continue
		}
		var b bytes.Buffer
		root := newCommand()
		root.SetOut(&b)
		root.SetArgs(append(path, "--help"))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			// A command in an example may be longer, so that it can be copied.
			if len(strings.TrimRight(line, "\n")) > pageWidth && !strings.HasPrefix(line, "  kubectl ") {
				t.Errorf("%v: %d columns: %s", path, len(line)-1, line)
			}
		}
		if strings.Contains(b.String(), "--certificate-authority") {
			t.Errorf("the help of %v contains flags that all commands accept", path)
		}
	}
	var b bytes.Buffer
	root := newCommand()
	root.SetOut(&b)
	root.SetArgs([]string{"options"})
	if err := root.Execute(); err != nil || !strings.Contains(b.String(), "--kubeconfig") ||
		!strings.Contains(b.String(), "--as-group") {
		t.Errorf("options: %v\n%s", err, b.String())
	}
}

// quieten disables the generation date in the pages of a command and its subcommands.
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

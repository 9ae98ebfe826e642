// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// finding is a text and what is found in it: each as LINE:COLUMN: PROBLEM | FIX.
type finding struct {
	text string
	want []string
}

// file writes a text to a file of its owner's own.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// check validates one file. Its error says that the file could not be checked.
func check(ctx context.Context, path, kind string) ([]validate.Finding, error) {
	report, _ := validate.Files(ctx, []string{path}, validate.Options{Kind: kind})
	return report.Findings, errors.Join(report.Unread...)
}

// found returns what is found in a file, without its name.
func found(t *testing.T, path, kind string) []string {
	t.Helper()
	problems, err := check(t.Context(), path, kind)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range problems {
		p := &problems[i]
		place, is := strings.CutPrefix(p.String(), p.File+":")
		if !is || p.Line < 1 || p.Column < 1 {
			t.Errorf("%+v says %q", p, p.String())
		}
		all = append(all, place+" | "+strings.ReplaceAll(p.Fix, path, "FILE"))
	}
	return all
}

// hold compares what is found in each text with what is wanted.
func hold(t *testing.T, kind string, all map[string]finding) {
	t.Helper()
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // files are read until they stay as they are
			if diff := cmp.Diff(c.want, found(t, file(t, "file", c.text), kind)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

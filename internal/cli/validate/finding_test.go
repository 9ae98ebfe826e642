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

// finding is the text of a file with its expected findings, each as LINE:COLUMN: PROBLEM | FIX.
type finding struct {
	text string
	want []string
}

// file writes a text to a new file with mode 0600 and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// check validates one file. It returns an error if the file cannot be validated.
func check(ctx context.Context, path, kind string) ([]validate.Finding, error) {
	report, _ := validate.Files(ctx, []string{path}, validate.Options{Kind: kind})
	return report.Findings, errors.Join(report.Unread...)
}

// found returns the findings for a file, without the file name.
func found(t *testing.T, path, kind string) []string {
	t.Helper()
	problems, err := check(t.Context(), path, kind)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range problems {
		p := &problems[i]
		place, ok := strings.CutPrefix(p.String(), p.File+":")
		if !ok || p.Line < 1 || p.Column < 1 {
			t.Errorf("%+v has the text %q", p, p.String())
		}
		all = append(all, place+" | "+strings.ReplaceAll(p.Fix, path, "FILE"))
	}
	return all
}

// checkFindings checks the findings for each text.
func checkFindings(t *testing.T, kind string, all map[string]finding) {
	t.Helper()
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a reader waits until a file no longer changes
			if diff := cmp.Diff(c.want, found(t, file(t, "file", c.text), kind)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

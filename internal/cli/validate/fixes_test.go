// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFixesFit checks that each text that selects a fix still occurs in a message. Messages of
// other packages may change.
func TestFixesFit(t *testing.T) {
	var source strings.Builder
	for _, folder := range []string{"authn", "authz", "tenant", "internal/manifests", "internal/yamlfile"} {
		err := filepath.WalkDir(filepath.Join("../../..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"credentials.go", "policy.go", "certificate.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "\t\t{\"") { // a row in a table of fixes
				source.WriteString(line)
			}
		}
	}
	// Texts from encoding/json, encoding/csv and the strict decoder, and a prefix of object names.
	foreign := []string{
		"invalid character", "unexpected end", "JSON", "quote", "unknown field", "duplicate field",
		"CustomResourceDefinition/",
	}
	for name, fixes := range map[string][][2]string{
		"credentials": credentialFixes(), "policy": policyFixes(), "installed": setFixes(),
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range fixes {
				if !slices.Contains(foreign, f[0]) && !strings.Contains(source.String(), f[0]) {
					t.Errorf("no message contains %q", f[0])
				}
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"go/ast"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestRefusedCredentials checks that docs/troubleshooting.md contains the text of every error for a
// rejected credential.
func TestRefusedCredentials(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(page)), " ")
	atStart := []string{"ErrSharedAuthority", "ErrAnyName"} // errors in a configuration
	byFolder := packages(t)
	found := 0
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		if folder != "authn" && (!strings.HasPrefix(folder, "authn/") || strings.Contains(folder, "internal")) {
			continue
		}
		for name, text := range sentinels(byFolder[folder]) {
			if slices.Contains(atStart, name) {
				continue
			}
			found++
			if text, _, _ = strings.Cut(text, ","); !strings.Contains(words, text) {
				t.Errorf("docs/troubleshooting.md lacks %s.%s: %q", folder, name, text)
			}
		}
	}
	if found < 40 {
		t.Errorf("%d errors found", found)
	}
	const unowned = "the namespace of the service account has no owner"
	if !strings.Contains(words, unowned) {
		t.Errorf("docs/troubleshooting.md lacks %q", unowned)
	}
}

// sentinels returns the texts of the exported errors in files, keyed by the name of the variable.
// A text that is not a single literal is cut after its first literal.
func sentinels(files []*ast.File) map[string]string {
	all := map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Err") {
				return true
			}
			call, ok := spec.Values[0].(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			literal, ok := call.Args[0].(*ast.BasicLit)
			if sum, isBinary := call.Args[0].(*ast.BinaryExpr); isBinary {
				literal, ok = sum.X.(*ast.BasicLit) // the beginning of the text
			}
			if !ok {
				return true
			}
			if text, err := strconv.Unquote(literal.Value); err == nil {
				all[spec.Names[0].Name] = text
			}
			return true
		})
	}
	return all
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package style_test checks rules about Go code and Markdown pages that no linter checks.
package style_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxInline is the number of keyed elements that a literal may have on one line.
const maxInline = 3

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// TestKeyedLiterals checks that each keyed literal with more than three elements has one element on
// each line. It checks all modules of the repository, except generated code and testdata.
func TestKeyedLiterals(t *testing.T) {
	root := git(t, ".", "rev-parse", "--show-toplevel")[0]
	files := git(t, root, "ls-files", "--", "*.go")
	if len(files) < 500 {
		t.Fatalf("found %d files", len(files))
	}
	for _, name := range files {
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains("/"+name, "/testdata/") || generated.Match(src) {
			continue
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		line := func(p token.Pos) int { return positions.Position(p).Line }
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && isKeyed(lit) && !isUnfolded(lit, line) {
				t.Errorf("%s:%d: keyed literal with %d elements: write one a line", name, line(lit.Lbrace), len(lit.Elts))
			}
			return true
		})
	}
}

func git(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// isKeyed reports whether the literal has more than three elements, each with a key.
func isKeyed(lit *ast.CompositeLit) bool {
	for _, e := range lit.Elts {
		if _, ok := e.(*ast.KeyValueExpr); !ok {
			return false
		}
	}
	return len(lit.Elts) > maxInline
}

// isUnfolded reports whether no element shares a line with another element or with a brace.
func isUnfolded(lit *ast.CompositeLit, line func(token.Pos) int) bool {
	last := line(lit.Lbrace)
	for _, e := range lit.Elts {
		if line(e.Pos()) == last {
			return false
		}
		last = line(e.End())
	}
	return line(lit.Rbrace) != last
}

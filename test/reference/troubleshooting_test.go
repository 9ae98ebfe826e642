// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// notReasons contains the errors of the sources that are never logged as the reason for a rejected
// credential. The values explain why.
func notReasons() map[string]string {
	return map[string]string{
		"no source accepts tokens of this kind":          "the chain turns it into an abstention",
		"must have exactly one value":                    "the source returns ErrTenant instead",
		"the service user tried to log in a moment ago":  "the source returns ErrUnavailable instead",
		"the file is not valid YAML":                     "about a file that is loaded",
		"every client could assert any identity":         "about a configuration that is loaded",
		"a front proxy that asserts tenants must have a": "about a configuration that is loaded",
		"the response is a redirect":                     "the source returns ErrUnavailable instead",
		"too many concurrent requests":                   "the source returns its own error",
		"malformed response":                             "a part of the message of ErrUnreadable, or of a line of the log",
		"response too large":                             "a part of the message of ErrUnreadable, or of a line of the log",
	}
}

// TestTroubleshooting checks that docs/troubleshooting.md explains each reason for which a source
// rejects a credential. The reasons are the error variables of the packages below authn, and all
// errors about certificate subjects.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := reasonsOf(t, "../../authn")
	if len(reasons) < 50 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	isReason := func(text string) bool {
		for other := range notReasons() {
			if strings.HasPrefix(text, other) && !strings.HasPrefix(text, other+" to ") {
				return false
			}
		}
		return true
	}
	for reason, where := range reasons {
		// The page may end a long message before its colon.
		short, _, _ := strings.Cut(strings.TrimRight(reason, ", "), ": ")
		if isReason(reason) && !strings.Contains(string(page), "`"+short) {
			t.Errorf("%s: the page does not explain %q", where, reason)
		}
	}
}

// reasonsOf returns the position of each error that the files in a directory and its
// subdirectories create. The keys are the texts of the errors.
func reasonsOf(t *testing.T, root string) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "authntest" || d.Name() == "credfile"): // fixtures, and errors in loaded files
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			_, isFunc := decl.(*ast.FuncDecl)
			if isFunc && !strings.HasSuffix(path, "x509/subject.go") {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 && makesError(call.Fun) {
					if text := literal(call.Args[0]); text != "" {
						reasons[text] = files.Position(call.Pos()).String()
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return reasons
}

// makesError reports whether a function creates an error from its argument.
func makesError(f ast.Expr) bool {
	selector, ok := f.(*ast.SelectorExpr)
	return ok && (selector.Sel.Name == "New" || selector.Sel.Name == "Unavailable")
}

// literal returns the text of an expression up to its first part that is not a literal.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			return ""
		}
		return text
	case *ast.BinaryExpr:
		return literal(e.X)
	}
	return ""
}

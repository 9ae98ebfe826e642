// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// key describes a constant that contains the key of a label, an annotation, a finalizer or an
// extra.
type key struct{ value, constant, kind, folder, description string }

// ownKey matches the keys of the project, but not the group and version of its kinds.
var ownKey = regexp.MustCompile(`^([a-z-]+\.)*kubetenant\.dev/[a-z-]+$`)

// kinds returns the kind of key for each suffix of a constant's name. A suffix comes before any
// shorter suffix that it contains.
func kinds() []struct{ suffix, kind string } {
	return []struct{ suffix, kind string }{
		{"AuditAnnotation", "audit annotation"},
		{"Annotation", "annotation"},
		{"Label", "label"},
		{"Finalizer", "finalizer"},
		{"Key", "extra of an identity"},
	}
}

// constantText returns the value of a constant that is a literal, or the project's domain
// followed by a literal. Otherwise, it returns "".
func constantText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		domain := ""
		switch x := e.X.(type) {
		case *ast.Ident:
			domain = x.Name
		case *ast.SelectorExpr:
			domain = x.Sel.Name
		}
		if suffix := constantText(e.Y); domain == "Domain" && strings.HasPrefix(suffix, "/") {
			return "kubetenant.dev" + suffix
		}
	}
	return ""
}

// keysOf returns the keys that a package declares. It fails the test if the package uses a key
// that is not a constant.
func keysOf(t *testing.T, folder string, files []*ast.File) (all []key) {
	t.Helper()
	declared := map[ast.Node]bool{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			declaration, ok := n.(*ast.GenDecl)
			if !ok || declaration.Tok != token.CONST {
				return true
			}
			for _, s := range declaration.Specs {
				spec := s.(*ast.ValueSpec)
				for i, value := range spec.Values {
					declared[value] = true
					doc := spec.Doc
					if doc == nil && !declaration.Lparen.IsValid() {
						doc = declaration.Doc
					}
					if k, ok := keyOf(t, folder, spec.Names[i].Name, constantText(value), doc); ok {
						all = append(all, k)
					}
				}
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && !declared[n] && ownKey.MatchString(constantText(literal)) {
				t.Errorf("%s: %s is not the value of a constant", folder, literal.Value)
			}
			return true
		})
		checkAuditCalls(t, folder, file)
	}
	return all
}

// keyOf returns the key in a constant. It returns false if the constant contains no key.
func keyOf(t *testing.T, folder, name, value string, doc *ast.CommentGroup) (key, bool) {
	t.Helper()
	audit := strings.HasSuffix(name, "AuditAnnotation")
	if !ownKey.MatchString(value) && !audit && (folder != "tenant" || !strings.Contains(value, "/")) {
		return key{}, false
	}
	k := key{value: value, constant: name, folder: folder}
	for _, known := range kinds() {
		if k.kind == "" && strings.HasSuffix(name, known.suffix) {
			k.kind = known.kind
		}
	}
	text := strings.Join(strings.Fields(doc.Text()), " ")
	rest, found := strings.CutPrefix(text, name+" ")
	switch {
	case k.kind == "":
		t.Errorf("%s.%s: the name must end with the kind of the key %s", folder, name, value)
	case !found || len(strings.Fields(rest)) < 3 || !strings.HasSuffix(rest, "."):
		t.Errorf("%s.%s: the comment %q does not describe the key", folder, name, text)
	}
	k.description = strings.NewReplacer("[ManagerUser]", "the user `system:kubetenant:tenants`",
		"[ManagedLabel]", "the label `kubetenant.dev/managed`", "[", "", "]", "", "|", `\|`, "<", `\<`).Replace(rest)
	return k, true
}

// checkAuditCalls checks that each key of an audit annotation is a constant and not a literal.
func checkAuditCalls(t *testing.T, folder string, file *ast.File) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.HasPrefix(selector.Sel.Name, "AddAuditAnnotation") {
			return true
		}
		for i, argument := range call.Args {
			if i%2 == 0 || call.Ellipsis.IsValid() {
				continue // a context, a value, or a list of keys and values
			}
			name, isName := argument.(*ast.Ident)
			if !isName || !strings.HasSuffix(name.Name, "AuditAnnotation") {
				t.Errorf("%s: a key of an audit annotation is not a constant *AuditAnnotation", folder)
			}
		}
		return true
	})
}

// allKeys returns the keys of the project, sorted by value.
func allKeys(t *testing.T) []key {
	t.Helper()
	var all []key
	byFolder := packages(t)
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		all = append(all, keysOf(t, folder, byFolder[folder])...)
	}
	slices.SortStableFunc(all, func(a, b key) int { return strings.Compare(a.value, b.value) })
	return all
}

// TestAuditAnnotationsPage compares docs/reference/audit-annotations.md with the constants.
func TestAuditAnnotationsPage(t *testing.T) {
	var text strings.Builder
	text.WriteString(generated + `
# Audit annotations

The servers write these annotations into audit events. The gateway and the authentication write them in the process that
receives the request. [../authorization.md](../authorization.md) describes the decisions, and
[../reasons.md](../reasons.md) the reasons.

| annotation | description | written by |
|---|---|---|
`)
	found := 0
	for _, k := range allKeys(t) {
		if k.kind == "audit annotation" {
			found++
			fmt.Fprintf(&text, "| `%s` | %s | package %s |\n", k.value, k.description, k.folder)
		}
	}
	if found < 11 {
		t.Errorf("found %d audit annotations", found)
	}
	compare(t, "audit-annotations.md", text.String())
}

// TestLabelsPage compares docs/reference/labels-and-annotations.md with the constants.
func TestLabelsPage(t *testing.T) {
	var text strings.Builder
	text.WriteString(generated + `
# Labels and annotations

These are the keys that the project writes on objects and in the extra of identities.
[audit-annotations.md](audit-annotations.md) lists the annotations of audit events.
`)
	all, found := allKeys(t), 0
	for _, known := range kinds()[1:] {
		fmt.Fprintf(&text, "\n## %s\n\n| key | description | constant |\n|---|---|---|\n",
			strings.ToUpper(known.kind[:1])+known.kind[1:])
		for _, k := range all {
			if k.kind == known.kind {
				found++
				fmt.Fprintf(&text, "| `%s` | %s | `%s` in package %s |\n", k.value, k.description, k.constant, k.folder)
			}
		}
	}
	if found < 25 {
		t.Errorf("found %d keys", found)
	}
	compare(t, "labels-and-annotations.md", text.String())
}

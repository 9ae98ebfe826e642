// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// constructor matches the functions that create a metric.
var constructor = regexp.MustCompile(
	`^New(Timing)?(Counter|Gauge|Histogram|Summary|Untyped)(Vec|Func)?(WithContext)?$|^New(Invalid)?Desc$`)

// packages returns the parsed Go files of the products, keyed by folder. It omits tests, fixtures
// and examples.
func packages(t *testing.T) map[string][]*ast.File {
	t.Helper()
	all := map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(file, root+"/"))
		if d.IsDir() {
			switch {
			case name == "test", name == "hack", name == "examples", name == "cmd/kube-apiserver/test",
				name == "bin", d.Name() == "testdata", strings.HasPrefix(d.Name(), ".") && file != root:
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		all[filepath.ToSlash(filepath.Dir(name))] = append(all[filepath.ToSlash(filepath.Dir(name))], parsed)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Fatalf("found %d packages", len(all))
	}
	return all
}

// checkConstructors checks that each metric that the source code creates is on the page. If a
// constructor gets the name of the metric from a parameter of the enclosing function, each call of
// this function creates a metric.
func checkConstructors(t *testing.T, page map[string]*metric) {
	t.Helper()
	found := 0
	for folder, files := range packages(t) {
		s := scan{files: files, literals: map[string]string{}}
		s.collect()
		for _, name := range s.metrics() {
			found++
			if page[name] == nil {
				t.Errorf("%s makes the metric %s, which no process in this test registers", folder, name)
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d constructors", found)
	}
}

// scan finds the metrics of one package.
type scan struct {
	files     []*ast.File
	literals  map[string]string // the strings of constants and variables, keyed by name
	functions []function
}

// function is a declared function, or a function literal that is assigned to a name.
type function struct {
	name   string
	params []string
	body   *ast.BlockStmt
}

func (s *scan) collect() {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						s.literals[name.Name] = s.text(n.Values[i], nil)
					}
				}
			case *ast.FuncDecl:
				if n.Body != nil {
					s.functions = append(s.functions, function{n.Name.Name, paramsOf(n.Type), n.Body})
				}
			case *ast.AssignStmt:
				if literal, ok := n.Rhs[0].(*ast.FuncLit); ok {
					if name, ok := n.Lhs[0].(*ast.Ident); ok {
						s.functions = append(s.functions, function{name.Name, paramsOf(literal.Type), literal.Body})
					}
				}
			}
			return true
		})
	}
}

func paramsOf(f *ast.FuncType) (names []string) {
	for _, p := range f.Params.List {
		for _, name := range p.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// text returns the value of a string literal, a constant or a parameter. It returns "" for any
// other expression.
func (s *scan) text(e ast.Expr, arguments map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil {
			return text
		}
	case *ast.Ident:
		if value, ok := arguments[e.Name]; ok {
			return value
		}
		return s.literals[e.Name]
	}
	return ""
}

// metrics returns the names of the metrics that the package creates.
func (s *scan) metrics() (names []string) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			from, isIdent := ast.Expr(nil), false
			if ok {
				from, isIdent = selector.X.(*ast.Ident)
			}
			if !ok || !isIdent || !constructor.MatchString(selector.Sel.Name) {
				return true
			}
			if of := from.(*ast.Ident).Name; of != "metrics" && of != "prometheus" {
				return true
			}
			names = append(names, s.made(call)...)
			return true
		})
	}
	return names
}

// made returns the names of the metrics that one constructor creates.
func (s *scan) made(call *ast.CallExpr) (names []string) {
	parameters := map[string]string{}
	around := s.around(call)
	for _, p := range around.params {
		parameters[p] = "\x00" // unknown
	}
	if name := s.nameOf(call, parameters); !strings.Contains(name, "\x00") {
		return []string{name}
	}
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			caller, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := caller.Fun.(*ast.Ident); !ok || name.Name != around.name {
				return true
			}
			arguments := map[string]string{}
			for i, p := range around.params {
				if i < len(caller.Args) {
					arguments[p] = s.text(caller.Args[i], nil)
				}
			}
			names = append(names, s.nameOf(call, arguments))
			return true
		})
	}
	return names
}

// around returns the innermost function that contains a call.
func (s *scan) around(call *ast.CallExpr) (inner function) {
	for _, f := range s.functions {
		inside := f.body.Pos() <= call.Pos() && call.End() <= f.body.End() && contains(f.body, call)
		if inside && (inner.body == nil || inner.body.Pos() < f.body.Pos()) {
			inner = f
		}
	}
	return inner
}

// contains reports whether a function body contains a call. It does not compare positions, because
// positions in different files overlap.
func contains(body *ast.BlockStmt, call *ast.CallExpr) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		found = found || n == call
		return !found
	})
	return found
}

// nameOf returns the name of the metric that a constructor creates.
func (s *scan) nameOf(call *ast.CallExpr, arguments map[string]string) string {
	if len(call.Args) == 0 {
		return "without a name"
	}
	options := call.Args[0]
	if pointer, ok := options.(*ast.UnaryExpr); ok {
		options = pointer.X
	}
	literal, ok := options.(*ast.CompositeLit)
	if !ok {
		return s.text(options, arguments)
	}
	parts := map[string]string{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				parts[key.Name] = s.text(pair.Value, arguments)
			}
		}
	}
	name := parts["Name"]
	for _, prefix := range []string{parts["Subsystem"], parts["Namespace"]} {
		if prefix != "" {
			name = prefix + "_" + name
		}
	}
	return name
}

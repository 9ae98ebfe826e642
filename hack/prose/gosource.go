// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	directive = regexp.MustCompile(`^(?:go:|nolint|\+|export |line |lint:)`)
	// sentence matches a message, but not a key, a name or a path.
	sentence = regexp.MustCompile(`[A-Za-z][a-z]*[,;:]? [A-Za-z]*[a-z]{2}`)
	// notProse matches manifests, templates and HTML.
	notProse = regexp.MustCompile(`apiVersion:|\{\{|</|\{\n|^\s*[\[{<]`)
)

// goTexts contains the texts of a Go file.
type goTexts struct {
	messages  []text // string literals
	explained []text // comments of types and fields
	comments  []text // all other comments
}

func goSource(name string, source []byte) (goTexts, error) {
	if generated.Match(source) {
		return goTexts{}, nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return goTexts{}, err
	}
	g := &goFile{source: source, base: files.File(file.FileStart).Base()}
	explained := typeComments(file)
	var texts goTexts
	for _, group := range file.Comments {
		if strings.Contains(group.Text(), "SPDX-License-Identifier:") {
			continue
		}
		if explained[group] {
			texts.explained = append(texts.explained, g.comment(group)...)
		} else {
			texts.comments = append(texts.comments, g.comment(group)...)
		}
	}
	ast.Inspect(file, g.visit)
	texts.messages = g.messages
	return texts, nil
}

// typeComments returns the comments of the types in a file, and of the fields of these types.
func typeComments(file *ast.File) map[*ast.CommentGroup]bool {
	to := make(map[*ast.CommentGroup]bool)
	for _, decl := range file.Decls {
		types, ok := decl.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		to[types.Doc] = true
		ast.Inspect(types, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				to[n.Doc] = true
			case *ast.Field:
				to[n.Doc] = true
			}
			return true
		})
	}
	return to
}

type goFile struct {
	source   []byte
	base     int
	messages []text
}

func (g *goFile) offset(p token.Pos) int { return int(p) - g.base }

// comment returns the paragraphs of a comment, without directives and without the output of
// examples.
func (g *goFile) comment(group *ast.CommentGroup) []text {
	var all text
	for _, c := range group.List {
		from := g.offset(c.Pos()) + 2
		to := g.offset(c.End())
		if strings.HasPrefix(c.Text, "/*") {
			to -= 2
		} else if directive.MatchString(c.Text[2:]) || directive.MatchString(strings.TrimPrefix(c.Text, "// ")) {
			continue
		} else if rest := strings.TrimSpace(c.Text[2:]); rest == "Output:" || rest == "Unordered output:" {
			break
		}
		if from < to && g.source[from] == ' ' {
			from++
		}
		all.addText(slice(g.source, from, to))
		all.add('\n', to-1)
	}
	return clean(paragraphs(all))
}

func clean(texts []text) []text {
	for i, t := range texts {
		texts[i] = withoutCode(t).replace(symbols, "")
	}
	return texts
}

// visit collects string literals that are sentences. Concatenated literals are one message.
func (g *goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.Field: // the tag of a field is not a message
		if n.Type != nil {
			ast.Inspect(n.Type, g.visit)
		}
		return false
	case *ast.CallExpr:
		if isPattern(n) {
			return false
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Example" {
			g.example(n.Value)
			return false
		}
	case *ast.BasicLit:
		g.message(n)
	case *ast.BinaryExpr:
		if n.Op == token.ADD && hasLiteral(n) {
			g.message(n)
			return false
		}
	}
	return true
}

// isPattern reports whether a call compiles a regular expression or a template.
func isPattern(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (f.Sel.Name == "MustCompile" || f.Sel.Name == "Compile")
}

func hasLiteral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return hasLiteral(e.X) || hasLiteral(e.Y)
	case *ast.ParenExpr:
		return hasLiteral(e.X)
	}
	return false
}

func (g *goFile) message(e ast.Expr) {
	var all text
	g.value(e, &all)
	if notProse.Match(all.b) {
		return
	}
	for _, t := range clean(paragraphs(all)) {
		if t = t.replace(verbs, placeholder); sentence.MatchString(strings.ReplaceAll(string(t.b), placeholder, "")) {
			g.messages = append(g.messages, t)
		}
	}
}

// example collects the comments in the shell commands of a command's Example field.
func (g *goFile) example(e ast.Expr) {
	var all text
	g.value(e, &all)
	for _, line := range all.lines() {
		if line = line.trim(); strings.HasPrefix(string(line.b), "# ") {
			g.messages = append(g.messages, line.cut(2, len(line.b)))
		}
	}
}

// value appends the text of an expression. A placeholder replaces each operand that is not a string
// literal.
func (g *goFile) value(e ast.Expr, to *text) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		g.value(e.X, to)
		g.value(e.Y, to)
	case *ast.ParenExpr:
		g.value(e.X, to)
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			g.literal(e, to)
		}
	default:
		to.addString(placeholder, g.offset(e.Pos()))
	}
}

func (g *goFile) literal(lit *ast.BasicLit, to *text) {
	from, end := g.offset(lit.Pos())+1, g.offset(lit.End())-1
	if lit.Value[0] == '`' {
		to.addText(slice(g.source, from, end))
		return
	}
	for rest := string(g.source[from:end]); rest != ""; {
		at := end - len(rest)
		r, _, tail, err := strconv.UnquoteChar(rest, '"')
		if err != nil {
			return
		}
		to.addString(string(utf8.AppendRune(nil, r)), at)
		rest = tail
	}
}

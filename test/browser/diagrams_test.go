// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package browser_test contains the checks that require a browser. It uses headless Chromium.
package browser_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the folder of the repository.
const root = "../.."

// diagram is one Mermaid diagram, in the input format of diagrams.mjs.
type diagram struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// problemsOf renders diagrams and returns the problems that diagrams.mjs reports.
func problemsOf(t *testing.T, diagrams []diagram) []string {
	t.Helper()
	tools := os.Getenv("KUBETENANT_BROWSER")
	if tools == "" {
		t.Skip("KUBETENANT_BROWSER is not set: run make test-browser, which installs a browser")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	// Node resolves packages relative to the script.
	script, err := os.ReadFile("diagrams.mjs")
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(tools, "diagrams.mjs")
	if err := os.WriteFile(installed, script, 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(diagrams)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "diagrams.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(tools, "node_modules", ".bin", "node")
	cmd := exec.CommandContext(t.Context(), node, installed, chromium, file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("diagrams.mjs: %v\n%s", err, out)
	}
	var problems []string
	if err := json.Unmarshal(out, &problems); err != nil {
		t.Fatalf("diagrams.mjs printed %q: %v", out, err)
	}
	return problems
}

var mermaid = regexp.MustCompile("(?ms)^[ \t]*```mermaid[ \t]*\n(.*?)^[ \t]*```")

// diagramsOf returns the diagrams in a Markdown page. The name of each diagram contains the
// number of its first line.
func diagramsOf(page, text string) []diagram {
	var diagrams []diagram
	for _, at := range mermaid.FindAllStringSubmatchIndex(text, -1) {
		line := 1 + strings.Count(text[:at[2]], "\n")
		diagrams = append(diagrams, diagram{fmt.Sprintf("%s:%d", page, line), text[at[2]:at[3]]})
	}
	return diagrams
}

// TestDiagrams renders each diagram in the documentation. It checks that each node and edge has its
// label, that no label is cut or covered, and that no picture is too wide to be readable on GitHub.
func TestDiagrams(t *testing.T) {
	pages := []string{"README.md"}
	repository := os.DirFS(root)
	err := fs.WalkDir(repository, "docs", func(page string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(page, ".md") {
			pages = append(pages, page)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var diagrams []diagram
	for _, page := range pages {
		text, err := fs.ReadFile(repository, page)
		if err != nil {
			t.Fatal(err)
		}
		diagrams = append(diagrams, diagramsOf(page, string(text))...)
	}
	ofArchitecture := func(d diagram) bool { return strings.HasPrefix(d.Name, "docs/architecture.md:") }
	if !slices.ContainsFunc(diagrams, ofArchitecture) {
		t.Fatal("docs/architecture.md has no picture of a request's path")
	}
	for _, problem := range problemsOf(t, diagrams) {
		t.Error(problem)
	}
}

// TestBrowserInCI checks that CI runs the tests of this package, which are skipped without a
// browser.
func TestBrowserInCI(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^run .*\btest-browser\b`).Match(script) {
		t.Error(".ci/run does not run make test-browser")
	}
	cmd := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "-n", "test-browser")
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make -n test-browser: %v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?s)KUBETENANT_BROWSER=\S+ .*go test .*\./test/browser\b`).Match(out) {
		t.Errorf("make test-browser does not run ./test/browser with KUBETENANT_BROWSER:\n%s", out)
	}
}

// TestBrokenDiagrams checks that problemsOf detects each kind of problem.
func TestBrokenDiagrams(t *testing.T) {
	const (
		shrunk = `%%{init: {"themeCSS": ".node foreignObject {width: 30px !important}"}}%%`
		above  = `%%{init: {"themeCSS": ".node {transform: translate(90px, 90px) !important}"}}%%`
		unseen = `%%{init: {"themeCSS": ".nodeLabel p {display: none}"}}%%`
	)
	broken := []struct{ name, text, problem string }{
		{"correct", "flowchart TD\n  a[\"one<br/>two\"] -->|three| b{four}", ""},
		{"syntax", "flowchart TD\n  a[one --> b", "Parse error"},
		{"kind", "flwchart TD\n  a --> b", "No diagram type detected"},
		{"unsupported", "sequenceDiagram\n  a->>b: c", "only flowcharts"},
		{"cut", shrunk + "\nflowchart TD\n  a[one two three] --> b", "does not fit in its node"},
		{"outside", "flowchart TD\n  a[one]:::hidden --> b\n  classDef hidden display:none", "is outside the picture"},
		{"unlabeled", unseen + "\nflowchart TD\n  a[one] --> b", "nodes: the picture shows"},
		{"overlap", above + "\nflowchart TD\n  a[one] --> b\n  b[two]", "overlaps"},
		{"wide", "flowchart LR\n" + chain(12), "pixels wide"},
	}
	var diagrams []diagram
	for _, d := range broken {
		diagrams = append(diagrams, diagram{d.name, d.text})
	}
	problems := problemsOf(t, diagrams)
	for _, d := range broken {
		t.Run(d.name, func(t *testing.T) {
			var own []string
			for _, problem := range problems {
				if strings.HasPrefix(problem, d.name+":") {
					own = append(own, problem)
				}
			}
			found := strings.Contains(strings.Join(own, "\n"), d.problem)
			if !found || d.problem == "" && len(own) > 0 {
				t.Errorf("got %q, want %q", own, d.problem)
			}
		})
	}
}

// chain returns the source of nodes that are connected in a line.
func chain(nodes int) string {
	var text strings.Builder
	for i := range nodes {
		fmt.Fprintf(&text, "  n%d[a node of a long chain] --> n%d\n", i, i+1)
	}
	return text.String()
}

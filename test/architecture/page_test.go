// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package architecture_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// repository returns the files of the repository.
func repository() fs.FS { return os.DirFS(root) }

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := fs.ReadFile(repository(), file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const page = "docs/architecture.md"

// folder matches the first folder in a line of the tree, with its indentation.
var folder = regexp.MustCompile(`^( *)([\w.-]+/)`)

// treeOf returns the folders in the page's tree. The folders in a line belong to the folder above
// that has two fewer spaces of indentation. A line may list several folders. A line that begins
// with another word is a description.
func treeOf(t *testing.T, text string) []string {
	t.Helper()
	_, tree, found := strings.Cut(text, "\n## The tree\n")
	_, tree, fenced := strings.Cut(tree, "\n```text\n")
	tree, _, ends := strings.Cut(tree, "\n```\n")
	if !found || !fenced || !ends {
		t.Fatalf("%s has no tree in a block of text", page)
	}
	var folders, above []string
	for line := range strings.Lines(tree) {
		first := folder.FindStringSubmatch(line)
		if first == nil {
			continue
		}
		depth := len(first[1]) / 2
		if depth > len(above) {
			t.Fatalf("%s: %q is in no folder", page, line)
		}
		above = above[:depth]
		for name := range strings.FieldsSeq(line) {
			if !strings.HasSuffix(name, "/") {
				break
			}
			folders = append(folders, path.Join(append(slices.Clone(above), name)...))
		}
		above = append(above, first[2])
	}
	return folders
}

var (
	code        = regexp.MustCompile("`([^`\n]+)`")
	fence       = regexp.MustCompile("(?ms)^```.*?^```$")
	placeholder = regexp.MustCompile(`<\w+>`)
	pathForm    = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?$`)
	modulePath  = regexp.MustCompile(`^\w+(\.\w+)+/`)
	fileForm    = regexp.MustCompile(`^[\w*.-]+\.(go|yaml|json|mjs|md|sh)$`)
	testForm    = regexp.MustCompile(`^(Test|Example|Fuzz|Benchmark)[A-Z]\w*$`)
)

// spansOf returns the code spans in a part of the page. It replaces each placeholder, such as
// <name>, with *.
func spansOf(text string) []string {
	var spans []string
	for _, span := range code.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		spans = append(spans, placeholder.ReplaceAllString(span[1], "*"))
	}
	return spans
}

func exists(pattern string) bool {
	found, err := fs.Glob(repository(), strings.TrimSuffix(pattern, "/"))
	return err == nil && len(found) > 0
}

// TestArchitecturePaths checks that each path on the page exists. If a file is named without its
// folder, the same section must name the folder.
func TestArchitecturePaths(t *testing.T) {
	text := read(t, page)
	for _, folder := range treeOf(t, text) {
		if !exists(folder) {
			t.Errorf("the tree has %s, which does not exist", folder)
		}
	}
	paths := 0
	for section := range strings.SplitSeq(text, "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		spans := spansOf(section)
		for _, span := range spans {
			if modulePath.MatchString(span) {
				continue
			}
			switch {
			case strings.Contains(span, "/") && pathForm.MatchString(span):
				paths++
				if !exists(span) {
					t.Errorf("%s: %s does not exist", title, span)
				}
			case fileForm.MatchString(span):
				paths++
				in := func(folder string) bool {
					return pathForm.MatchString(folder) && exists(path.Join(folder, span))
				}
				if !exists(span) && !slices.ContainsFunc(spans, in) {
					t.Errorf("%s: %s is in no folder that the section names", title, span)
				}
			}
		}
	}
	if paths < 50 {
		t.Errorf("found %d paths", paths)
	}
}

// TestArchitectureTests checks that each test that the page names exists.
func TestArchitectureTests(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (\w+)\(`)
	err := fs.WalkDir(repository(), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return fs.SkipDir
		case !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		for _, name := range declaration.FindAllStringSubmatch(read(t, file), -1) {
			declared[name[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, span := range spansOf(read(t, page)) {
		if testForm.MatchString(span) {
			named++
			if !declared[span] {
				t.Errorf("%s names %s, which does not exist", page, span)
			}
		}
	}
	if named < 15 {
		t.Errorf("found %d tests", named)
	}
}

// byRule contains the folders with one subfolder for each source or plugin. The tree does not
// list these subfolders.
var byRule = []string{"authn", "plugins"}

// TestArchitectureComplete checks that the tree contains each folder on the first two levels of
// the repository, except the subfolders of the folders in byRule.
func TestArchitectureComplete(t *testing.T) {
	tree := treeOf(t, read(t, page))
	foldersIn := func(dir string) []string {
		entries, err := fs.ReadDir(repository(), dir)
		if err != nil {
			t.Fatal(err)
		}
		var folders []string
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() && !strings.HasPrefix(name, ".") && name != "testdata" {
				folders = append(folders, path.Join(dir, name))
			}
		}
		return folders
	}
	for _, top := range append(foldersIn("."), "testdata") {
		if top == "bin" { // created by make
			continue
		}
		if !slices.Contains(tree, top) {
			t.Errorf("%s: the tree lacks %s", page, top)
		}
		if top == "testdata" || slices.Contains(byRule, top) {
			continue
		}
		for _, below := range foldersIn(top) {
			if !slices.Contains(tree, below) {
				t.Errorf("%s: the tree lacks %s", page, below)
			}
		}
	}
}

// TestArchitecturePlugins checks that the page lists the admission plugins in their order.
func TestArchitecturePlugins(t *testing.T) {
	built, err := stack.New(t.Context(), &configv1alpha1.Settings{}, stack.Server{Cluster: stack.NoCluster()})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, p := range built.Admission {
		want = append(want, p.Name)
	}
	_, list, _ := strings.Cut(read(t, page), "\nAdmission plugins run in this order:")
	list, _, _ = strings.Cut(list, ".\n")
	if got := spansOf(list); !slices.Equal(got, want) {
		t.Errorf("the page lists %q; want %q", got, want)
	}
}

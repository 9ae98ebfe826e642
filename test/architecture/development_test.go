// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package architecture_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// addition matches a code block in docs/development.md that contains a new file, or lines to
// insert after an existing line.
var addition = regexp.MustCompile("(?ms)^```[a-z]+ file=(\\S+)(?: after=(\"[^\n]*\"))?\n(.*?)^```$")

// TestDevelopmentPage checks that the code blocks on the page are sufficient to add a source and a
// plugin that pass their scenarios.
func TestDevelopmentPage(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/development.md"))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	changed := 0
	for _, block := range addition.FindAllStringSubmatch(string(page), -1) {
		path, text := block[1], block[3]
		if block[2] == "" {
			content[path] = text
			continue
		}
		after, err := strconv.Unquote(block[2])
		if err != nil {
			t.Fatalf("%s: %v", block[2], err)
		}
		if _, read := content[path]; !read {
			changed++
			existing, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			content[path] = string(existing)
		}
		if strings.Count(content[path], after+"\n") != 1 {
			t.Fatalf("%s does not contain the line %s exactly once", path, after)
		}
		content[path] = strings.Replace(content[path], after+"\n", after+"\n"+text, 1)
	}
	if len(content) != 7 || changed != 3 {
		t.Errorf("a source and a plugin need %d files, of which %d already exist; want 7 and 3", len(content), changed)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range content {
		at := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, path)] = at
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-overlay", file, "./cmd/kubectl-tenant", "test",
		overlay.Replace[filepath.Join(root, "testdata/scenarios/greeting.yaml")])
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // the build cache then contains the dependencies
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "6 passed, 0 failed, 0 skipped") {
		t.Errorf("%v\n%s", err, out)
	}
}

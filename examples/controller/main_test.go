// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

const page = "../../docs/controllers.md"

// license is the header of each source file. docs/controllers.md shows the files without it.
const license = "// Copyright The kubetenant authors\n// SPDX-License-Identifier: Apache-2.0\n\n"

// read returns the text of a file without the license header.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(string(text), license)
}

// TestPage checks that each block with a file name in docs/controllers.md equals the file.
func TestPage(t *testing.T) {
	blocks := map[string]string{}
	for _, block := range strings.Split(read(t, page), "\n```")[1:] {
		header, text, _ := strings.Cut(block, "\n")
		if _, name, ok := strings.Cut(header, "file="); ok {
			blocks[name] = text + "\n"
		}
	}
	for _, name := range []string{"main.go", "rbac.yaml"} {
		if blocks[name] != read(t, name) {
			t.Errorf("%s shows another %s: copy the file into the page", page, name)
		}
	}
	const example = "example_clients_test.go"
	if part := blocks[example]; part == "" || !strings.Contains(read(t, "../../tenant/v1alpha1/"+example), part) {
		t.Errorf("%s does not show a part of tenant/v1alpha1/%s", page, example)
	}
}

// TestSize checks that the example remains small.
func TestSize(t *testing.T) {
	if lines := strings.Count(read(t, "main.go"), "\n"); lines > 120 {
		t.Errorf("main.go has %d lines; want at most 120", lines)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/plugins/namespace"
)

// TestTools checks that docs/admission.md lists every key that a tool may write on a Namespace.
func TestTools(t *testing.T) {
	page, err := os.ReadFile("../../docs/admission.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(page), "\n")
	list := func(keys []string) string {
		if !slices.IsSorted(keys) {
			t.Errorf("%v is not sorted", keys)
		}
		return "`" + strings.Join(keys, "`, `") + "`"
	}
	for _, tool := range namespace.Tools() {
		row := fmt.Sprintf("| %s | %s | %s | %s |", tool.Name, list(tool.Labels), list(tool.Annotations), tool.Source)
		if !slices.Contains(lines, row) {
			t.Errorf("docs/admission.md lacks the row\n%s", row)
		}
	}
}

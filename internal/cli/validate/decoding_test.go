// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"slices"
	"testing"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestEveryKindDecodes checks that each kind with a CustomResourceDefinition is decoded to its Go
// type. No type accepts metadata that is not a map.
func TestEveryKindDecodes(t *testing.T) {
	rows := kinds()
	row := rows[slices.IndexFunc(rows, func(k kind) bool { return k.name == Objects })]
	for _, name := range row.objects[tenant.Domain] {
		t.Run(name, func(t *testing.T) {
			docs, syntax := split([]byte("kind: " + name + "\nmetadata: x\n"))
			if syntax != nil || len(docs) != 1 {
				t.Fatalf("split() = %v, %v", docs, syntax)
			}
			if found := undecoded(&docs[0], map[string]any{"metadata": map[string]any{"name": "x"}}); len(found) > 0 {
				t.Errorf("a valid object has the findings %v", found)
			}
			if found := undecoded(&docs[0], map[string]any{"metadata": "x"}); len(found) == 0 {
				t.Error("an invalid object has no finding")
			}
		})
	}
}

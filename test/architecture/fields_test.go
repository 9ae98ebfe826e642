// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package architecture_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoRightsFromFields checks that the code of the servers uses managedFields and finalizers
// only in the listed files, for the listed reasons. No permission may depend on these fields,
// because tenants may write them on their objects.
func TestNoRightsFromFields(t *testing.T) {
	for _, field := range []struct {
		words   []string
		reasons map[string]string
	}{
		{
			[]string{"ManagedFields", `"managedFields"`},
			map[string]string{
				"cluster/crd.go":                    "drops them from a definition before it is applied",
				"cluster/provision/objects.go":      "finds writers of managed objects, where tenants may not write them",
				"cluster/provision/objectwrites.go": "replaces them in managed objects",
				"internal/serving/state/state.go":   "drops them from a cache",
				"internal/typed/strict.go":          "drops them from a cache",
				"internal/typed/typed.go":           "drops them from a cache",
				"plugins/managed/managed.go":        "refuses tenants that change those of managed objects",
				"plugins/maintenance.go":            "ignores them in updates of the system tenant and of deleted objects",
			},
		},
		{
			[]string{"Finalizers", `"finalizers"`},
			map[string]string{
				"cluster/provision/desiredstate.go":  "finds managed objects that other callers changed",
				"cluster/provision/objects.go":       "finds managed objects that other callers changed",
				"cluster/retirement/deletion.go":     "waits for the finalizers of a Tenant, which tenants may not write",
				"cluster/retirement/others.go":       "names them in the message about an object that remains",
				"cluster/retirement/retirement.go":   "writes the finalizer of the server",
				"cluster/tenants/object.go":          "stores them in a cache",
				"cluster/provision/pubend.go":        "retains Publications until their copies are deleted",
				"cluster/provision/pubinvalid.go":    "retains Publications that cannot be read",
				"cluster/provision/sources.go":       "retains the Publications that it creates",
				"cluster/publication/publication.go": "reads the finalizer of the server",
				"plugins/binding/binding.go":         "hashes the metadata of an object",
				"plugins/lifecycle/lifecycle.go":     "protects the finalizer of the server",
				"plugins/managed/managed.go":         "refuses other callers that change those of managed objects",
				"plugins/managed/publications.go":    "protects the finalizer of the server",
				"plugins/maintenance.go":             "ignores them in updates of the system tenant and of deleted objects",
				"plugins/rolebinding/tenants.go":     "refuses tenants that add them to TenantMembers",
			},
		},
	} {
		t.Run(field.words[0], func(t *testing.T) {
			found := map[string]bool{}
			for _, s := range sources(t) {
				if s.test || strings.HasPrefix(filepath.Base(s.file), "zz_") || under(s.folder, "internal/cli", "tenant/v1alpha1") {
					continue
				}
				text, err := os.ReadFile(filepath.Join(root, s.file))
				if err != nil {
					t.Fatal(err)
				}
				if !uses(string(text), field.words) {
					continue
				}
				found[s.file] = true
				if field.reasons[s.file] == "" {
					t.Errorf("%s uses %s: a tenant may write the field, so no right may depend on it", s.file, field.words[0])
				}
			}
			for file := range field.reasons {
				if !found[file] {
					t.Errorf("%s does not use %s: remove its reason", file, field.words[0])
				}
			}
		})
	}
}

// uses reports whether Go code contains one of the words outside comments.
func uses(text string, words []string) bool {
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "//")
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(code, word) }) {
			return true
		}
	}
	return false
}

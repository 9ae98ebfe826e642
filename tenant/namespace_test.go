// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestNamespacePrefixes checks that the prefix of a namespace's name belongs to at most one
// tenant, and only to a tenant that may create namespaces.
func TestNamespacePrefixes(t *testing.T) {
	for name, want := range map[string]string{
		"a--web":    "a",
		"a--b--c":   "a",
		"a---b":     "a",
		"a--x-":     "a",
		"acme--web": "acme",
		"0--x":      "0",
		"a--":       "",
		"a-web":     "",
		"a":         "",
		"--web":     "",
		"":          "",
		"-a--web":   "",
		"A--web":    "",
		"a.b--web":  "",
		"a_b--web":  "",
		"a---":      "a",
		"system--x": "",
		"all--x":    "",
		"tenant--x": "",
		"a --x":     "",
		"ä--x":      "",
	} {
		t.Run(name, func(t *testing.T) {
			if got := tenant.PrefixOwner(name); got.String() != want {
				t.Errorf("%q belongs to %q; want %q", name, got, want)
			}
		})
	}
	for id, want := range map[string]string{
		"a":      "a--",
		"acme-1": "acme-1--",
		"a--b":   "",
		"Acme":   "",
		"a.b":    "",
		"a_b":    "",
		"system": "",
	} {
		t.Run(id, func(t *testing.T) {
			parsed, err := tenant.Parse(id)
			if err != nil {
				t.Fatal(err)
			}
			if got := parsed.NamespacePrefix(); got != want {
				t.Errorf("the prefix of %q is %q; want %q", id, got, want)
			}
			if want != "" && tenant.PrefixOwner(want+"x") != parsed {
				t.Errorf("%q does not belong to %q", want+"x", id)
			}
		})
	}
	if (tenant.ID{}).NamespacePrefix() != "" {
		t.Error("the zero ID has a prefix")
	}
}

// TestObjectName checks that tenants with similar IDs have different object names.
func TestObjectName(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"acme", "Acme", "a.b", "a-b", "a_b", "A-b", "1"} {
		name := tenanttest.ID(t, id).ObjectName()
		if other, taken := seen[name]; taken {
			t.Errorf("%s and %s have the same object name %s", id, other, name)
		}
		seen[name] = id
		if plain := id == "acme" || id == "a-b" || id == "1"; (name == id) != plain || name != strings.ToLower(name) ||
			strings.Contains(name, "_") {
			t.Errorf("the object name of %s is %s", id, name)
		}
	}
}

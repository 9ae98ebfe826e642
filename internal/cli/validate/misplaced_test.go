// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// ownKinds contains the kinds of kubetenant in the order in which a fix lists them.
const ownKinds = "TenancyConfiguration, Revocation, Scenario, Tenant, TenantMembers, NamespaceTemplate, " +
	"Publication, RetiredTenant, TenantQuota, AccessGrant, TenantUsage"

// TestWrongVersion checks that every kind of kubetenant requires its API version, both with a
// detected kind and with --kind.
func TestWrongVersion(t *testing.T) {
	for kind := range strings.SplitSeq(ownKinds, ", ") {
		for _, version := range []string{
			"kubetenat.dev/v1alpha1", "kubetenant.io/v1alpha1", "kubetenant.dev/v1", "kubetenant.dev", "v1",
		} {
			path := file(t, "file", "kind: "+kind+"\napiVersion: "+version+"\nmetadata: { name: a }\n")
			want := []string{
				"2:1: apiVersion: must be kubetenant.dev/v1alpha1 for kind " + kind +
					" | write apiVersion: kubetenant.dev/v1alpha1",
			}
			if diff := cmp.Diff(want, found(t, path, "")); diff != "" {
				t.Errorf("%s %s: findings (-want +got):\n%s", version, kind, diff)
			}
		}
	}
	path := file(t, "file", "apiVersion: kubetenat.dev/v1alpha1\nkind: Tenant\n")
	if got := found(t, path, validate.Objects); len(got) != 1 || !strings.HasPrefix(got[0], "1:1: apiVersion: must be ") {
		t.Errorf("--kind tenant: %v", got)
	}
}

// TestMisplaced checks the findings for documents whose kind or API version is almost valid.
func TestMisplaced(t *testing.T) {
	const good = "---\napiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: a }\nspec: { id: a }\n"
	checkFindings(t, "", map[string]finding{
		"no kind": {
			"apiVersion: kubetenant.dev/v1alpha1\nmetadata: { name: a }\n",
			[]string{"1:1: kind: is required | add kind: one of " + ownKinds},
		},
		"no kind in a list": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: kubetenant.dev/v1alpha1\n",
			[]string{"4:3: items[0].kind: is required | add kind: one of " + ownKinds},
		},
		"misspelled kind": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenantMember\n",
			[]string{`2:1: kind: unknown kind "TenantMember"; did you mean "TenantMembers"? | write TenantMembers`},
		},
		"misspelled kind in a list": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: kubetenant.dev/v1alpha1\n  kind: Tennant\n" + good,
			[]string{`5:3: items[0].kind: unknown kind "Tennant"; did you mean "Tenant"? | write Tenant`},
		},
		"unknown kind": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: Workspace\n",
			[]string{"2:1: kind: unknown kind Workspace | write one of " + ownKinds},
		},
		"list in a list": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items: [ { kind: Tenant } ]\n" + good,
			[]string{
				"5:3: items[0].kind: a list cannot contain another list | move the items of this list into the outer list",
			},
		},
		"typed list in a list": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: kubetenant.dev/v1alpha1\n  kind: TenantList\n  items: []\n",
			[]string{
				"5:3: items[0].kind: a list cannot contain another list | move the items of this list into the outer list",
			},
		},
		"list without items": {
			"apiVersion: v1\nkind: List\n" + good,
			[]string{"1:1: items: is required | add items: a list of objects"},
		},
		"items that are not a list": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenantList\nitems: {}\n",
			[]string{"3:1: items: must be a list | write a list of objects"},
		},
	})
}

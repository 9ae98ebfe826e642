// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
)

// FuzzNames checks that a namespace name is either empty, or valid and reserved for its tenant.
func FuzzNames(f *testing.F) {
	for _, seed := range [][3]string{
		{"acme", "0123456789abcdef", "Web Shop"},
		{"acme", "-a-b-c-d-", "--"},
		{"acme", "A_B", "\u0130\u212a\u017f \xff"},
		{"a.b", "1", "x"},
		{"a--b", "1", "x"},
		{strings.Repeat("a", 53), "12345678", strings.Repeat("b-", 200)},
		{strings.Repeat("a", 52), "1-------", "b"},
		{strings.Repeat("a", 63), "1", ""},
		{"system", "1", "kube-system"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, of, project, name string) {
		id, err := tenant.Parse(of)
		if err != nil {
			return
		}
		got := namespaceName(id, project, name)
		if got != namespaceName(id, project, name) {
			t.Error("the name is not deterministic")
		}
		if got == "" {
			if end := slug(project); id.NamespacePrefix() != "" && end != "" && len(of) <= 53 {
				t.Errorf("no name for the tenant %s and the project %q", of, project)
			}
			return
		}
		if wrong := validation.IsDNS1123Label(got); len(wrong) > 0 {
			t.Errorf("%q: %q", got, wrong)
		}
		if owner := tenant.PrefixOwner(got); owner != id {
			t.Errorf("%q belongs to %q, not %q", got, owner, id)
		}
		if strings.Count(got, tenant.NamespaceSeparator) != 1 {
			t.Errorf("%q has another separator", got)
		}
	})
}

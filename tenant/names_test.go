// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kubetenant/kubetenant/tenant"
)

// FuzzServiceAccountNamespace compares the result with the result of the upstream function.
func FuzzServiceAccountNamespace(f *testing.F) {
	label, long := strings.Repeat("a", 63), strings.Repeat("a", 253)
	for _, seed := range []string{
		"", ":", "a:b", "a", "a:", ":b", "a:b:c", "a:b.c", "a.b:c", "a:b..c", "a:.b", "a:b.", "-a:b", "a-:b", "a:-b", "a:b-",
		"a-b:c-d.e-f",
		"A:b", "a:B", "a_:b", "a:b_", "a\n:b", "a:b\n", "a:b ", "\u00e4:b", "a:\xff", "0:0", label + ":b", label + "a:b",
		"a:" + long, "a:" + long + "a", "a:" + label + "." + label,
	} {
		f.Add(serviceaccount.ServiceAccountUsernamePrefix + seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want, _, err := serviceaccount.SplitUsername(name)
		if got, ok := tenant.ServiceAccountNamespace(name); got != want || ok != (err == nil) {
			t.Errorf("ServiceAccountNamespace(%q) = %q, %v; want %q, %v", name, got, ok, want, err == nil)
		}
	})
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publication_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/cluster/publication"
)

func source(group, kind, namespace, name string) publication.Source {
	return publication.Source{
		Kind:      schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
		Namespace: namespace,
		Name:      name,
	}
}

// TestNameFor checks the format of names, on which other programs may rely.
func TestNameFor(t *testing.T) {
	for name, c := range map[string]struct {
		of   publication.Source
		want string // without the hash
	}{
		"a core object":     {source("", "Secret", "platform", "registry"), "secret-platform-"},
		"a name with a dot": {source("networking.k8s.io", "NetworkPolicy", "p", "default.deny"), "networkpolicy-p-"},
		"a long namespace": {
			source("", "Secret", strings.Repeat("n", 63), "x"),
			"secret-" + strings.Repeat("n", 47) + "-",
		},
		"a long namespace with a dash at the cut": {
			source("", "Secret", strings.Repeat("n", 46)+"-"+strings.Repeat("n", 16), "x"),
			"secret-" + strings.Repeat("n", 46) + "-",
		},
		"a long kind":        {source("example.com", strings.Repeat("K", 63), "p", "x"), strings.Repeat("k", 54) + "-"},
		"no valid character": {source("example.com", "_", "", "x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := publication.NameFor(c.of)
			hash, found := strings.CutPrefix(got, c.want)
			if !found || len(hash) != 8 || strings.Trim(hash, "0123456789abcdef") != "" {
				t.Errorf("%q; want %q and a hash", got, c.want)
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 || len(got) > 63 {
				t.Errorf("%q: %q", got, problems)
			}
		})
	}
	if got := publication.NameFor(source("", "Secret", "platform", "registry")); got != "secret-platform-4d1092ac" {
		t.Errorf("the name of an existing Publication changed to %s", got)
	}
}

// TestNamesDiffer checks that different objects have different names, even if their kinds and
// namespaces are equal when concatenated. The API version does not change the name.
func TestNamesDiffer(t *testing.T) {
	seen := map[string]publication.Source{}
	for _, of := range []publication.Source{
		source("", "Secret", "a", "b"), source("", "Secret", "a-b", ""), source("", "Secret", "a", "b-"),
		source("", "ConfigMap", "a", "b"), source("x", "Secret", "a", "b"), source("", "Secret", "ab", ""),
		source("", "SecretA", "", "b"),
	} {
		name := publication.NameFor(of)
		if other, used := seen[name]; used {
			t.Errorf("%s and %s are both %s", of, other, name)
		}
		seen[name] = of
	}
	beta := source("", "Secret", "a", "b")
	beta.Kind.Version = "v1beta1"
	if publication.NameFor(beta) != publication.NameFor(source("", "Secret", "a", "b")) {
		t.Error("the name depends on the version of the API")
	}
}

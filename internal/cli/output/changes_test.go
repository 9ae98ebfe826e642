// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/internal/cli/output"
)

// TestChanges checks that changed and deleted objects are printed in the form that kubectl uses.
func TestChanges(t *testing.T) {
	tenants := schema.GroupKind{Group: "kubetenant.dev", Kind: "Tenant"}
	namespaces := schema.GroupKind{Kind: "Namespace"}
	did := func(kind schema.GroupKind, name, verb string) func(*output.Changes) {
		return func(c *output.Changes) { c.Print(kind, name, verb) }
	}
	deleted := func(kind schema.GroupKind, namespace, name string) func(*output.Changes) {
		return func(c *output.Changes) { c.PrintDeleted(kind, namespace, name) }
	}
	for want, print := range map[string]func(*output.Changes){
		"tenant.kubetenant.dev/acme created":                   did(tenants, "acme", output.Created),
		"namespace/acme--web unchanged":                        did(namespaces, "acme--web", output.Unchanged),
		`namespace "acme--web" deleted`:                        deleted(namespaces, "", "acme--web"),
		`tenant.kubetenant.dev "b" deleted from web namespace`: deleted(tenants, "web", "b"),
		`namespace/a\nb configured`:                            did(namespaces, "a\nb", output.Configured),
	} {
		t.Run(want, func(t *testing.T) {
			for name, c := range map[string]struct{ dryRun, cluster, prefix, note string }{
				"no dry run":                   {"", "", "", ""},
				"no dry run, in a cluster":     {"", "eu1", "eu1: ", ""},
				"client dry run":               {"client", "", "", " (dry run)"},
				"client dry run, in a cluster": {"client", "eu1", "eu1: ", " (dry run)"},
				"server dry run":               {"server", "", "", " (server dry run)"},
				"server dry run, in a cluster": {"server", "eu1", "eu1: ", " (server dry run)"},
			} {
				t.Run(name, func(t *testing.T) {
					var b strings.Builder
					print(output.NewChanges(&b, c.dryRun, c.cluster))
					if got := b.String(); got != c.prefix+want+c.note+"\n" {
						t.Errorf("%q; want %q", got, c.prefix+want+c.note)
					}
				})
			}
		})
	}
}

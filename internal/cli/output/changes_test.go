package output_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/internal/cli/output"
)

// TestChanges requires the form that kubectl uses for changed and deleted objects.
func TestChanges(t *testing.T) {
	tenants := schema.GroupKind{Group: "kubetenant.dev", Kind: "Tenant"}
	namespaces := schema.GroupKind{Kind: "Namespace"}
	for want, print := range map[string]func(*output.Changes){
		"tenant.kubetenant.dev/acme created":                   func(c *output.Changes) { c.Did(tenants, "acme", output.Created) },
		"namespace/acme--web unchanged":                        func(c *output.Changes) { c.Did(namespaces, "acme--web", output.Unchanged) },
		`namespace "acme--web" deleted`:                        func(c *output.Changes) { c.Deleted(namespaces, "", "acme--web") },
		`tenant.kubetenant.dev "b" deleted from web namespace`: func(c *output.Changes) { c.Deleted(tenants, "web", "b") },
		`namespace/a\nb configured`:                            func(c *output.Changes) { c.Did(namespaces, "a\nb", output.Configured) },
	} {
		for dryRun, note := range map[string]string{"": "", "client": " (dry run)", "server": " (server dry run)"} {
			for cluster, prefix := range map[string]string{"": "", "eu1": "eu1: "} {
				var b strings.Builder
				print(output.NewChanges(&b, dryRun, cluster))
				if got := b.String(); got != prefix+want+note+"\n" {
					t.Errorf("%q; want %q", got, prefix+want+note)
				}
			}
		}
	}
}

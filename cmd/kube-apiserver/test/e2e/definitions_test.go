// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const definitionsFolder = "../../../../deploy/chart/crds"

// checkDefinitions checks that [cluster.Definitions] reports no problem with the project's
// CustomResourceDefinitions.
func checkDefinitions(t *testing.T, s *server) {
	t.Helper()
	c := s.dynamic(t, "admin")
	problems, err := cluster.Definitions(t.Context(), c)
	if err != nil || len(problems) != 0 {
		t.Errorf("the definitions: %+v, %v", problems, err)
	}
}

// definitionsAreRestored deletes CustomResourceDefinitions. It checks that the conditions of
// Tenants and events report this, and that the deletion of a Tenant waits. The webhook service
// must deny requests of tenants, but not of the system tenant. After the definitions are
// applied again, requests and the deletion must continue without a restart.
func definitionsAreRestored(t *testing.T, s *server, webhook bool) {
	do := func(args ...string) string {
		t.Helper()
		output, err := s.kubectl(t, "admin", args...)
		if err != nil {
			t.Fatalf("%q: %s", args, output)
		}
		return output
	}
	install := func() { do("apply", "--server-side", "--force-conflicts", "-f", definitionsFolder) }
	isDenied := func(want bool) {
		t.Helper()
		if !webhook {
			return // the compiled-in server continues to use the Tenants that it has read
		}
		waittest.Until(t, func() error {
			output, _ := s.kubectl(t, "globex", "get", "pods", "-n", "default")
			if denied := strings.Contains(output, "tenant state: "); denied != want {
				return fmt.Errorf("a tenant is denied: %v; want %v: %s", denied, want, output)
			}
			return nil
		})
		do("get", "pods", "-n", "default")
	}
	for _, name := range []string{"waits", "ends"} {
		s.apply(t, `{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: `+name+` },
  spec: { id: `+name+`, deletionPolicy: Orphan, memberRoles: [ view ], namespaces: { max: 3 } } }`)
	}
	const reasons = `jsonpath={.status.conditions[?(@.type=="Ready")].reason} ` +
		`{.status.conditions[?(@.type=="Prepared")].reason}`
	awaitOutput := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			if output := do("get", "tenant", "waits", "-o", reasons); output != want {
				return fmt.Errorf("reasons of Ready and Prepared: %q; want %q", output, want)
			}
			return nil
		})
	}
	awaitOutput("Ready Prepared")
	isDenied(false)
	removed := []string{"accessgrants", "namespacetemplates", "retiredtenants", "tenantmembers", "tenantquotas"}
	for _, resource := range removed {
		do("delete", "crd", resource+".kubetenant.dev")
	}
	isDenied(true)
	awaitOutput("DefinitionMissing DefinitionMissing")
	do("delete", "tenant", "ends", "--wait=false")
	waittest.Until(t, func() error {
		if output := do("get", "tenant", "ends", "-o", "wide"); !strings.Contains(output, "DefinitionMissing") {
			return fmt.Errorf("the column Deleting: %s", output)
		}
		return nil
	})
	waittest.Until(t, func() error { // an event is recorded after the condition is set
		events := do("get", "events", "-n", "default", "-o",
			`jsonpath={range .items[*]}{.reason} {.involvedObject.name}{"\n"}{end}`)
		for _, resource := range removed {
			if !strings.Contains(events, "DefinitionMissing "+resource+".kubetenant.dev\n") {
				return fmt.Errorf("no event names %s:\n%s", resource, events)
			}
		}
		return nil
	})
	install()
	isDenied(false)
	awaitOutput("Ready Prepared")
	waittest.Until(t, func() error {
		if output := do("get", "tenant", "ends", "-o", "wide"); !strings.Contains(output, "Retiring") {
			return fmt.Errorf("the deletion does not continue: %s", output)
		}
		return nil
	})
	checkDefinitions(t, s)
	if webhook { // an older definition would remove spec.suspension
		const older = "../../../../cluster/testdata/tenants-adf3471.yaml"
		if output, err := s.kubectl(t, "admin", "replace", "-f", older); err == nil ||
			!strings.Contains(output, "lacks fields of the installed one") {
			t.Errorf("an older definition replaces a newer one: %s", output)
		}
		do("annotate", "crd", "tenants.kubetenant.dev", tenant.AllowFieldRemovalAnnotation+"=true")
		do("replace", "-f", older)
		isDenied(true)
		install()
		isDenied(false)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestClusterPodSecurityLabels checks that a tenant cannot choose the value of a PodSecurity label
// that the cluster sets.
func TestClusterPodSecurityLabels(t *testing.T) {
	const domain = "pod-security.kubernetes.io/"
	for key, c := range map[string]struct{ pinned, other string }{
		domain + "warn":            {"restricted", "privileged"},
		domain + "audit":           {"restricted", "baseline"},
		domain + "warn-version":    {"v1.30", "latest"},
		domain + "audit-version":   {"v1.30", "v1.29"},
		domain + "enforce-version": {"v1.30", "latest"},
	} {
		t.Run(key, func(t *testing.T) {
			p := pluginFor(
				tenanttest.ID(t, "a"),
				func(o *namespace.Options) { o.ClusterLabels = map[string]string{key: c.pinned} },
			)
			labels := func(value string) map[string]string {
				all := map[string]string{tenant.Label: "a", namespace.EnforceLabel: "baseline"}
				if value != "" {
					all[key] = value
				}
				return all
			}
			for what, was := range map[string]map[string]string{
				"created": nil, "changed": labels(c.pinned), "added": labels(""),
			} {
				for _, value := range []string{c.pinned, c.other} {
					t.Run(what+" as "+value, func(t *testing.T) {
						ns := named("a--web", labels(value), nil)
						write := writeOf(admission.Create, ns, nil, "")
						if was != nil {
							write = writeOf(admission.Update, ns, named("a--web", was, nil), "")
						}
						err := p.Validate(t.Context(), write, nil)
						if (err == nil) != (value == c.pinned) || err != nil && !strings.Contains(err.Error(), "clusterLabels") {
							t.Errorf("%v, pinned: %t", err, value == c.pinned)
						}
					})
				}
			}
		})
	}
}

// TestAddedLabelsOnReinvocation checks that a second call of Admit does not record labels of the
// Tenant as earlier values.
func TestAddedLabelsOnReinvocation(t *testing.T) {
	p := labelsPlugin(tenant.System(), tenanttest.ID(t, "acme"))
	ns := named("acme--web", map[string]string{tenant.Label: "acme"}, nil)
	for run := range 2 {
		if err := p.Admit(t.Context(), writeOf(admission.Create, ns, nil, ""), nil); err != nil {
			t.Fatal(err)
		}
		if record := ns.Annotations[tenant.GivenLabelsAnnotation]; !strings.Contains(record, `"team":null`) {
			t.Errorf("run %d: %s", run+1, record)
		}
	}
}

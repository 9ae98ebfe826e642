// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

func TestAddedLabelsOf(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"x":                       "",
		"null":                    "",
		"[]":                      "",
		`{"a":1}`:                 "",
		`{"a":{}}`:                "",
		"{}":                      "{}",
		`{"a":null}`:              `{"a":null}`,
		` {"b": "x", "a": null} `: `{"a":null,"b":"x"}`,
	} {
		t.Run(text, func(t *testing.T) {
			got, recorded := namespace.AddedLabelsOf(&metav1.ObjectMeta{
				Annotations: map[string]string{tenant.GivenLabelsAnnotation: text},
			})
			if recorded != (want != "") || recorded && got.String() != want {
				t.Errorf("AddedLabelsOf(%s) = %s, %t; want %s", text, got, recorded, want)
			}
		})
	}
}

// labelsPlugin returns the plugin for a caller of the tenant id. The Tenant object of tenant of
// specifies labels and a PodSecurity level.
func labelsPlugin(id, of tenant.ID) plugins.Interface {
	return withRules(id, namespace.Rules{Labels: map[string]string{"team": "x"}, PodSecurity: "restricted"}, of)
}

func withRules(id tenant.ID, spaces namespace.Rules, owner tenant.ID) plugins.Interface {
	return pluginFor(id, func(o *namespace.Options) {
		o.Rules = func(other tenant.ID) namespace.Rules {
			if other != owner {
				return namespace.Rules{}
			}
			return spaces
		}
	})
}

// TestRecordOfAddedLabels checks that the annotation on a new Namespace does not depend on the
// annotation that its creator sent. A Namespace that a tenant's caller creates with a wrong
// annotation is denied.
func TestRecordOfAddedLabels(t *testing.T) {
	acme, system := tenanttest.ID(t, "acme"), tenant.System()
	full := map[string]string{tenant.Label: "acme", "team": "x", namespace.EnforceLabel: "restricted"}
	for _, c := range []struct {
		name         string
		caller       tenant.ID
		labels       map[string]string
		sent, record string
	}{
		{
			"a tenant",
			acme,
			nil,
			"",
			`{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/enforce=":"restricted","team":null}`,
		},
		{
			"a tenant that sends all",
			acme,
			full,
			"",
			`{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/enforce=":"restricted","team":null}`,
		},
		{
			"a forged record",
			acme,
			nil,
			`{"team":"x"}`,
			`{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/enforce=":"restricted","team":null}`,
		},
		{
			"an empty record",
			acme,
			nil,
			`{}`,
			`{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/enforce=":"restricted","team":null}`,
		},
		{
			"the system tenant", system,
			map[string]string{tenant.Label: "acme"},
			`{"x":"y"}`,
			`{"pod-security.kubernetes.io/enforce":null,"pod-security.kubernetes.io/enforce=":"restricted","team":null}`,
		},
		{
			"the system tenant with values", system,
			map[string]string{tenant.Label: "acme", "team": "z", namespace.EnforceLabel: "privileged"},
			"",
			`{"pod-security.kubernetes.io/enforce":"privileged","pod-security.kubernetes.io/enforce=":"restricted","team":"z"}`,
		},
		{
			"the system tenant that restores added labels", system,
			map[string]string{tenant.Label: "acme", "team": "x", namespace.EnforceLabel: "restricted"},
			"",
			`{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/enforce=":"restricted","team":null}`,
		},
		{"another tenant's namespace", system, map[string]string{tenant.Label: "globex"}, `{"x":"y"}`, ""},
		{"an invalid tenant", system, map[string]string{tenant.Label: "all"}, `{"x":"y"}`, ""},
		{"no tenant", system, nil, `{"x":"y"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := labelsPlugin(c.caller, acme)
			ns := named("acme--web", maps.Clone(c.labels), map[string]string{tenant.GivenLabelsAnnotation: c.sent})
			if err := p.Admit(t.Context(), write(admission.Create, ns, nil), nil); err != nil {
				t.Errorf("Admit() = %v", err)
			}
			if got, ok := ns.Annotations[tenant.GivenLabelsAnnotation]; got != c.record || ok != (c.record != "") {
				t.Errorf("the record is %q, want %q", got, c.record)
			}
			if c.caller.IsSystem() {
				return
			}
			if err := p.Validate(t.Context(), write(admission.Create, ns, nil), nil); err != nil {
				t.Errorf("Validate() = %v", err)
			}
			for _, forged := range []map[string]string{nil, {tenant.GivenLabelsAnnotation: `{"team":"x"}`}} {
				ns.Annotations = forged
				if p.Validate(t.Context(), write(admission.Create, ns, nil), nil) == nil {
					t.Errorf("Validate() accepts the annotations %v", forged)
				}
			}
		})
	}
	plain := withRules(acme, namespace.Rules{}, acme)
	ns := named("acme--web", map[string]string{tenant.Label: "acme", namespace.EnforceLabel: "baseline"},
		map[string]string{tenant.GivenLabelsAnnotation: `{}`})
	if plain.Validate(t.Context(), write(admission.Create, ns, nil), nil) == nil {
		t.Error("a record is accepted although the Tenant adds no label")
	}
}

// TestFormerLabelsAreProtected checks that a tenant cannot change a label that its Tenant object
// added to a Namespace, even if the Tenant object no longer specifies the label.
func TestFormerLabelsAreProtected(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	record := map[string]string{tenant.GivenLabelsAnnotation: `{"team":null}`}
	p := withRules(acme, namespace.Rules{}, acme)
	for value, annotations := range map[string]map[string]string{"given": record, "own": nil} {
		t.Run(value, func(t *testing.T) {
			old := named("acme--web", map[string]string{tenant.Label: "acme", "team": value}, annotations)
			obj := named("acme--web", map[string]string{tenant.Label: "acme", "team": "other"}, maps.Clone(annotations))
			err := p.Validate(t.Context(), write(admission.Update, obj, old), nil)
			if (err == nil) != (value == "own") {
				t.Errorf("a label of the kind %s changes: %v", value, err)
			}
			delete(obj.Labels, "team")
			if err := p.Admit(t.Context(), write(admission.Update, obj, old), nil); err != nil ||
				(obj.Labels["team"] == "given") != (value == "given") {
				t.Errorf("a label of the kind %s is removed: %v, %v", value, obj.Labels, err)
			}
		})
	}
}

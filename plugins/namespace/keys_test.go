// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

func pluginFor(id tenant.ID, change func(*namespace.Options)) plugins.Interface {
	o := namespace.Options{
		PrefixRequired:       true,
		PodSecurity:          "baseline",
		AllowedLabels:        []string{"example.com/team", "example.org/*", "app.example.com/selected"},
		AllowedAnnotations:   []string{"example.com/note", "example.org/*"},
		ProtectedAnnotations: []string{"kubetenant.dev/creator"},
		SelectionReason: func(key string) string {
			switch key {
			case "selected", "example.org/selected", "app.example.com/selected", "app.kubernetes.io/created-by":
				return "a ValidatingWebhookConfiguration of the cluster selects namespaces by it"
			}
			return ""
		},
		Subject: func(context.Context, user.Info) (tenant.ID, error) { return id, nil },
	}
	if change != nil {
		change(&o)
	}
	return namespace.New(o)
}

func named(name string, labels, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
}

// TestAllowedKeys checks which labels and annotations a tenant may add, change and remove.
func TestAllowedKeys(t *testing.T) {
	p := pluginFor(tenanttest.ID(t, "a"), nil)
	type keys = map[string]string
	for _, c := range []struct {
		key           string
		label, annote bool
	}{
		{"plain", true, true},
		{"example.com/team", true, false},
		{"example.com/note", false, true},
		{"example.com/other", false, false},
		{"example.org/any", true, true},
		{"example.org.evil.com/any", false, false},
		{"selected", false, true},                 // a webhook selects namespaces by this label
		{"example.org/selected", false, true},     // only its domain is allowed
		{"app.example.com/selected", true, false}, // its exact key is allowed
		{"istio-injection", false, true},
		{"control-plane", false, true},
		{"app.kubernetes.io/managed-by", true, false},
		{"helm.sh/chart", true, false},
		{"app.kubernetes.io/name", false, false},
		{"pod-security.kubernetes.io/enforce", false, false},
		{"pod-security.kubernetes.io/enforce-version", false, false},
		{"kubetenant.dev/creator", false, true}, // another plugin protects this annotation
		{"kubetenant.dev/other", false, false},
	} {
		own := func(more keys) keys {
			labels := keys{tenant.Label: "a", corev1.LabelMetadataName: "a--web", namespace.EnforceLabel: "baseline"}
			for key, value := range more {
				labels[key] = value
			}
			return labels
		}
		for what, write := range map[string]struct {
			op      admission.Operation
			was, is keys
		}{
			"added":   {admission.Update, nil, keys{c.key: "x"}},
			"changed": {admission.Update, keys{c.key: "x"}, keys{c.key: "y"}},
			"removed": {admission.Update, keys{c.key: "x"}, nil},
			"created": {admission.Create, nil, keys{c.key: "x"}},
		} {
			t.Run(what, func(t *testing.T) {
				attributes := func(is, was *corev1.Namespace) admission.Attributes {
					var old runtime.Object
					if write.op == admission.Update {
						old = was
					}
					return admission.NewAttributesRecord(is, old, corev1.SchemeGroupVersion.WithKind("Namespace"), "a--web", "a--web",
						corev1.SchemeGroupVersion.WithResource("namespaces"), "", write.op, nil, false, &user.DefaultInfo{})
				}
				labels := attributes(named("a--web", own(write.is), nil), named("a--web", own(write.was), nil))
				if c.key == namespace.EnforceLabel && what == "removed" {
					return // the function own adds the label again
				}
				if err := p.Validate(t.Context(), labels, nil); (err == nil) != c.label {
					t.Errorf("label %s %s: %v", c.key, what, err)
				}
				annotations := attributes(named("a--web", own(nil), write.is), named("a--web", own(nil), write.was))
				if err := p.Validate(t.Context(), annotations, nil); (err == nil) != c.annote {
					t.Errorf("annotation %s %s: %v", c.key, what, err)
				}
			})
		}
		// An existing key is allowed if its value does not change.
		kept := admission.NewAttributesRecord(named("a--web", own(keys{c.key: "x"}), keys{c.key: "x"}),
			named("a--web", own(keys{c.key: "x"}), keys{c.key: "x"}),
			corev1.SchemeGroupVersion.WithKind("Namespace"), "a--web", "a--web",
			corev1.SchemeGroupVersion.WithResource("namespaces"), "", admission.Update, nil, false, &user.DefaultInfo{})
		if err := p.Validate(t.Context(), kept, nil); err != nil {
			t.Errorf("%s unchanged: %v", c.key, err)
		}
	}
}

// TestTools checks that tenants may write every key of every tool, with and without configured
// lists. They may not write a tool's label that a webhook uses to select namespaces.
func TestTools(t *testing.T) {
	lists := map[string]func(*namespace.Options){
		"no lists": func(o *namespace.Options) { o.AllowedLabels, o.AllowedAnnotations, o.SelectionReason = nil, nil, nil },
		"lists":    func(o *namespace.Options) { o.SelectionReason = nil },
	}
	for _, tool := range namespace.Tools() {
		labels, annotations := map[string]string{}, map[string]string{}
		for _, key := range tool.Labels {
			labels[key] = "x"
		}
		for _, key := range tool.Annotations {
			annotations[key] = "x"
		}
		for name, change := range lists {
			t.Run(name, func(t *testing.T) {
				p := pluginFor(tenanttest.ID(t, "a"), change)
				obj := named("a--x", maps.Clone(labels), maps.Clone(annotations))
				if err := p.Admit(t.Context(), write(admission.Create, obj, nil), nil); err != nil {
					t.Fatal(err)
				}
				if err := p.Validate(t.Context(), write(admission.Create, obj, nil), nil); err != nil {
					t.Errorf("%s, %s: %v", tool.Name, name, err)
				}
			})
		}
		p := pluginFor(tenanttest.ID(t, "a"), func(o *namespace.Options) {
			o.SelectionReason = func(string) string { return "a webhook selects namespaces by it" }
		})
		obj := named("a--x", maps.Clone(labels), nil)
		if err := p.Admit(t.Context(), write(admission.Create, obj, nil), nil); err != nil {
			t.Fatal(err)
		}
		err := p.Validate(t.Context(), write(admission.Create, obj, nil), nil)
		if err == nil || strings.Count(err.Error(), "a webhook selects namespaces by it") != len(labels) {
			t.Errorf("%s, selected: %v", tool.Name, err)
		}
	}
}

// TestErrorsNameEveryDeniedKey checks that an error names the denied keys in order, up to a
// maximum, and the setting that can allow them.
func TestErrorsNameEveryDeniedKey(t *testing.T) {
	p := pluginFor(tenanttest.ID(t, "a"), nil)
	labels := func(more ...string) map[string]string {
		all := map[string]string{tenant.Label: "a", namespace.EnforceLabel: "baseline"}
		for _, key := range more {
			all[key] = "x"
		}
		return all
	}
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("example.net/%02d", i))
	}
	const list = `"example.net/00", "example.net/01", "example.net/02", "example.net/03", "example.net/04", ` +
		`"example.net/05", "example.net/06", "example.net/07", "example.net/08", "example.net/09", "example.net/10", ` +
		`"example.net/11", "example.net/12", "example.net/13", "example.net/14", "example.net/15", and 4 more`
	for name, c := range map[string]struct {
		is   *corev1.Namespace
		want string
	}{
		"four labels": {
			named("a--x", labels("app.kubernetes.io/component", "openshift.io/x", "app.kubernetes.io/name",
				"goldilocks.example.com/y"), nil),
			`tenants may not set or remove the labels "app.kubernetes.io/component", "app.kubernetes.io/name", ` +
				`"goldilocks.example.com/y", "openshift.io/x": admission.namespace.allowedLabels can allow them, ` +
				`or admission.namespace.clusterLabels if the cluster sets them`,
		},
		"one label": {
			named("a--x", labels("openshift.io/x"), nil),
			`tenants may not set or remove the label "openshift.io/x": admission.namespace.allowedLabels can allow it, ` +
				`or admission.namespace.clusterLabels if the cluster sets it`,
		},
		"many labels": {
			named("a--x", labels(many...), nil),
			`tenants may not set or remove the labels ` + list + `: admission.namespace.allowedLabels can allow them, ` +
				`or admission.namespace.clusterLabels if the cluster sets them`,
		},
		"reserved keys": {
			named("a--x", labels("kubetenant.dev/y", "kubetenant.dev/x"), nil),
			`[tenants may not set or remove the label "kubetenant.dev/x": keys of the domain kubetenant.dev are reserved, ` +
				`tenants may not set or remove the label "kubetenant.dev/y": keys of the domain kubetenant.dev are reserved]`,
		},
		"a label that a webhook selects by": {
			named("a--x", labels("selected"), nil),
			`tenants may not set or remove the label "selected" ` +
				`without an exact entry in admission.namespace.allowedLabels or clusterLabels: ` +
				`a ValidatingWebhookConfiguration of the cluster selects namespaces by it`,
		},
		"a tool's label that a webhook selects by": {
			named("a--x", labels("app.kubernetes.io/created-by"), nil),
			`tenants may not set or remove the label "app.kubernetes.io/created-by" ` +
				`without an exact entry in admission.namespace.allowedLabels or clusterLabels: ` +
				`a ValidatingWebhookConfiguration of the cluster selects namespaces by it`,
		},
		"a label of a listed domain that a webhook selects by, and others": {
			named("a--x", labels("example.org/selected", "istio-injection", "openshift.io/x"), nil),
			`[tenants may not set or remove the label "example.org/selected" ` +
				`without an exact entry in admission.namespace.allowedLabels or clusterLabels: ` +
				`a ValidatingWebhookConfiguration of the cluster selects namespaces by it, ` +
				`tenants may not set or remove the label "istio-injection" ` +
				`without an exact entry in admission.namespace.allowedLabels or clusterLabels: it enables or disables webhooks, ` +
				`tenants may not set or remove the label "openshift.io/x": admission.namespace.allowedLabels can allow it, ` +
				`or admission.namespace.clusterLabels if the cluster sets it]`,
		},
		"the name, a label and annotations": {
			named("x", labels("openshift.io/x"), map[string]string{"example.com/b": "x", "example.com/a": "x"}),
			`[the names of this tenant's namespaces must begin with a--, ` +
				`tenants may not set or remove the label "openshift.io/x": admission.namespace.allowedLabels can allow it, ` +
				`or admission.namespace.clusterLabels if the cluster sets it, tenants may not set or remove the annotations ` +
				`"example.com/a", "example.com/b": ` +
				`admission.namespace.allowedAnnotations can allow them, or ` +
				`admission.namespace.clusterAnnotations if the cluster sets them]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				err := p.Validate(t.Context(), write(admission.Create, c.is, nil), nil)
				if err == nil || !strings.HasSuffix(err.Error(), c.want) {
					t.Fatalf("%v, want %s", err, c.want)
				}
			}
		})
	}
}

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// TestRestoredKeysWarn checks that a user of kubectl gets a warning for every key that an update
// omitted and the server restored.
func TestRestoredKeysWarn(t *testing.T) {
	p := pluginFor(tenanttest.ID(t, "a"), nil)
	old := named("a--web",
		map[string]string{
			tenant.Label:           "a",
			namespace.EnforceLabel: "baseline",
			"example.net/b":        "1",
			"example.net/a":        "1",
			"env":                  "1",
			"example.com/team":     "1",
		},
		map[string]string{"example.net/note": "1", "kubetenant.dev/creator": "x", "example.com/note": "1"})
	all := warnings{
		"the label example.net/a is managed by the server and was not removed",
		"the label example.net/b is managed by the server and was not removed",
		"the label pod-security.kubernetes.io/enforce is managed by the server and was not removed",
		"the annotation example.net/note is managed by the server and was not removed",
	}
	for manager, want := range map[string]warnings{
		"kubectl-label":   all,
		"kubectl-patch":   all,
		"kubectl-edit":    all,
		"kubectl-replace": nil,
		"operator":        nil,
	} {
		t.Run(manager, func(t *testing.T) {
			got := &warnings{}
			obj := named("a--web", map[string]string{tenant.Label: "a"}, nil)
			a := admission.NewAttributesRecord(
				obj,
				old.DeepCopy(),
				corev1.SchemeGroupVersion.WithKind("Namespace"),
				"",
				"a--web",
				corev1.SchemeGroupVersion.WithResource("namespaces"),
				"",
				admission.Update,
				&metav1.UpdateOptions{FieldManager: manager},
				false,
				&user.DefaultInfo{},
			)
			if err := p.Admit(warning.WithWarningRecorder(t.Context(), got), a, nil); err != nil ||
				!slices.Equal(*got, want) || len(obj.Labels) != 4 || len(obj.Annotations) != 1 {
				t.Errorf("%v, %q, %v, %v", err, *got, obj.Labels, obj.Annotations)
			}
		})
	}
}

// TestNames checks which names each caller may use, with and without a required prefix.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		caller, name, generate, label string
		free, ok                      bool // free: no prefix is required
	}{
		{"a", "a--web", "", "a", false, true},
		{"a", "web", "", "a", false, false},
		{"a", "web", "", "a", true, true},
		{"a", "b--web", "", "a", false, false},
		{"a", "a--", "", "a", false, false},
		{"a", "a-web", "", "a", false, false},
		{"a", "", "a--", "a", false, true},
		{"a", "", "a--job-", "a", false, true},
		{"a", "", "b--", "a", false, false},
		{"Upper", "Upper--web", "", "Upper", false, false},
		{"Upper", "web", "", "Upper", true, true},
		{"system", "web", "", "a", false, true},
		{"system", "a--web", "", "a", false, true},
		{"system", "a--web", "", "b", false, false},
		{"system", "a--web", "", "b", true, true},
		{"system", "a--web", "", "system", false, false},
		{"system", "a--web", "", "-", false, true}, // it can be assigned later
		{"system", "", "a--", "b", false, false},
		{"system", "a--web", "", "a b", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pluginFor(tenanttest.ID(t, c.caller), func(o *namespace.Options) { o.PrefixRequired = !c.free })
			ns := named(c.name, map[string]string{namespace.EnforceLabel: "baseline", tenant.Label: c.label}, nil)
			if ns.GenerateName = c.generate; c.label == "-" {
				delete(ns.Labels, tenant.Label)
			}
			if err := p.Validate(t.Context(), write(admission.Create, ns, nil), nil); (err == nil) != c.ok {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
	// An existing namespace is not denied because its name has the prefix of another tenant.
	p := pluginFor(tenant.System(), nil)
	old := named("a--web", map[string]string{tenant.Label: "b"}, nil)
	if err := p.Validate(t.Context(), write(admission.Update, old.DeepCopy(), old), nil); err != nil {
		t.Errorf("an existing namespace: %v", err)
	}
	if err := p.Validate(t.Context(), write(admission.Update, old, named("a--web", nil, nil)), nil); err == nil {
		t.Error("a namespace with the prefix of another tenant was assigned")
	}
}

// TestDefaults checks that labels that are missing in a tenant's new namespace are added, and that
// labels that an update omits are restored.
func TestDefaults(t *testing.T) {
	p := pluginFor(tenanttest.ID(t, "a"), nil)
	ns := named("a--web", nil, nil)
	if err := p.Admit(t.Context(), write(admission.Create, ns, nil), nil); err != nil || ns.Labels[tenant.Label] != "a" ||
		ns.Labels[namespace.EnforceLabel] != "baseline" {
		t.Errorf("%v: %v", ns.Labels, err)
	}
	own := map[string]string{namespace.EnforceLabel: "restricted", tenant.Label: "b"}
	ns = named("a--web", own, nil)
	if err := p.Admit(t.Context(), write(admission.Create, ns, nil), nil); err == nil {
		err = p.Validate(t.Context(), write(admission.Create, ns, nil), nil)
		if err == nil {
			t.Errorf("another tenant's label was admitted: %v", ns.Labels)
		}
	}
	old := named("a--web",
		map[string]string{tenant.Label: "a", namespace.EnforceLabel: "baseline", corev1.LabelMetadataName: "a--web"},
		map[string]string{"kubetenant.dev/creator": "x"})
	obj := named("a--web", map[string]string{tenant.Label: "a"}, nil)
	err := p.Admit(t.Context(), write(admission.Update, obj, old), nil)
	if err == nil {
		err = p.Validate(t.Context(), write(admission.Update, obj, old), nil)
	}
	if err != nil || obj.Labels[tenant.Label] != "a" || obj.Labels[namespace.EnforceLabel] != "baseline" {
		t.Errorf("an update that omits all other labels: %v, %v, %v", obj.Labels, obj.Annotations, err)
	}
}

// TestPodSecuritySelected checks that a tenant may not set a PodSecurity label that a webhook uses
// to select namespaces. The default level is still set.
func TestPodSecuritySelected(t *testing.T) {
	p := pluginFor(tenanttest.ID(t, "a"), func(o *namespace.Options) {
		o.SelectionReason = func(string) string { return "a webhook selects namespaces by it" }
	})
	for label, value := range map[string]string{
		namespace.EnforceLabel:                "restricted",
		namespace.EnforceLabel + "-version":   "latest",
		"pod-security.kubernetes.io/warn":     "restricted",
		"pod-security.kubernetes.io/audit":    "restricted",
		"":                                    "",
		"pod-security.kubernetes.io/unknown":  "x",
		"pod-security.kubernetes.io/warn-not": "x",
	} {
		t.Run(label, func(t *testing.T) {
			obj := named("a--x", map[string]string{}, nil)
			if label != "" {
				obj.Labels[label] = value
			}
			err := p.Admit(t.Context(), write(admission.Create, obj, nil), nil)
			if err == nil {
				err = p.Validate(t.Context(), write(admission.Create, obj, nil), nil)
			}
			if (err == nil) != (label == "") {
				t.Errorf("%v", err)
			}
		})
	}
}

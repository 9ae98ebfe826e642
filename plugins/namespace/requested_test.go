// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// writeOf returns a write of a Namespace.
func writeOf(op admission.Operation, newObj, oldObj *corev1.Namespace, subresource string) admission.Attributes {
	var old runtime.Object
	if op == admission.Update {
		old = oldObj
	}
	return admission.NewAttributesRecord(
		newObj,
		old,
		corev1.SchemeGroupVersion.WithKind("Namespace"),
		newObj.Name,
		newObj.Name,
		corev1.SchemeGroupVersion.WithResource("namespaces"),
		subresource,
		op,
		nil,
		false,
		&user.DefaultInfo{Name: "u"},
	)
}

// admitRequested records the object that the client sent, and calls Admit. It then calls final,
// which changes the object as the cluster does, and Validate. It returns the error, or "" if the
// write is admitted.
func admitRequested(
	t *testing.T, p plugins.Interface, op admission.Operation, was, sent *corev1.Namespace, final func(*corev1.Namespace),
	subresource string,
) string {
	t.Helper()
	ctx := plugins.WithRequested(t.Context())
	a := writeOf(op, sent.DeepCopy(), was, subresource)
	plugins.RecordRequested(ctx, a, runtime.Object.DeepCopyObject)
	if err := p.Admit(ctx, a, nil); err != nil {
		return err.Error()
	}
	final(a.GetObject().(*corev1.Namespace))
	if err := p.Validate(ctx, a, nil); err != nil {
		return err.Error()
	}
	return ""
}

// TestOnlyClientChangesAreDenied checks, for each operation and subresource, a label and an
// annotation that tenants may not set. Only changes by the client are denied.
func TestOnlyClientChangesAreDenied(t *testing.T) {
	const key = "billing.example.com/cost-centre"
	type keys = map[string]string
	with := func(value string) keys {
		if value == "" {
			return nil
		}
		return keys{key: value}
	}
	for name, c := range map[string]struct {
		op               admission.Operation
		was, sent, final string // the values of the key, or "" if it is missing
		refused          bool
	}{
		"created, added by the cluster":   {admission.Create, "", "", "42", false},
		"created, sent":                   {admission.Create, "", "42", "42", true},
		"created, sent and rewritten":     {admission.Create, "", "7", "42", true},
		"created, sent and removed":       {admission.Create, "", "7", "", false},
		"updated, added by the cluster":   {admission.Update, "", "", "42", false},
		"updated, changed by the cluster": {admission.Update, "41", "41", "42", false},
		"updated, removed by the cluster": {admission.Update, "42", "42", "", false},
		"updated, omitted and set again":  {admission.Update, "41", "", "42", false},
		"updated, omitted and restored":   {admission.Update, "42", "", "42", false},
		"updated, removed":                {admission.Update, "42", "", "", true},
		"updated, unchanged":              {admission.Update, "42", "42", "42", false},
		"updated, sent":                   {admission.Update, "", "42", "42", true},
		"updated, changed":                {admission.Update, "42", "7", "7", true},
		"updated, changed and rewritten":  {admission.Update, "41", "7", "42", true},
		"updated, changed and restored":   {admission.Update, "42", "7", "42", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, subresource := range []string{"", "status", "finalize"} {
				if subresource != "" && c.op == admission.Create {
					continue
				}
				set := func(on map[string]string, value string) map[string]string {
					out := maps.Clone(on)
					if delete(out, key); value != "" {
						if out == nil {
							out = keys{}
						}
						out[key] = value
					}
					return out
				}
				own := keys{tenant.Label: "a", namespace.EnforceLabel: "baseline"}
				p := pluginFor(tenanttest.ID(t, "a"), nil)
				for kind, got := range map[string]string{
					"label": admitRequested(t, p, c.op, named("a--web", set(own, c.was), nil), named("a--web", set(own, c.sent), nil),
						func(ns *corev1.Namespace) { ns.Labels = set(ns.Labels, c.final) }, subresource),
					"annotation": admitRequested(t, p, c.op, named("a--web", own, with(c.was)), named("a--web", own, with(c.sent)),
						func(ns *corev1.Namespace) { ns.Annotations = set(ns.Annotations, c.final) }, subresource),
				} {
					if (got != "") != c.refused || c.refused && !strings.Contains(got, kind+` "`+key) {
						t.Errorf("%s %s, subresource %q: %q", kind, name, subresource, got)
					}
				}
			}
		})
	}
}

// TestFinalValuesAreChecked checks keys that are denied because of their final value, even if the
// client did not send this value.
func TestFinalValuesAreChecked(t *testing.T) {
	p := pluginFor(tenanttest.ID(t, "a"), func(o *namespace.Options) {
		o.Rules = func(tenant.ID) namespace.Rules { return namespace.Rules{Labels: map[string]string{"team": "x"}} }
	})
	for key, value := range map[string]string{
		tenant.Label:             "b",
		tenant.Domain + "/other": "x",
		namespace.EnforceLabel:   "privileged",
		corev1.LabelMetadataName: "b--web",
		"team":                   "y",
	} {
		t.Run(key, func(t *testing.T) {
			for _, op := range []admission.Operation{admission.Create, admission.Update} {
				was := named("a--web", map[string]string{
					tenant.Label:             "a",
					namespace.EnforceLabel:   "baseline",
					corev1.LabelMetadataName: "a--web",
					"team":                   "x",
				}, nil)
				for what, change := range map[string]func(*corev1.Namespace){
					"set":     func(ns *corev1.Namespace) { ns.Labels[key] = value },
					"removed": func(ns *corev1.Namespace) { delete(ns.Labels, key) },
				} {
					if _, ok := was.Labels[key]; what == "removed" &&
						(!ok || key == corev1.LabelMetadataName && op == admission.Create) {
						continue
					}
					if got := admitRequested(t, p, op, was, was.DeepCopy(), change, ""); got == "" {
						t.Errorf("%s, %s by the cluster on %s: admitted", key, what, op)
					}
				}
			}
		})
	}
	annotate := func(ns *corev1.Namespace) { ns.Annotations = map[string]string{tenant.Domain + "/other": "x"} }
	if got := admitRequested(t, p, admission.Create, nil, named("a--web", nil, nil), annotate, ""); got == "" {
		t.Error("an annotation of the domain " + tenant.Domain + ": admitted")
	}
}

// TestClusterKeys checks that tenants may set a key in ClusterLabels or ClusterAnnotations only
// to the configured value.
func TestClusterKeys(t *testing.T) {
	const key = "billing.example.com/cost-centre"
	configured := map[string]string{
		key:                        "42",
		"team":                     "t-{tenant}",
		"app.example.com/selected": "in",
		"example.com/team":         "x",
	}
	p := pluginFor(tenanttest.ID(t, "a"), func(o *namespace.Options) {
		o.ClusterLabels, o.ClusterAnnotations = configured, configured
	})
	for name, c := range map[string]struct {
		key, was, is string
		refused      bool
	}{
		"created":                       {key, "", "42", false},
		"created, another value":        {key, "", "7", true},
		"created, empty":                {key, "", " ", true},
		"changed to it":                 {key, "41", "42", false},
		"changed from it":               {key, "42", "7", true},
		"unchanged, another value":      {key, "7", "7", false},
		"of the tenant":                 {"team", "", "t-a", false},
		"of another tenant":             {"team", "", "t-b", true},
		"with the placeholder":          {"team", "", "t-{tenant}", true},
		"a key without a domain":        {"team", "", "x", true},
		"a key that selects namespaces": {"app.example.com/selected", "", "in", false},
		"an allowed key":                {"example.com/team", "", "y", true},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(value string) map[string]string {
				out := map[string]string{tenant.Label: "a", namespace.EnforceLabel: "baseline"}
				if value != "" {
					out[c.key] = value
				}
				return out
			}
			op := admission.Create
			if c.was != "" {
				op = admission.Update
			}
			labels := p.Validate(t.Context(), writeOf(op, named("a--web", set(c.is), nil), named("a--web", set(c.was), nil), ""),
				nil)
			own := set("")
			annotations := p.Validate(t.Context(), writeOf(op, named("a--web", own, map[string]string{c.key: c.is}),
				named("a--web", own, map[string]string{c.key: c.was}), ""), nil)
			for setting, err := range map[string]error{"clusterLabels": labels, "clusterAnnotations": annotations} {
				got := fmt.Sprint(err)
				if (err != nil) != c.refused ||
					c.refused && !strings.Contains(got, "admission.namespace."+setting+" specifies the value") {
					t.Errorf("%s, %s: %s", setting, name, got)
				}
			}
		})
	}
	was := named("a--web", map[string]string{tenant.Label: "a", key: "42", "team": "t-a"},
		map[string]string{"team": "t-a"})
	is := named("a--web", map[string]string{tenant.Label: "a"}, nil)
	if err := p.Admit(t.Context(), writeOf(admission.Update, is, was, ""), nil); err != nil ||
		is.Labels[key] != "42" || is.Labels["team"] != "t-a" || is.Annotations["team"] != "t-a" {
		t.Errorf("removed: %v, %v, %v", err, is.Labels, is.Annotations)
	}
	empty := named("a--web", nil, nil)
	if err := p.Admit(t.Context(), writeOf(admission.Create, empty, nil, ""), nil); err != nil || empty.Labels[key] != "" {
		t.Errorf("created: %v, %v", err, empty.Labels)
	}
}

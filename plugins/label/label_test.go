// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package label_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/tenant"
)

var errUnavailable = errors.New("away")

// owner returns the owner of a namespace. The namespace a--web belongs to tenant a and b--web to
// tenant b. The namespaces bad and missing are unowned. The lookup of away fails. All other
// namespaces belong to the system tenant.
func owner(_ context.Context, namespace string) (tenant.ID, error) {
	switch namespace {
	case "a--web":
		return tenant.Parse("a")
	case "b--web":
		return tenant.Parse("b")
	case "bad", "missing":
		return tenant.ID{}, nil
	case "away":
		return tenant.ID{}, errUnavailable
	}
	return tenant.System(), nil
}

func configMap(namespace string, labels ...string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: namespace}}
	if len(labels) > 0 {
		o.Labels = map[string]string{tenant.Label: labels[0], "other": "kept"}
	}
	return o
}

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

func attributes(obj, old runtime.Object, namespace, subresource string) admission.Attributes {
	op := admission.Create
	if old != nil {
		op = admission.Update
	}
	return admission.NewAttributesRecord(obj, old, corev1.SchemeGroupVersion.WithKind("ConfigMap"), namespace, "x",
		configMaps, subresource, op, nil, false, nil)
}

// run calls Admit and Validate. It returns the label that would be stored.
func run(t *testing.T, a admission.Attributes) (string, bool, error) {
	t.Helper()
	p := label.New(owner)
	if err := p.Admit(t.Context(), a, nil); err != nil {
		return "", false, err
	}
	if err := p.Validate(t.Context(), a, nil); err != nil {
		return "", false, err
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		t.Fatal(err)
	}
	value, ok := m.GetLabels()[tenant.Label]
	return value, ok, nil
}

// TestWrongStoredLabelsAreCorrected checks that an update that leaves or removes a wrong label
// corrects it, and that an update to another wrong value is denied. Scenarios test the cases that
// occur on a server.
func TestWrongStoredLabelsAreCorrected(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string
		was, is   []string
		want      string // "-" for none, "!" if denied
	}{
		"no label":                        {"a--web", nil, nil, "a"},
		"wrong label, unchanged":          {"a--web", []string{"b"}, []string{"b"}, "a"},
		"wrong label, corrected":          {"a--web", []string{"b"}, []string{"a"}, "a"},
		"wrong label, removed":            {"a--web", []string{"b"}, nil, "a"},
		"wrong label, changed to another": {"a--web", []string{"b"}, []string{"c"}, "!"},
		"system namespace, unchanged":     {"kube-system", []string{"a"}, []string{"a"}, "-"},
		"system namespace, changed":       {"kube-system", []string{"a"}, []string{"b"}, "!"},
		"system namespace, added":         {"kube-system", nil, []string{"b"}, "!"},
		"unowned namespace, unchanged":    {"bad", []string{"a"}, []string{"a"}, "-"},
		"no namespace, unchanged":         {"", []string{"a"}, []string{"a"}, "-"},
		"no namespace, added":             {"", nil, []string{"a"}, "!"},
		"changed to an empty label":       {"a--web", []string{"a"}, []string{""}, "!"},
		"system namespace, empty label":   {"kube-system", []string{""}, []string{""}, "-"},
		"empty label, unchanged":          {"a--web", []string{""}, []string{""}, "a"},
		"failed owner lookup":             {"away", []string{"a"}, []string{"a"}, "!"},
	} {
		t.Run(name, func(t *testing.T) {
			is := configMap(c.namespace, c.is...)
			value, ok, err := run(t, attributes(is, configMap(c.namespace, c.was...), c.namespace, ""))
			got := value
			switch {
			case err != nil:
				got = "!"
			case !ok:
				got = "-"
			}
			if got != c.want {
				t.Errorf("%q, want %q (%v)", got, c.want, err)
			}
			if err == nil && len(c.is) > 0 && is.Labels["other"] != "kept" {
				t.Errorf("other labels %v", is.Labels)
			}
		})
	}
}

// TestSubresourcesWithStoredMetadata checks that Validate allows a subresource that leaves a
// missing or wrong label unchanged. A change of the label to a wrong value is denied.
func TestSubresourcesWithStoredMetadata(t *testing.T) {
	p := label.New(owner)
	for name, c := range map[string]struct {
		was, is []string
		ok      bool
	}{
		"no label, unchanged":    {nil, nil, true},
		"wrong label, unchanged": {[]string{"b"}, []string{"b"}, true},
		"unchanged":              {[]string{"a"}, []string{"a"}, true},
		"changed":                {[]string{"a"}, []string{"b"}, false},
		"removed":                {[]string{"a"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Validate(t.Context(),
				attributes(configMap("a--web", c.is...), configMap("a--web", c.was...), "a--web", "status"), nil)
			if (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestSharedLabelsAreCopied checks that the map of labels is copied before a change, because a
// cache may share the map.
func TestSharedLabelsAreCopied(t *testing.T) {
	shared := map[string]string{"x": "y"}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a--web", Labels: shared}}
	if _, _, err := run(t, attributes(o, nil, "a--web", "")); err != nil || len(shared) != 1 ||
		o.Labels[tenant.Label] != "a" {
		t.Errorf("%v, shared %v, object %v", err, shared, o.Labels)
	}
}

// TestObjectsWithoutMetadata checks that an object without metadata is denied, and that virtual
// objects are ignored.
func TestObjectsWithoutMetadata(t *testing.T) {
	p := label.New(owner)
	for name, a := range map[string]admission.Attributes{
		"no object": attributes(nil, nil, "a--web", ""),
		"no metadata": admission.NewAttributesRecord(&metav1.Status{}, nil, schema.GroupVersionKind{Kind: "X"}, "a--web", "x",
			configMaps, "", admission.Create, nil, false, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Admit(t.Context(), a, nil); err == nil {
				t.Errorf("%s was mutated", name)
			}
			if err := p.Validate(t.Context(), a, nil); err == nil {
				t.Errorf("%s was admitted", name)
			}
		})
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		{Group: "policy", Version: "v1", Kind: "Eviction"},
		{Group: "authorization.k8s.io", Version: "v1", Kind: "LocalSubjectAccessReview"},
	} {
		o := configMap("a--web")
		a := admission.NewAttributesRecord(o, nil, kind, "a--web", "x", configMaps, "sub", admission.Create, nil, false, nil)
		if err := p.Admit(t.Context(), a, nil); err != nil || len(o.Labels) != 0 || p.Validate(t.Context(), a, nil) != nil {
			t.Errorf("%s: %v %v", kind, err, o.Labels)
		}
	}
}

// TestTokenRequests checks that a token in a tenant's namespace may be bound only to a Pod or a
// Secret of the core group.
func TestTokenRequests(t *testing.T) {
	p := label.New(owner)
	for ref, want := range map[authenticationv1.BoundObjectReference]bool{
		{APIVersion: "v1", Kind: "Pod"}:      true,
		{APIVersion: "v1", Kind: "Secret"}:   true,
		{APIVersion: "v1", Kind: "Node"}:     false,
		{APIVersion: "v1", Kind: "pod"}:      false,
		{Kind: "Pod"}:                        true,
		{APIVersion: "apps/v1", Kind: "Pod"}: false,
		{}:                                   false,
		{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"}: false,
	} {
		for namespace, always := range map[string]bool{"a--web": false, "bad": false, "kube-system": true} {
			t.Run(namespace, func(t *testing.T) {
				o := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &ref}}
				a := admission.NewAttributesRecord(o, nil, authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), namespace,
					"robot",
					corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "token", admission.Create, nil, false, nil)
				if err := p.Validate(t.Context(), a, nil); (err == nil) != (want || always) {
					t.Errorf("%v in %s: %v", ref, namespace, err)
				}
			})
		}
	}
	o := &authenticationv1.TokenRequest{}
	a := admission.NewAttributesRecord(o, nil, authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), "away",
		"robot",
		corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "token", admission.Create, nil, false, nil)
	if err := p.Validate(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("failed owner lookup: %v", err)
	}
}

// TestBindingKeys checks that the error for a Binding names every denied key, in order.
func TestBindingKeys(t *testing.T) {
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"kubetenant.dev/z": "", "kubetenant.dev/a": "", "other": ""},
		Annotations: map[string]string{"Kubetenant.Dev/b": "", tenant.WorkloadUserAnnotation: "", "other": ""},
	}}
	a := admission.NewAttributesRecord(binding, nil, corev1.SchemeGroupVersion.WithKind("Binding"), "a--web", "x",
		corev1.SchemeGroupVersion.WithResource("pods"), "binding", admission.Create, nil, false, nil)
	err := label.New(owner).Validate(t.Context(), a, nil)
	if err == nil {
		t.Fatal("admitted")
	}
	rest := err.Error()
	for _, key := range []string{
		"kubetenant.dev/a", "kubetenant.dev/z", "Kubetenant.Dev/b", tenant.WorkloadUserAnnotation,
	} {
		_, after, found := strings.Cut(rest, `"`+key+`": a Binding may not have`)
		if !found {
			t.Errorf("%s is not named, or not in order: %v", key, err)
		}
		rest = after
	}
}

type warnings []string

func (s *warnings) AddWarning(_, text string) { *s = append(*s, text) }

// TestRemovedLabelWarns checks that a user of kubectl that removes the label gets a warning. A
// controller that sends its object without the label gets none, because it would get one on every
// update. A user of kubectl replace gets none either.
func TestRemovedLabelWarns(t *testing.T) {
	kubectl := &metav1.UpdateOptions{FieldManager: "kubectl-label"}
	for name, c := range map[string]struct {
		was     []string
		is      []string
		options runtime.Object
		told    int
	}{
		"removed with kubectl":         {[]string{"a"}, nil, kubectl, 1},
		"omitted by a controller":      {[]string{"a"}, nil, &metav1.UpdateOptions{FieldManager: "operator"}, 0},
		"omitted with kubectl replace": {[]string{"a"}, nil, &metav1.UpdateOptions{FieldManager: "kubectl-replace"}, 0},
		"omitted without options":      {[]string{"a"}, nil, nil, 0},
		"unchanged":                    {[]string{"a"}, []string{"a"}, kubectl, 0},
		"no label before":              {nil, nil, kubectl, 0},
		"wrong label removed":          {[]string{"b"}, nil, kubectl, 0},
	} {
		t.Run(name, func(t *testing.T) {
			told := &warnings{}
			a := admission.NewAttributesRecord(configMap("a--web", c.is...), configMap("a--web", c.was...),
				corev1.SchemeGroupVersion.WithKind("ConfigMap"), "a--web", "x",
				configMaps, "", admission.Update, c.options, false, nil)
			if err := label.New(owner).Admit(warning.WithWarningRecorder(t.Context(), told), a, nil); err != nil ||
				len(*told) != c.told {
				t.Errorf("%v, %q", err, *told)
			}
		})
	}
}

// TestRewrittenLabelWarns checks that a new object in a namespace gets the owner's label, with a
// warning if it had another label. A label is denied without a namespace, in an unowned
// namespace, and if the owner is unknown.
func TestRewrittenLabelWarns(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string
		labels    []string
		want      string
		told      int
		denied    bool
	}{
		"another tenant's":        {"a--web", []string{"b"}, "a", 1, false},
		"empty":                   {"a--web", []string{""}, "a", 1, false},
		"invalid":                 {"a--web", []string{"A B"}, "a", 1, false},
		"the owner's":             {"a--web", []string{"a"}, "a", 0, false},
		"none":                    {"a--web", nil, "a", 0, false},
		"in a system namespace":   {"kube-system", []string{"a"}, "", 1, false},
		"in an unowned namespace": {"bad", []string{"a"}, "", 0, true},
		"failed owner lookup":     {"away", []string{"a"}, "", 0, true},
		"without a namespace":     {"", []string{"a"}, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			told := &warnings{}
			a := attributes(configMap(c.namespace, c.labels...), nil, c.namespace, "")
			p := label.New(owner)
			err := p.Admit(warning.WithWarningRecorder(t.Context(), told), a, nil)
			if err == nil {
				err = p.Validate(t.Context(), a, nil)
			}
			m, accessErr := meta.Accessor(a.GetObject())
			if accessErr != nil {
				t.Fatal(accessErr)
			}
			if got := m.GetLabels()[tenant.Label]; (err != nil) != c.denied || len(*told) != c.told ||
				!c.denied && got != c.want {
				t.Errorf("%q, %v, warnings %q; want %q, denied %t", got, err, *told, c.want, c.denied)
			}
		})
	}
}

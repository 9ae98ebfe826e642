package request_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/request"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

var governed = schema.GroupKind{Group: "example.com", Kind: "Application"}

func write(kind schema.GroupKind, resource, subresource string, op admission.Operation) admission.Attributes {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	return admission.NewAttributesRecord(object, object, kind.WithVersion("v1"), "a--web", "x",
		schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: resource}, subresource, op, nil, false, nil)
}

// TestGoverned checks what is recorded: Namespaces by every subresource, since each stores labels, and
// kinds that describe pods or have an identity, except for their status.
func TestGoverned(t *testing.T) {
	p := request.New(request.Options{Kinds: map[schema.GroupKind]bool{governed: false}})
	type recorded struct{ main, status, other bool }
	rows := map[schema.GroupKind]recorded{
		{Kind: "Namespace"}:                 {true, true, true},
		governed:                            {true, false, true},
		{Kind: "ConfigMap"}:                 {false, false, false},
		{Kind: "Binding"}:                   {false, false, false},
		{Group: "other", Kind: "Pod"}:       {false, false, false},
		{Group: "policy", Kind: "Eviction"}: {false, false, false},
	}
	for kind := range workload.New(nil) {
		rows[kind] = recorded{true, false, true}
	}
	for kind, want := range rows {
		resource := "others"
		if kind.Kind == "Namespace" {
			resource = "namespaces"
		}
		for subresource, want := range map[string]bool{
			"":                    want.main,
			"status":              want.status,
			"finalize":            want.other,
			"ephemeralcontainers": want.other,
			"resize":              want.other,
		} {
			for _, op := range []admission.Operation{admission.Create, admission.Update} {
				ctx, a := plugins.WithRequested(t.Context()), write(kind, resource, subresource, op)
				if err := p.Admit(ctx, a, nil); err != nil || !p.Handles(op) {
					t.Fatal(err)
				}
				if got := plugins.Requested(ctx, a) != nil; got != want {
					t.Errorf("%s %v/%s: recorded %t", op, kind, subresource, got)
				}
			}
		}
	}
	for _, op := range []admission.Operation{admission.Delete, admission.Connect} {
		if p.Handles(op) {
			t.Error(op)
		}
	}
}

// TestReinvocation checks that what a webhook made of an object is not taken for the client's. A write
// that the server tries again is.
func TestReinvocation(t *testing.T) {
	p := request.New(request.Options{})
	pod := func(value string) admission.Attributes {
		gv := corev1.SchemeGroupVersion
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"value": value}}}
		return admission.NewAttributesRecord(object, nil, gv.WithKind("Pod"), "a--web", "x", gv.WithResource("pods"), "",
			admission.Create, nil, false, nil)
	}
	ctx := plugins.WithRequested(t.Context())
	expect := func(what, want string) {
		t.Helper()
		if got := plugins.Requested(ctx, pod("")).(*corev1.Pod).Annotations["value"]; got != want {
			t.Errorf("%s: the object %q, want %q", what, got, want)
		}
	}
	admit := func(a admission.Attributes) {
		t.Helper()
		if err := p.Admit(ctx, a, nil); err != nil {
			t.Fatal(err)
		}
	}
	a := pod("sent")
	admit(a)
	a.GetObject().(*corev1.Pod).Annotations["value"] = "changed"
	a.GetReinvocationContext().SetIsReinvoke()
	admit(a)
	expect("called again", "sent")
	admit(pod("tried again"))
	expect("another attempt", "tried again")
}

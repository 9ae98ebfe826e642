// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// TestRecordedObjects checks which objects are recorded. Namespaces are recorded for every
// subresource, because each subresource can change labels. Objects of kinds with Pod templates and
// of configured kinds are recorded for all subresources except status.
func TestRecordedObjects(t *testing.T) {
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
			t.Run(subresource, func(t *testing.T) {
				for _, op := range []admission.Operation{admission.Create, admission.Update} {
					ctx, a := plugins.WithRequested(t.Context()), write(kind, resource, subresource, op)
					if err := p.Admit(ctx, a, nil); err != nil || !p.Handles(op) {
						t.Fatal(err)
					}
					if got := plugins.Requested(ctx, a) != nil; got != want {
						t.Errorf("%s %v/%s: recorded %t", op, kind, subresource, got)
					}
				}
			})
		}
	}
	for _, op := range []admission.Operation{admission.Delete, admission.Connect} {
		if p.Handles(op) {
			t.Error(op)
		}
	}
}

// TestReinvocation checks that the record does not contain the changes of a webhook. If the server
// retries a write, the write is recorded again.
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
	a.GetObject().(*corev1.Pod).Annotations = map[string]string{"value": "changed"}
	a.GetReinvocationContext().SetIsReinvoke()
	admit(a)
	expect("reinvocation", "sent")
	admit(pod("tried again"))
	expect("another attempt", "tried again")
}

// TestRecordsAreCopies checks that the record does not contain changes that other plugins make
// later, even in place. It checks typed and unstructured objects of each kind with Pod templates.
func TestRecordsAreCopies(t *testing.T) {
	for name, spec := range map[string]corev1.PodSpec{
		"no placement": {},
		"a label":      {NodeSelector: map[string]string{"sent": "x"}},
		"a taint":      {Tolerations: append(make([]corev1.Toleration, 0, 9), corev1.Toleration{Key: "sent"})},
		"an affinity":  {Affinity: &corev1.Affinity{}},
		"a topology": {
			TopologySpreadConstraints: append(make([]corev1.TopologySpreadConstraint, 0, 9),
				corev1.TopologySpreadConstraint{TopologyKey: "sent"}),
		},
		"a class": {RuntimeClassName: new("sent")},
	} {
		t.Run(name, func(t *testing.T) {
			for kind := range workload.New(nil) {
				typed := objectOf(kind.Kind, corev1.PodTemplateSpec{Spec: spec})
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
				if err != nil {
					t.Fatal(kind, err)
				}
				for _, object := range []runtime.Object{typed.DeepCopyObject(), &unstructured.Unstructured{Object: content}} {
					if got := recordedSpec(t, kind, object); !equality.Semantic.DeepEqual(got, &spec) {
						t.Errorf("%s with %s as %T: the record has %+v", kind.Kind, name, object, got)
					}
				}
			}
		})
	}
}

// objectOf returns an object of a kind with a Pod template.
func objectOf(kind string, template corev1.PodTemplateSpec) runtime.Object {
	meta := metav1.ObjectMeta{Name: "x"}
	switch kind {
	case "Pod":
		return &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}
	case "PodTemplate":
		return &corev1.PodTemplate{ObjectMeta: meta, Template: template}
	case "ReplicationController":
		return &corev1.ReplicationController{
			ObjectMeta: meta,
			Spec:       corev1.ReplicationControllerSpec{Template: &template},
		}
	case "DaemonSet":
		return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}}
	case "Deployment":
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}
	case "ReplicaSet":
		return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Template: template}}
	case "StatefulSet":
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}}
	case "Job":
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}
	case "CronJob":
		return &batchv1.CronJob{
			ObjectMeta: meta,
			Spec: batchv1.CronJobSpec{
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
			},
		}
	}
	return nil
}

// recordedSpec returns the recorded PodSpec of an object after another plugin has changed the
// object.
func recordedSpec(t *testing.T, kind schema.GroupKind, object runtime.Object) *corev1.PodSpec {
	t.Helper()
	kinds, gvk := workload.New(nil), kind.WithVersion("v1")
	a := admission.NewAttributesRecord(object, nil, gvk, "a--web", "x", schema.GroupVersionResource{}, "",
		admission.Create, nil, false, nil)
	ctx := plugins.WithRequested(t.Context())
	if err := request.New(request.Options{}).Admit(ctx, a, nil); err != nil {
		t.Fatal(err)
	}
	obj, err := kinds.Read(object, gvk, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := obj.Templates[0].Spec
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	spec.NodeSelector["added"] = "x"
	added := append(spec.Tolerations, corev1.Toleration{Key: "added"})
	added[0], added[len(added)-1] = added[len(added)-1], added[0]
	spec.Tolerations = added
	if spec.RuntimeClassName == nil {
		spec.RuntimeClassName = new("")
	}
	*spec.RuntimeClassName = "added"
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	for i := range spec.TopologySpreadConstraints {
		spec.TopologySpreadConstraints[i].TopologyKey = "added"
	}
	spec.SchedulerName, spec.PriorityClassName = "added", "added"
	if err := obj.Write(); err != nil {
		t.Fatal(err)
	}
	sent, err := kinds.Read(plugins.Requested(ctx, a), gvk, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sent.Templates[0].Spec
}

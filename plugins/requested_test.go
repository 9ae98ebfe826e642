// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
)

// podWrite is a write of a Pod. Its value is stored in the Pod, so that tests can distinguish Pods.
type podWrite struct {
	operation                   admission.Operation
	kind, resource, subresource string
	namespace, name, generate   string
	value, uid, version         string
}

func (s podWrite) attributes() admission.Attributes {
	newObj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:         s.name,
		GenerateName: s.generate,
		Annotations:  map[string]string{"value": s.value},
	}}
	var oldObj runtime.Object
	if s.operation == admission.Update {
		oldObj = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(s.uid), ResourceVersion: s.version}}
	}
	gv := corev1.SchemeGroupVersion
	return admission.NewAttributesRecord(
		newObj,
		oldObj,
		gv.WithKind(s.kind),
		s.namespace,
		s.name,
		gv.WithResource(s.resource),
		s.subresource,
		s.operation,
		nil,
		false,
		nil,
	)
}

// createOf returns the creation of a Pod.
func createOf(name string) podWrite {
	return podWrite{
		operation: admission.Create,
		kind:      "Pod",
		resource:  "pods",
		namespace: "a--web",
		name:      name,
		value:     "sent",
	}
}

func record(ctx context.Context, a admission.Attributes) {
	plugins.RecordRequested(ctx, a, runtime.Object.DeepCopyObject)
}

// TestRequestedReturnsTheObjectOfItsWrite checks that Requested returns an object only for the
// write that was recorded.
func TestRequestedReturnsTheObjectOfItsWrite(t *testing.T) {
	create := createOf("x")
	update := create
	update.operation, update.uid, update.version = admission.Update, "1", "7"
	unnamed := create
	unnamed.name, unnamed.generate = "", "x-"
	named := unnamed // the object that the server validates
	named.name, named.value = "x-abcde", "stored"
	with := func(s podWrite, change func(*podWrite)) podWrite {
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		recorded  []podWrite
		validated podWrite
		want      string
	}{
		"nothing recorded": {nil, create, ""},
		"a creation":       {[]podWrite{create}, with(create, func(s *podWrite) { s.value = "stored" }), "sent"},
		"an update":        {[]podWrite{update}, with(update, func(s *podWrite) { s.value = "stored" }), "sent"},
		"a retried patch": {
			[]podWrite{
				with(update, func(s *podWrite) { s.value = "first" }),
				with(update, func(s *podWrite) { s.version = "8" }),
			},
			with(update, func(s *podWrite) { s.version = "8" }),
			"sent",
		},
		"an earlier attempt":        {[]podWrite{update}, with(update, func(s *podWrite) { s.version = "8" }), ""},
		"an object created again":   {[]podWrite{update}, with(update, func(s *podWrite) { s.uid = "2" }), ""},
		"a patch that creates":      {[]podWrite{create}, update, ""},
		"a patch that then updates": {[]podWrite{create, update}, update, "sent"},
		"a patch that then creates": {[]podWrite{update, create}, create, "sent"},
		"another name":              {[]podWrite{create}, with(create, func(s *podWrite) { s.name = "y" }), ""},
		"another namespace":         {[]podWrite{create}, with(create, func(s *podWrite) { s.namespace = "b--web" }), ""},
		"another kind":              {[]podWrite{create}, with(create, func(s *podWrite) { s.kind = "Binding" }), ""},
		"another resource": {
			[]podWrite{create},
			with(create, func(s *podWrite) { s.resource = "podtemplates" }),
			"",
		},
		"another subresource":     {[]podWrite{update}, with(update, func(s *podWrite) { s.subresource = "status" }), ""},
		"a second object":         {[]podWrite{create, with(create, func(s *podWrite) { s.name = "y" })}, create, ""},
		"a generated name":        {[]podWrite{unnamed}, named, "sent"},
		"another prefix":          {[]podWrite{unnamed}, with(named, func(s *podWrite) { s.generate = "y-" }), ""},
		"no prefix":               {[]podWrite{unnamed}, with(named, func(s *podWrite) { s.generate = "" }), ""},
		"neither name nor prefix": {[]podWrite{with(create, func(s *podWrite) { s.name = "" })}, create, ""},
		"two generated names":     {[]podWrite{unnamed, unnamed}, named, ""},
		"two generated prefixes":  {[]podWrite{with(unnamed, func(s *podWrite) { s.generate = "y-" }), unnamed}, named, ""},
		"a given name first":      {[]podWrite{create, unnamed}, named, "sent"},
		"an update, generated name": {
			[]podWrite{unnamed}, with(update, func(s *podWrite) { s.name, s.generate = "x-abcde", "x-" }), "",
		},
		"a given name with a prefix": {[]podWrite{with(create, func(s *podWrite) { s.generate = "x-" })}, create, "sent"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := plugins.WithRequested(t.Context())
			for _, s := range c.recorded {
				record(ctx, s.attributes())
			}
			if got := valueOf(ctx, c.validated.attributes()); got != c.want {
				t.Errorf("Requested() returns the object %q, want %q", got, c.want)
			}
		})
	}
}

func valueOf(ctx context.Context, a admission.Attributes) string {
	object := plugins.Requested(ctx, a)
	if object == nil {
		return ""
	}
	return object.(*corev1.Pod).Annotations["value"]
}

// TestRequestedIsACopy checks that later changes of the object do not reach the record.
func TestRequestedIsACopy(t *testing.T) {
	ctx := plugins.WithRequested(t.Context())
	s := createOf("x")
	a := s.attributes()
	record(ctx, a)
	a.GetObject().(*corev1.Pod).Annotations["value"] = "changed"
	if got := valueOf(ctx, a); got != "sent" {
		t.Errorf("Requested() returns the object %q", got)
	}
}

// TestRequestedIsLimitedToOneRequest checks that Requested returns an object only within the
// request that recorded it.
func TestRequestedIsLimitedToOneRequest(t *testing.T) {
	s := createOf("x")
	record(t.Context(), s.attributes()) // without a request
	if got := plugins.Requested(t.Context(), s.attributes()); got != nil {
		t.Error("Requested() returns an object without a request:", got)
	}
	record(plugins.WithRequested(t.Context()), s.attributes())
	if got := plugins.Requested(plugins.WithRequested(t.Context()), s.attributes()); got != nil {
		t.Error("Requested() returns the object of another request:", got)
	}
	ctx := plugins.WithRequested(t.Context())
	a := admission.NewAttributesRecord(nil, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "a--web", "x",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
	record(ctx, s.attributes())
	record(ctx, a)
	if got := fmt.Sprint(plugins.Requested(ctx, a), plugins.Requested(ctx, s.attributes())); got != "<nil> <nil>" {
		t.Error("Requested() returns an object for a write without an object:", got)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/internal/turns"
)

// TestEveryBuiltInKindDecodes checks that objects of all built-in kinds are decoded to the objects
// that kube-apiserver encoded. The patch of an unchanged object must be empty.
func TestEveryBuiltInKindDecodes(t *testing.T) {
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(scheme.Scheme))
	kinds := 0
	for kind := range scheme.Scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal || strings.HasSuffix(kind.Kind, "List") ||
			kind.Group == "" && kind.Kind == "Status" {
			continue
		}
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		if f := reflect.ValueOf(object).Elem().FieldByName("ObjectMeta"); !f.IsValid() {
			continue
		}
		kinds++
		for range 5 {
			filler.Fill(object)
			object.GetObjectKind().SetGroupVersionKind(kind)
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			want := reflect.New(reflect.TypeOf(object).Elem()).Interface().(runtime.Object)
			if err := json.Unmarshal(text, want); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			got, err := readObject(text, typed(kind))
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Fatalf("%s:\n%s", kind, cmp.Diff(want, got))
			}
			if patch, err := (&encodings{}).patchOf(text, want, got); err != nil || patch != nil {
				t.Fatalf("%s: patch of an unchanged object: %s, %v", kind, patch, err)
			}
			checkPatch(t, kind, text, got)
		}
	}
	if kinds < 60 {
		t.Errorf("%d kinds", kinds)
	}
}

// checkPatch changes the fields that plugins change, and checks that the patch of the text results
// in the changed object.
func checkPatch(t *testing.T, kind schema.GroupVersionKind, text []byte, object runtime.Object) {
	t.Helper()
	was := object.DeepCopyObject()
	m, ok := object.(metav1.Object)
	if !ok {
		t.Fatalf("%s has no metadata", kind)
	}
	labels := map[string]string{"kubetenant.dev/tenant": "acme"}
	for key, value := range m.GetLabels() {
		if len(labels) < 2 { // one label is removed
			labels[key] = value + "/~"
		}
	}
	m.SetLabels(labels)
	m.SetAnnotations(map[string]string{"": "x", "a~/b": ""})
	switch o := object.(type) {
	case *corev1.Pod:
		o.Spec.NodeSelector = map[string]string{"a": "b"}
		o.Spec.Tolerations = append(o.Spec.Tolerations, corev1.Toleration{Key: "k"})
		o.Spec.SchedulerName = "yunikorn"
	case *appsv1.Deployment:
		o.Spec.Template.Annotations = map[string]string{"c": "d"}
		o.Spec.Template.Spec.Tolerations = nil
	}
	patch, err := (&encodings{}).patchOf(text, was, object)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s: %s: %v", kind, patch, err)
	}
	now, err := decoded.Apply(text)
	if err != nil {
		t.Fatalf("%s: %s of %s: %v", kind, patch, text, err)
	}
	got, err := readObject(now, typed(kind))
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(got, object) {
		t.Fatalf("%s: %s:\n%s", kind, patch, cmp.Diff(object, got))
	}
}

// TestPatch checks that a patch contains only the change, and that it adds missing parents.
func TestPatch(t *testing.T) {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	for name, c := range map[string]struct {
		text   string
		change func(runtime.Object)
		want   string
	}{
		"a label is added to another label": {
			`{"metadata":{"labels":{"app":"web"}}}`,
			func(o runtime.Object) { o.(*corev1.Pod).Labels["kubetenant.dev/tenant"] = "acme" },
			`[{"op":"add","path":"/metadata/labels/kubetenant.dev~1tenant","value":"acme"}]`,
		},
		"the first label": {
			`{"metadata":{"name":"p","labels":null}}`,
			func(o runtime.Object) { o.(*corev1.Pod).Labels = map[string]string{"a": "b"} },
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`,
		},
		"no metadata": {
			`{"spec":{"containers":[]}}`, func(o runtime.Object) { o.(*corev1.Pod).Labels = map[string]string{"a": "b"} },
			`[{"op":"add","path":"/metadata","value":{}},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`,
		},
		"a label is removed": {
			`{"metadata":{"labels":{"a":"b","c":"d"}}}`, func(o runtime.Object) { delete(o.(*corev1.Pod).Labels, "a") },
			`[{"op":"remove","path":"/metadata/labels/a"}]`,
		},
		"the last label is removed": {
			`{"metadata":{"labels":{"a":"b"}}}`, func(o runtime.Object) { o.(*corev1.Pod).Labels = nil },
			`[{"op":"remove","path":"/metadata/labels"}]`,
		},
		"a label becomes empty": {
			`{"metadata":{"labels":{"a":"b"}}}`, func(o runtime.Object) { o.(*corev1.Pod).Labels["a"] = "" },
			`[{"op":"add","path":"/metadata/labels/a","value":""}]`,
		},
		"a field in a list": {
			`{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`,
			func(o runtime.Object) { o.(*corev1.Pod).Spec.Containers[1].Image = "i" },
			`[{"op":"add","path":"/spec/containers/1/image","value":"i"}]`,
		},
		"a pointer to false": {
			`{"spec":{"enableServiceLinks":true,"unknown":1}}`,
			func(o runtime.Object) { *o.(*corev1.Pod).Spec.EnableServiceLinks = false },
			`[{"op":"add","path":"/spec/enableServiceLinks","value":false}]`,
		},
		"no change": {`{"metadata":{"labels":{}},"unknown":1}`, func(o runtime.Object) { o.(*corev1.Pod).Labels = nil }, ``},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := readObject([]byte(c.text), typed(pod))
			if err != nil {
				t.Fatal(err)
			}
			was := object.DeepCopyObject()
			c.change(object)
			if patch, err := (&encodings{}).patchOf([]byte(c.text), was, object); err != nil || string(patch) != c.want {
				t.Errorf("%s, %v; want %s", patch, err, c.want)
			}
		})
	}
}

// TestCustomObjectsAreDecodedOnDemand checks that, for custom kinds, only the metadata is decoded
// unless plugins read the content.
func TestCustomObjectsAreDecodedOnDemand(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Job"}
	text := `{"apiVersion":"example.com/v1","kind":"Job","metadata":{"name":"j","labels":{"a":"b"}},` +
		`"spec":{"templates":[{"spec":{"n":1}},null]}}`
	o := newObjects(func(gk schema.GroupKind) bool { return gk == kind.GroupKind() }, 1<<10, 1<<20)
	read, done, err := o.read(t.Context(), kind, []byte(text), []byte("null"))
	if err != nil {
		t.Fatal(err)
	}
	u, ok := read[0].(*unstructured.Unstructured)
	if !ok || read[1] != nil || o.trees.TryAcquire(1<<10) {
		t.Fatalf("%T, %v, or no memory is reserved", read[0], read[1])
	}
	was := u.DeepCopy()
	if err := unstructured.SetNestedField(u.Object, "x", "metadata", "annotations", "k"); err != nil {
		t.Fatal(err)
	}
	u.Object["spec"].(map[string]any)["templates"].([]any)[0].(map[string]any)["spec"].(map[string]any)["n"] = int64(2)
	patch, err := (&encodings{}).patchOf([]byte(text), was, u)
	if want := `[{"op":"add","path":"/metadata/annotations","value":{"k":"x"}},{"op":"add",` +
		`"path":"/spec/templates/0/spec/n","value":2}]`; err != nil || string(patch) != want {
		t.Errorf("%s, %v; want %s", patch, err, want)
	}
	done()
	if !o.trees.TryAcquire(1 << 10) {
		t.Error("the memory is not released")
	}
	waits, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, _, err := o.read(waits, kind, []byte(text)); !errors.Is(err, turns.ErrBusy) {
		t.Errorf("with no memory left: %v", err)
	}
	o.trees.Release(1 << 10)
	if _, _, err := newObjects(o.readsContent, 1, 1).read(t.Context(), kind, []byte(text)); !errors.Is(err, errTooLarge) {
		t.Errorf("an object above the memory limit: %v", err)
	}
	read, done, err = newObjects(func(schema.GroupKind) bool { return false }, 1, 1).read(t.Context(), kind, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	custom, ok := read[0].(*customObject)
	if !ok || custom.Kind != "Job" || custom.Labels["a"] != "b" || custom.Content != nil {
		t.Fatalf("%#v", read[0])
	}
	cameAs := custom.DeepCopyObject()
	if patch, err := (&encodings{}).patchOf([]byte(text), cameAs, custom); err != nil || patch != nil {
		t.Errorf("patch of an unchanged object: %s, %v", patch, err)
	}
	custom.Labels["a"] = "c"
	content := custom.UnstructuredContent()
	if name, _, _ := unstructured.NestedString(content, "metadata", "labels", "a"); name != "c" {
		t.Errorf("%v", content)
	}
	content["spec"].(map[string]any)["templates"].([]any)[0].(map[string]any)["spec"].(map[string]any)["n"] = int64(3)
	patch, err = (&encodings{}).patchOf([]byte(text), cameAs, custom)
	if want := `[{"op":"add","path":"/metadata/labels/a","value":"c"},{"op":"add","path":"/spec/templates/0/spec/n",` +
		`"value":3}]`; err != nil || string(patch) != want {
		t.Errorf("%s, %v; want %s", patch, err, want)
	}
	// Objects that differ in a field that is not decoded are never equal.
	fresh := func(text string) runtime.Object {
		t.Helper()
		object, err := readObject([]byte(text), typed(kind))
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	if equality.Semantic.DeepEqual(fresh(text), fresh(strings.Replace(text, `"n":1`, `"n":2`, 1))) {
		t.Error("objects with different fields are equal")
	}
	if !equality.Semantic.DeepEqual(fresh(text), fresh(text)) {
		t.Error("the same objects are not equal")
	}
	for _, bad := range []string{`[]`, `"x"`, `1`, `{`, `{"metadata":1}`} {
		if _, err := readObject([]byte(bad), typed(kind)); err == nil {
			t.Errorf("%s is decoded as an object", bad)
		}
		if _, err := readObject([]byte(bad), readTree); err == nil && bad != `{"metadata":1}` {
			t.Errorf("%s is decoded as a tree", bad)
		}
	}
}

// typed returns a function that decodes objects of a kind.
func typed(kind schema.GroupVersionKind) func([]byte) (runtime.Object, error) {
	return func(raw []byte) (runtime.Object, error) { return readTyped(kind, raw) }
}

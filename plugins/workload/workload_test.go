// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/plugins/workload"
)

var farm = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Farm"}

func kinds() workload.Kinds {
	return workload.New(map[schema.GroupKind][]string{farm.GroupKind(): {"spec.roles.*.template", "spec.main.template"}})
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestTemplatePaths checks that every template is found, and that an unreadable template causes an
// error.
func TestTemplatePaths(t *testing.T) {
	const pod = `{"spec":{"containers":[],"nodeName":"n"}}`
	for text, want := range map[string][]string{
		`{"spec":{"roles":{"b":{"template":` + pod + `},"a":{"template":` + pod +
			`}}}}`: {"spec.roles[a].template", "spec.roles[b].template"},
		`{"spec":{"roles":[{"template":` + pod + `}],"main":{"template":` + pod +
			`}}}`: {"spec.roles[0].template", "spec.main.template"},
		`{"spec":{"roles":{"a":{}}}}`: {},
		`{}`:                          {},
		`{"spec":null}`:               {},
		`{"spec":"x"}`:                nil,
		`{"spec":{"roles":"x"}}`:      nil,
		`{"spec":{"roles":{"a":{"template":"x"}}}}`:              nil,
		`{"spec":{"roles":[{"template":"x"}]}}`:                  nil,
		`{"spec":{"main":[]}}`:                                   nil,
		`{"spec":{"main":{"template":{"spec":{"nodeName":1}}}}}`: nil,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := kinds().Read(object(t, text), farm, nil)
			if want == nil {
				if err == nil {
					t.Error("Read must fail")
				}
				return
			}
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			paths := []string{}
			for _, template := range got.Templates {
				paths = append(paths, template.Path)
				if template.Spec.NodeName != "n" {
					t.Errorf("%v", template.Spec)
				}
			}
			if !slices.Equal(paths, want) {
				t.Errorf("%v, want %v", paths, want)
			}
		})
	}
}

// TestWrite checks that Write stores the changes and retains unknown fields.
func TestWrite(t *testing.T) {
	u := object(t,
		`{"spec":{"main":{"template":{"metadata":{"annotations":{"a":"1"},"unknown":true},`+
			`"spec":{"nodeSelector":{"x":"y"},"unknown":[1]}}}}}`)
	o, err := kinds().Read(u, farm, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Templates[0].Meta.Annotations["b"] = "2"
	o.Templates[0].Spec.NodeSelector["z"] = "w"
	o.Templates[0].Spec.Tolerations = []corev1.Toleration{{Key: "k"}}
	if err := o.Write(); err != nil {
		t.Fatal(err)
	}
	want := object(t,
		`{"spec":{"main":{"template":{"metadata":{"annotations":{"a":"1","b":"2"},"unknown":true},`+
			`"spec":{"nodeSelector":{"x":"y","z":"w"},"tolerations":[{"key":"k"}],"unknown":[1]}}}}}`)
	if !reflect.DeepEqual(u.Object, want.Object) {
		t.Errorf("got %v", u.Object)
	}
}

// TestOtherKindsHaveNoTemplates checks that Read returns nil for a kind without Pod templates.
func TestOtherKindsHaveNoTemplates(t *testing.T) {
	if o, err := kinds().Read(object(t, "{}"), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, nil); o != nil ||
		err != nil {
		t.Error(o, err)
	}
}

// FuzzRead checks that Read does not panic, and that Write does not lose a template.
func FuzzRead(f *testing.F) {
	f.Add(`{"spec":{"roles":{"a":{"template":{"spec":{"nodeName":"n"}}}}}}`)
	f.Add(`{"spec":{"roles":[{"template":{"metadata":{"annotations":{"a":"b"}},"spec":{}}}]}}`)
	f.Add(`{"spec":{"main":{"template":{"spec":{"tolerations":[{"key":"x"}]}}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		u := &unstructured.Unstructured{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &u.Object); err != nil || u.Object == nil {
			return
		}
		o, err := kinds().Read(u, farm, nil)
		if err != nil {
			return
		}
		again := len(o.Templates)
		if err := o.Write(); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(u.Object); err != nil {
			t.Fatal(err)
		}
		back, err := kinds().Read(u, farm, nil)
		if err != nil || len(back.Templates) != again {
			t.Errorf("%q: %d templates, %d after writing: %v", text, again, len(back.Templates), err)
		}
	})
}

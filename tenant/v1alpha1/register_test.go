// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestScheme checks that the scheme contains the kind and the list kind of each
// CustomResourceDefinition.
func TestScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var resources []string
	for file, text := range deploy.Definitions() {
		var definition struct {
			Spec struct {
				Group string
				Names struct{ Plural, Kind, ListKind string }
			}
		}
		if err := yaml.Unmarshal([]byte(text), &definition); err != nil {
			t.Fatal(err)
		}
		names := definition.Spec.Names
		resources = append(resources, names.Plural)
		if definition.Spec.Group != v1alpha1.SchemeGroupVersion.Group {
			t.Errorf("%s has the group %q", file, definition.Spec.Group)
		}
		for _, kind := range []string{names.Kind, names.ListKind} {
			if !scheme.Recognizes(v1alpha1.SchemeGroupVersion.WithKind(kind)) {
				t.Errorf("the scheme does not have %s", kind)
			}
		}
	}
	slices.Sort(resources)
	if want := v1alpha1.ResourceNames(); !slices.Equal(resources, want) {
		t.Errorf("the definitions have the resources %q; want %q", resources, want)
	}
	if v1alpha1.SchemeGroupVersion.String() != v1alpha1.GroupVersion {
		t.Errorf("the group and version are %s and %s", v1alpha1.SchemeGroupVersion, v1alpha1.GroupVersion)
	}
}

// TestNamespaceTemplateObject checks that an object retains all of its fields when it is decoded
// and encoded, and that a copy shares no memory with the object.
func TestNamespaceTemplateObject(t *testing.T) {
	const text = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"n":9007199254740993,"x":null}}`
	var o v1alpha1.NamespaceTemplateObject
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.APIVersion != "v1" || o.Kind != "ConfigMap" || string(o.Metadata.Raw) != `{"name":"a"}` {
		t.Errorf("%s decodes to %q, %q, %s", text, o.APIVersion, o.Kind, o.Metadata.Raw)
	}
	shared := o
	copied := o.DeepCopy()
	copy(o.Content.Raw, strings.Repeat(" ", len(text)))
	for what, is := range map[string]struct {
		object *v1alpha1.NamespaceTemplateObject
		same   bool
	}{"an assignment": {&shared, false}, "a copy": {copied, true}} {
		t.Run(what, func(t *testing.T) {
			got := string(is.object.Content.Raw)
			if (got == text) != is.same {
				t.Errorf("%s has %s", what, got)
			}
		})
	}
	got, err := json.Marshal(copied)
	if err != nil || string(got) != text {
		t.Errorf("%s encodes to %s: %v", text, got, err)
	}
}

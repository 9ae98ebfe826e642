// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubetenant/kubetenant/internal/projection"
)

func mustParse(t testing.TB, texts ...string) (out []projection.Path) {
	t.Helper()
	for _, text := range texts {
		p, err := projection.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, p)
	}
	return out
}

func project(t testing.TB, from string, fields ...string) *projection.Projection {
	t.Helper()
	return projection.New(mustParse(t, from)[0], mustParse(t, fields...))
}

func tracker(t testing.TB) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/tracker.json")
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

func decode(t testing.TB, text []byte) (out map[string]any) {
	t.Helper()
	if err := utiljson.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestParse checks that String returns the text of each valid path, and that any other text is an
// error.
func TestParse(t *testing.T) {
	for _, text := range []string{
		"spec", "spec.type", "spec.list[*].name", "spec.list[*][*]", "metadata.labels['example.com/key']",
		"metadata.labels['example.com/key'].x", "spec.list[*]", "a-b._c.$d",
	} {
		p, err := projection.Parse(text)
		if err != nil || p.String() != text {
			t.Errorf("%s: %q, %v", text, p, err)
		}
	}
	for _, text := range []string{
		"", ".", ".spec", "spec.", "spec..type", "[*]", "[*].a", "['a']", "spec[0]", "spec[*", "spec[*]name", "spec.[*]",
		"spec['a", "spec['']", `spec["a"]`, "spec['a'b']", "spec.*", "spec.**.name", "spec['a\\']", "spec. type", "späc",
		"spec[?(@.a)]", "$.spec[*]x", strings.Repeat("a.", 40) + "a",
	} {
		if p, err := projection.Parse(text); err == nil {
			t.Errorf("%q is accepted: %v", text, p)
		}
	}
}

// TestPart checks that a part contains only the listed fields, and only the list entries that
// belong to its namespace.
func TestPart(t *testing.T) {
	const list = "spec.managedResources[*].namespace"
	entries := []string{
		"spec.type", "spec.managedResources[*].kind", "spec.managedResources[*].name", "spec.managedResources[*].skipGC",
		"status.conditions[*].type",
	}
	const meta = `{"metadata":{"name":"shop-v1-acme--web","namespace":"acme--web","resourceVersion":"7"}`
	for what, c := range map[string]struct {
		from, namespace, want string
		fields                []string
	}{
		"entries of a list": {list, "acme--web", meta + `,"spec":{"managedResources":[` +
			`{"kind":"Deployment","name":"shop","skipGC":false},{"kind":"Service","name":"web"}],"type":"versioned"},` +
			`"status":{"conditions":[{"type":"Ready"},{"type":"Own"}]}}`, entries},
		"an object of one namespace": {
			"metadata.labels['app.oam.dev/namespace']", "acme--web",
			`{"metadata":{"labels":{"app.oam.dev/name":"shop"},"name":"shop-v1-acme--web","namespace":"acme--web",` +
				`"resourceVersion":"7"},"spec":{"managedResources":[{"name":"cluster-SECRET"},{"name":"web"}]}}`,
			[]string{"metadata.labels['app.oam.dev/name']", "spec.managedResources[*].name"},
		},
		"nested objects of other namespaces": {
			list, "acme--web", meta + `,"spec":{"own":{"name":"web"}}}`,
			[]string{"spec.own.name", "spec.foreign.name", "spec.managedResources[*].source.name"},
		},
		"a namespace without entries":    {list, "acme--db", "", entries},
		"an object of another namespace": {"metadata.labels['app.oam.dev/namespace']", "globex--shop", "", entries},
		"no namespace":                   {list, "", "", entries},
		"a path that does not exist":     {"spec.resources[*].namespace", "acme--web", "", entries},
		"a list without [*]":             {"spec.managedResources.namespace", "acme--web", "", entries},
		"an object with [*]":             {"spec[*].namespace", "acme--web", "", entries},
		"a namespace that is an object":  {"spec", "acme--web", "", entries},
		"objects and lists as fields": {
			list, "acme--web", meta + `}`, []string{"spec", "spec.managedResources", "metadata.managedFields", "status"},
		},
		"entries as fields": {
			list, "acme--web", meta + `}`, []string{"spec.managedResources[*]", "spec.managedResources[*].raw"},
		},
		"fields in a field of another type": {list, "acme--web", meta + `}`, []string{"spec.type.x", "spec.type[*]"}},
		"only the namespace": {
			list, "acme--web",
			meta + `,"spec":{"managedResources":[{"namespace":"acme--web"},{"namespace":"acme--web"}]}}`,
			[]string{list},
		},
	} {
		t.Run(what, func(t *testing.T) {
			got, belongs := project(t, c.from, c.fields...).Part(tracker(t), c.namespace)
			text, err := json.Marshal(got)
			if err != nil || belongs != (c.want != "") || belongs && string(text) != strings.ReplaceAll(c.want, "\n", "") {
				t.Errorf("%s:\n%s, want\n%s", what, text, c.want)
			}
			if what != "an object of one namespace" && strings.Contains(string(text), "SECRET") {
				t.Errorf("the part contains data of other namespaces: %s", text)
			}
		})
	}
}

// TestUnexpectedObjectHasNoPart checks that an object with missing or unexpected fields has no
// part.
func TestUnexpectedObjectHasNoPart(t *testing.T) {
	p := project(t, "spec.list[*].namespace", "spec.list[*].name")
	for _, text := range []string{
		`{}`, `{"metadata":null}`, `{"metadata":"a"}`, `{"metadata":{}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"}}`,
		`{"metadata":{"name":1,"resourceVersion":"1"},"spec":{"list":[{"namespace":"n"}]}}`,
		`{"metadata":{"name":"a"},"spec":{"list":[{"namespace":"n"}]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1","namespace":"n"},"spec":{"list":[{"namespace":"n"}]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1","namespace":"x"},"spec":{"list":[{"namespace":"n"}]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"list":{"namespace":"n"}}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"list":[{"Namespace":"n"}]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"list":[{"namespace":["n"]}]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"list":[{"namespace":{"n":"n"}}]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"list":[{"namespace":"n "}]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"list":[[{"namespace":"n"}]]}}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":[{"list":[{"namespace":"n"}]}]}`,
		`{"metadata":{"name":"a","resourceVersion":"1"},"spec":"n"}`,
	} {
		if got, belongs := p.Part(decode(t, []byte(text)), "n"); belongs {
			t.Errorf("%s: %v", text, got)
		}
	}
	var zero projection.Projection
	if got, belongs := zero.Part(tracker(t), "acme--web"); belongs {
		t.Errorf("the zero value: %v", got)
	}
	if got, belongs := p.Part(nil, "n"); belongs {
		t.Errorf("nil: %v", got)
	}
}

// TestPartSharesNoMemory checks that a change to the part does not change the object.
func TestPartSharesNoMemory(t *testing.T) {
	object := tracker(t)
	got, _ := project(t, "spec.managedResources[*].namespace", "spec.managedResources[*].name", "spec.type").
		Part(object, "acme--web")
	got["metadata"].(map[string]any)["name"] = "changed"
	got["spec"].(map[string]any)["managedResources"].([]any)[0].(map[string]any)["name"] = "changed"
	if !reflect.DeepEqual(object, tracker(t)) {
		t.Error("the object has changed")
	}
}

// FuzzPart checks that the part of an object does not depend on the entries of other namespaces.
// It also checks that no object causes a panic, and that a part contains only the strings,
// numbers and booleans in the listed fields.
func FuzzPart(f *testing.F) {
	text, err := os.ReadFile("testdata/tracker.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, "acme--web", uint8(1))
	const start = `{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"managedResources":`
	f.Add([]byte(start+`[{"namespace":"n"}]}}`), "n", uint8(0))
	f.Add([]byte(start+`[[]]}}`), "", uint8(9))
	p := project(f, "spec.managedResources[*].namespace", "spec.type", "spec.managedResources[*].kind",
		"spec.managedResources[*].namespace", "spec.managedResources[*].nested[*].name")
	f.Fuzz(func(t *testing.T, text []byte, namespace string, at uint8) {
		var object map[string]any
		if utiljson.Unmarshal(text, &object) != nil {
			return
		}
		before, belongs := p.Part(object, namespace)
		checkEntries(t, before, namespace)
		spec, _ := object["spec"].(map[string]any)
		list, _ := spec["managedResources"].([]any)
		if spec == nil || list == nil {
			if belongs {
				t.Fatalf("a part without a list: %v", before)
			}
			return
		}
		i := int(at) % (len(list) + 1)
		for _, foreign := range []any{
			map[string]any{"namespace": namespace + "x", "kind": "SECRET"},
			map[string]any{"kind": "SECRET"},
			map[string]any{"namespace": map[string]any{"x": namespace}, "kind": "SECRET"},
			"SECRET",
			[]any{map[string]any{"namespace": namespace, "kind": "SECRET"}},
			nil,
		} {
			more := append(append(append([]any{}, list[:i]...), foreign), list[i:]...)
			spec["managedResources"] = more
			after, still := p.Part(object, namespace)
			if still != belongs || !reflect.DeepEqual(after, before) {
				t.Fatalf("with %v: %v, want %v", foreign, after, before)
			}
		}
	})
}

// checkEntries fails the test if a part contains an entry of another namespace, or a field that is
// not listed.
func checkEntries(t *testing.T, part map[string]any, namespace string) {
	t.Helper()
	for key := range part {
		if key != "metadata" && key != "spec" {
			t.Fatalf("%s is not listed", key)
		}
	}
	if part == nil {
		return
	}
	if metadata := part["metadata"].(map[string]any); len(metadata) != 3 || metadata["namespace"] != namespace {
		t.Fatalf("metadata: %v", metadata)
	}
	spec, _ := part["spec"].(map[string]any)
	for key, value := range spec {
		switch value.(type) {
		case string, bool, int64, float64:
			if key != "type" {
				t.Fatalf("%s is not listed", key)
			}
		case []any:
			if key != "managedResources" {
				t.Fatalf("%s is not listed", key)
			}
		default:
			t.Fatalf("%s: %v", key, value)
		}
	}
	list, _ := spec["managedResources"].([]any)
	for _, entry := range list {
		if is := entry.(map[string]any)["namespace"]; is != namespace {
			t.Fatalf("an entry has the namespace %v", is)
		}
	}
}

// TestOtherNamespaceObjectShowsOnlyPath checks that an object that names another namespace is
// reduced to its field on the path to the given namespace. It also checks that lists of
// namespaces are recognized.
func TestOtherNamespaceObjectShowsOnlyPath(t *testing.T) {
	const meta = `"metadata":{"name":"n","resourceVersion":"1"}`
	for what, c := range map[string]struct{ from, field, spec, want string }{
		"an entry on the path": {
			"spec.a[*].b[*].namespace", "spec.a[*].name",
			`{"a":[{"namespace":"globex","name":"secret","b":[{"namespace":"acme"}]}]}`, "",
		},
		"a list in an entry on the path": {
			"spec.a[*].b[*].namespace", "spec.a[*].b[*].name",
			`{"a":[{"namespace":"globex","name":"secret","b":[{"namespace":"acme","name":"own"}]}]}`,
			`{"a":[{"b":[{"name":"own"}]}]}`,
		},
		"an object on the path": {
			"spec.apps[*].ref.namespace", "spec.apps[*].namespace",
			`{"apps":[{"namespace":"globex","ref":{"namespace":"acme"}}]}`, "",
		},
		"namespaces in a list": {
			"spec.namespace", "spec.items[*].name",
			`{"namespace":"acme","items":[{"name":"secret","namespaces":["globex"]},{"name":"own","namespaces":["acme"]}]}`,
			`{"items":[{"name":"own"}]}`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			var object map[string]any
			if err := utiljson.Unmarshal([]byte(`{`+meta+`,"spec":`+c.spec+`}`), &object); err != nil {
				t.Fatal(err)
			}
			part, belongs := project(t, c.from, c.field).Part(object, "acme")
			got := ""
			if spec, ok := part["spec"]; ok {
				text, err := json.Marshal(spec)
				if err != nil {
					t.Fatal(err)
				}
				got = string(text)
			}
			if !belongs || got != c.want {
				t.Errorf("%t, %s, want %s", belongs, got, c.want)
			}
		})
	}
}

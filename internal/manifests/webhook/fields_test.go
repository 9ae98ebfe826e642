// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/tenant"
)

// removesFields is a part of the message of the policy that protects the fields of definitions.
const removesFields = "this definition lacks fields of the installed one"

// definitionSpec returns the spec of a definition.
func definitionSpec(t *testing.T, file string) map[string]any {
	t.Helper()
	var u map[string]any
	if err := yaml.Unmarshal([]byte(deploy.Definitions()[file]), &u); err != nil {
		t.Fatal(err)
	}
	return u["spec"].(map[string]any)
}

// versionIn returns the first version of the spec of a definition.
func versionIn(spec map[string]any) map[string]any {
	return spec["versions"].([]any)[0].(map[string]any)
}

// fieldsAt returns the fields at a path below the schema. The path "spec" has the fields of spec.
func fieldsAt(spec map[string]any, path ...string) map[string]any {
	at := versionIn(spec)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	for _, name := range path {
		if name == "[]" {
			at = at["items"].(map[string]any)
			continue
		}
		at = at["properties"].(map[string]any)[name].(map[string]any)
	}
	return at["properties"].(map[string]any)
}

func definitionUpdate(oldObj, newObj, annotations map[string]any) *attempt {
	return &attempt{
		operation:   admission.Update,
		resource:    resourceOf("apiextensions.k8s.io", "customresourcedefinitions"),
		name:        "tenants.kubetenant.dev",
		oldMetadata: map[string]any{"annotations": annotations},
		oldSpec:     oldObj,
		spec:        newObj,
		by:          &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}},
	}
}

// TestPolicyOfDefinitions checks that no caller can remove fields from an installed definition,
// unless an annotation of the installed definition allows it.
func TestPolicyOfDefinitions(t *testing.T) {
	t.Parallel()
	set := generatedSet(t, options(t))
	later := map[string]any{"type": "string"}
	for name, c := range map[string]struct {
		annotations map[string]any
		was, is     func(map[string]any) // change a definition of this release
		denied      string
	}{
		"unchanged":   {},
		"a new field": {is: func(s map[string]any) { fieldsAt(s, "spec")["later"] = later }},
		"an older release": {
			was:    func(s map[string]any) { fieldsAt(s, "spec")["later"] = later },
			denied: removesFields,
		},
		"an older release without a field of a list": {
			was:    func(s map[string]any) { fieldsAt(s, "spec", "bindings", "[]")["later"] = later },
			denied: removesFields,
		},
		"an older release without a field of a list in a list": {
			is:     func(s map[string]any) { delete(fieldsAt(s, "spec", "bindings", "[]", "subjects", "[]"), "kind") },
			denied: removesFields,
		},
		"an older release without a field at the top": {
			is:     func(s map[string]any) { delete(fieldsAt(s), "status") },
			denied: removesFields,
		},
		"an older release that prunes unknown fields": {
			was: func(s map[string]any) {
				fieldsAt(s)["spec"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
			},
			denied: removesFields,
		},
		"a release that preserves unknown fields": {is: func(s map[string]any) {
			fieldsAt(s)["spec"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}},
		"a list that becomes another type": {
			is:     func(s map[string]any) { fieldsAt(s, "spec")["bindings"] = later },
			denied: removesFields,
		},
		"without the version": {
			is:     func(s map[string]any) { versionIn(s)["name"] = "v9" },
			denied: removesFields,
		},
		"with a version that is no longer served": {
			is:     func(s map[string]any) { versionIn(s)["served"] = false },
			denied: removesFields,
		},
		"a version that was not served": {
			was: func(s map[string]any) { versionIn(s)["served"] = false },
			is:  func(s map[string]any) { versionIn(s)["name"] = "v9" },
		},
		"with the annotation": {
			annotations: map[string]any{tenant.AllowFieldRemovalAnnotation: "true"},
			was:         func(s map[string]any) { fieldsAt(s, "spec")["later"] = later },
		},
		"with another value of the annotation": {
			annotations: map[string]any{tenant.AllowFieldRemovalAnnotation: "yes"},
			was:         func(s map[string]any) { fieldsAt(s, "spec")["later"] = later },
			denied:      removesFields,
		},
		"a definition of another project": {
			was: func(s map[string]any) {
				fieldsAt(s, "spec")["later"] = later
				s["group"] = "example.com"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			oldSpec, newSpec := definitionSpec(t, "tenants.yaml"), definitionSpec(t, "tenants.yaml")
			if c.was != nil {
				c.was(oldSpec)
			}
			if c.is != nil {
				c.is(newSpec)
			}
			expectDenial(t, name, set.denialMessages(t, definitionUpdate(oldSpec, newSpec, c.annotations)), c.denied)
		})
	}
}

// TestPolicyOfDefinitionsReadsEachField checks that the policy denies an update that removes any
// field from the definition of Tenants, or the deepest field from any other definition.
func TestPolicyOfDefinitionsReadsEachField(t *testing.T) {
	t.Parallel()
	set := generatedSet(t, options(t))
	for file := range deploy.Definitions() {
		t.Run(file, func(t *testing.T) {
			was := definitionSpec(t, file)
			expectDenial(t, "unchanged", set.denialMessages(t, definitionUpdate(was, was, nil)), "")
			root := []string{"versions", "0", "schema", "openAPIV3Schema"}
			paths := fieldPaths(schemaAt(was, root), root)
			if len(paths) < 5 {
				t.Fatalf("only %d fields", len(paths))
			}
			if file != "tenants.yaml" {
				paths = [][]string{slices.MaxFunc(paths, func(a, b []string) int { return len(a) - len(b) })}
			}
			for _, path := range paths {
				is := runtime.DeepCopyJSON(was)
				last := len(path) - 1
				delete(schemaAt(is, path[:last]), path[last])
				expectDenial(t, strings.Join(path, "."), set.denialMessages(t, definitionUpdate(was, is, nil)), removesFields)
			}
		})
	}
}

// schemaAt returns the map at a path. The path "0" is the first element of a list.
func schemaAt(in map[string]any, path []string) map[string]any {
	var at any = in
	for _, key := range path {
		if list, ok := at.([]any); ok {
			at = list[0]
			continue
		}
		at = at.(map[string]any)[key]
	}
	return at.(map[string]any)
}

// fieldPaths returns the paths of all fields below a schema. It omits objects with
// x-kubernetes-preserve-unknown-fields.
func fieldPaths(schema map[string]any, at []string) (all [][]string) {
	below := func(more ...string) []string { return append(append([]string{}, at...), more...) }
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	fields, _ := schema["properties"].(map[string]any)
	for name, field := range fields {
		all = append(all, below("properties", name))
		all = append(all, fieldPaths(field.(map[string]any), below("properties", name))...)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if elements, ok := schema[key].(map[string]any); ok {
			all = append(all, fieldPaths(elements, below(key))...)
		}
	}
	return all
}

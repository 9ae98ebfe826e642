// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package template_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// templateOf parses a template with the given objects.
func templateOf(t *testing.T, objects string) *template.Template {
	t.Helper()
	stored := &v1alpha1.NamespaceTemplate{}
	if err := yaml.Unmarshal([]byte("spec: { objects: [ "+objects+" ] }"), stored); err != nil {
		t.Fatal(err)
	}
	out, err := template.Parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTemplateValidate checks that an object that is not allowed in a template is rejected with
// an error that names the field.
func TestTemplateValidate(t *testing.T) {
	const good = `{ apiVersion: v1, kind: ConfigMap, metadata: { name: x } }`
	in := func(fields string) string {
		return `{ apiVersion: v1, kind: ConfigMap, metadata: { name: x, ` + fields + ` } }`
	}
	for objects, want := range map[string]string{
		good: "",
		in(`labels: { a: "${tenant}" }, annotations: { b: "${namespace}" }`):                                           "",
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: "x.${namespace}" }, data: { "${tenant}": "${other}" } }`: "",
		`{ apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, ` +
			`metadata: { name: x }, spec: { podSelector: {}, ingress: [ { from: [ { namespaceSelector: { matchLabels: { ` +
			`kubetenant.dev/tenant: "${tenant}" } } } ] } ] } }`: "",
		`{ apiVersion: v1, kind: LimitRange, metadata: { name: x }, ` +
			`spec: { limits: [ { type: Container, default: { cpu: 100m } } ] } }`: "",
		`{ apiVersion: v1, kind: ResourceQuota, metadata: { name: x }, spec: { hard: { pods: 10 } } }`: "",
		good + `, ` + good: "spec.objects[1]: has the same kind and name as another object",
		`{}`:               `spec.objects[0]: kind "" of apiVersion "": must be ConfigMap`,
		`{ apiVersion: v1, kind: Secret, metadata: { name: x } }`:    "must be ConfigMap",
		`{ apiVersion: v1, kind: Namespace, metadata: { name: x } }`: "must be ConfigMap",
		`{ apiVersion: v2, kind: ConfigMap, metadata: { name: x } }`: "must be ConfigMap",
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, ` +
			`metadata: { name: x } }`: "must be ConfigMap",
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: { name: x } }`: "must be ConfigMap",
		`{ apiVersion: example.com/v1, kind: ConfigMap, metadata: { name: x } }`:                 "must be ConfigMap",
		`{ apiVersion: v1, kind: ConfigMapList, items: [] }`:                                     "must be ConfigMap",
		`{ apiVersion: v1, kind: ConfigMap }`:                                                    "metadata.name must be set",
		`{ apiVersion: v1, kind: ConfigMap, metadata: [] }`:                                      "metadata.name must be set",
		`{ apiVersion: v1, kind: ConfigMap, metadata: {} }`:                                      `metadata.name ""`,
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: "X_y" } }`:                         `metadata.name "X_y"`,
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: "../x" } }`:                        `metadata.name "../x"`,
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: "${tenent}" } }`:                   `metadata.name "${tenent}"`,
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: x }, status: {} }`:                 "status must not be set",
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: x }, date: {} }`:                   `unknown field "date"`,
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: x }, data: { a: 1 } }`:             "cannot unmarshal number",
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: x }, data: [] }`:                   "spec.objects[0]: ",
		`{ apiVersion: v1, kind: ResourceQuota, metadata: { name: x }, ` +
			`spec: { hard: { pods: "${tenant}" } } }`: "quantities must match",
		in(`namespace: kube-system`):                      "metadata.namespace must not be set",
		in(`namespace: "${namespace}"`):                   "metadata.namespace must not be set",
		in(`generateName: x`):                             "metadata.generateName must not be set",
		in(`ownerReferences: []`):                         "metadata.ownerReferences must not be set",
		in(`finalizers: [ x/y ]`):                         "metadata.finalizers must not be set",
		in(`uid: x`):                                      "metadata.uid must not be set",
		in(`labels: { kubetenant.dev/tenant: b }`):        "metadata.labels: the key kubetenant.dev/tenant is reserved",
		in(`annotations: { kubetenant.dev/expires: "" }`): "metadata.annotations: the key kubetenant.dev/expires is reserved",
		in(`labels: { a: 1 }`):                            "metadata.labels: all values must be strings",
		in(`annotations: { a: { b: c } }`):                "metadata.annotations: all values must be strings",
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: x }, data: { a: "` + strings.Repeat("${tenant}", 20_000) +
			`" } }`: "spec.objects: must have at most 1048576 bytes",
	} {
		t.Run(objects, func(t *testing.T) {
			got := fmt.Sprint(templateOf(t, objects).Validate())
			if (got == "<nil>") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%.200s: %.300s, want %q", objects, got, want)
			}
		})
	}
}

// FuzzRender checks that placeholders are replaced in values but not in keys, and that Render
// does not change the template.
func FuzzRender(f *testing.F) {
	f.Add(`{"a":"${tenant}"}`, "x-${namespace}")
	f.Add(`{"${tenant}":"${namespace}","b":"${${tenant}}"}`, "x")
	f.Fuzz(func(t *testing.T, data, name string) {
		object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
		values := map[string]any{}
		if json.Unmarshal([]byte(data), &values) != nil {
			return
		}
		object["data"] = values
		before, err := json.Marshal(object)
		if err != nil {
			return
		}
		parsed := &template.Template{Objects: []map[string]any{object}}
		id, err := tenant.Parse("acme")
		if err != nil {
			t.Fatal(err)
		}
		out, err := parsed.Render(id, "acme--web")
		if after, _ := json.Marshal(object); string(after) != string(before) {
			t.Fatalf("the template is %s, and was %s", after, before)
		}
		if err != nil {
			return
		}
		said, _, err := unstructured.NestedStringMap(out[0].Object.Object, "data")
		if err != nil || len(said) != len(values) {
			t.Fatalf("%v of %v: %v", said, values, err)
		}
		for key, value := range values {
			text, _ := value.(string)
			if want := strings.NewReplacer("${tenant}", "acme", "${namespace}", "acme--web").Replace(text); said[key] != want {
				t.Fatalf("%q is %q, want %q", key, said[key], want)
			}
		}
		if out[0].Object.GetNamespace() != "" || len(out[0].Object.GetLabels()) > 0 {
			t.Fatalf("the object has a namespace or labels: %v", out[0].Object)
		}
	})
}

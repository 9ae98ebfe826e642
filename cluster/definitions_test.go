// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/test/waittest"
)

var crds = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// definition decodes a CustomResourceDefinition and marks it as established.
func definition(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	setCondition(u, "Established", "True")
	return u
}

func setCondition(u *unstructured.Unstructured, kind, status string) {
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": kind, "status": status}}}
}

// established returns the definitions of this release as a server stores them.
func established(t *testing.T) (all []runtime.Object) {
	t.Helper()
	for _, text := range deploy.Definitions() {
		all = append(all, definition(t, text))
	}
	return all
}

func fakeDefinitions(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{crds: "CustomResourceDefinitionList"}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
}

// schemaOf returns the schema of the only version of a definition.
func schemaOf(u *unstructured.Unstructured, path ...string) map[string]any {
	is := versionOf(u)
	for _, name := range append([]string{"schema", "openAPIV3Schema"}, path...) {
		is = is[name].(map[string]any)
	}
	return is
}

func versionOf(u *unstructured.Unstructured) map[string]any {
	versions, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "versions")
	return versions.([]any)[0].(map[string]any)
}

// TestDefinitions checks that each definition that cannot be used is reported with its state, and
// that a definition from a later release is accepted.
func TestDefinitions(t *testing.T) {
	older, err := os.ReadFile("testdata/tenants-adf3471.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec := []string{"properties", "spec", "properties"}
	for name, c := range map[string]struct {
		change  func(*unstructured.Unstructured)
		replace string
		state   cluster.DefinitionState
		says    string
	}{
		"unchanged": {},
		"from an older release": {
			replace: string(older),
			state:   cluster.DefinitionOutdated,
			says:    "spec.acceptUndated, spec.admins, spec.bindings and ",
		},
		"without one field": {
			func(u *unstructured.Unstructured) { delete(schemaOf(u, spec...), "suspension") }, "",
			cluster.DefinitionOutdated, "lacks spec.suspension",
		},
		"without a field of a list": {func(u *unstructured.Unstructured) {
			delete(schemaOf(u, append(spec, "bindings", "items", "properties")...), "clusterRole")
		}, "", cluster.DefinitionOutdated, "lacks spec.bindings[].clusterRole"},
		"with a field from a later release": {change: func(u *unstructured.Unstructured) {
			schemaOf(u, spec...)["later"] = map[string]any{"type": "string"}
		}},
		"preserving unknown fields": {change: func(u *unstructured.Unstructured) {
			s := schemaOf(u, "properties")
			s["spec"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}},
		"without the status subresource": {
			func(u *unstructured.Unstructured) { delete(versionOf(u), "subresources") }, "",
			cluster.DefinitionOutdated, "lacks the status subresource",
		},
		"with another version": {
			func(u *unstructured.Unstructured) { versionOf(u)["name"] = "v1" }, "",
			cluster.DefinitionOutdated, "does not serve the version v1alpha1",
		},
		"with a version that is not served": {
			func(u *unstructured.Unstructured) { versionOf(u)["served"] = false }, "",
			cluster.DefinitionOutdated, "does not serve the version v1alpha1",
		},
		"with another kind": {func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "Lease", "spec", "names", "kind")
		}, "", cluster.DefinitionForeign, `spec.names.kind is "Lease"`},
		"with another scope": {func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "Namespaced", "spec", "scope")
		}, "", cluster.DefinitionForeign, `spec.scope is "Namespaced"`},
		"of another project with our kind": {func(u *unstructured.Unstructured) {
			schemaOf(u, "properties", "spec")["properties"] = map[string]any{"landlord": map[string]any{"type": "string"}}
		}, "", cluster.DefinitionForeign, "none of kubetenant's fields"},
		"without a schema": {
			func(u *unstructured.Unstructured) { delete(versionOf(u), "schema") }, "",
			cluster.DefinitionForeign, "none of kubetenant's fields",
		},
		"being deleted": {func(u *unstructured.Unstructured) {
			now := metav1.Now()
			u.SetDeletionTimestamp(&now)
		}, "", cluster.DefinitionTerminating, "is being deleted"},
		"not established": {
			func(u *unstructured.Unstructured) { setCondition(u, "Established", "False") }, "",
			cluster.DefinitionNotEstablished, "is not established",
		},
		"without a status": {
			func(u *unstructured.Unstructured) { delete(u.Object, "status") }, "",
			cluster.DefinitionNotEstablished, "is not established",
		},
		"with a name that is taken": {
			func(u *unstructured.Unstructured) { setCondition(u, "NamesAccepted", "False") }, "",
			cluster.DefinitionNotEstablished, "another definition has one of its names",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := slices.DeleteFunc(established(t), func(o runtime.Object) bool {
				return o.(*unstructured.Unstructured).GetName() == "tenants.kubetenant.dev"
			})
			text := deploy.Definitions()["tenants.yaml"]
			if c.replace != "" {
				text = c.replace
			}
			changed := definition(t, text)
			if c.change != nil {
				c.change(changed)
			}
			problems, err := cluster.Definitions(t.Context(), fakeDefinitions(append(objects, changed)...))
			switch {
			case err != nil:
				t.Errorf("%v", err)
			case c.state == "" && len(problems) != 0:
				t.Errorf("%v; want no problem", &problems[0])
			case c.state != "" &&
				(len(problems) != 1 || problems[0].State != c.state || !strings.Contains(problems[0].String(), c.says)):
				t.Errorf("%+v; want %s with %q", problems, c.state, c.says)
			}
		})
	}
}

// TestDefinitionsMissing checks that each missing definition is reported.
func TestDefinitionsMissing(t *testing.T) {
	all := established(t)
	for i, missing := range all {
		name := missing.(*unstructured.Unstructured).GetName()
		problems, err := cluster.Definitions(t.Context(), fakeDefinitions(slices.Delete(slices.Clone(all), i, i+1)...))
		if err != nil || len(problems) != 1 || problems[0].Name() != name || problems[0].State != cluster.DefinitionMissing ||
			problems[0].String() != "CustomResourceDefinition "+name+" is missing" {
			t.Errorf("without %s: %+v, %v", name, problems, err)
		}
	}
	problems, err := cluster.Definitions(t.Context(), fakeDefinitions())
	if err != nil || len(problems) != len(all) {
		t.Errorf("without any definition: %+v, %v", problems, err)
	}
}

// TestDefinitionsUnreadable checks that a definition that cannot be read causes an error, and is
// not reported as missing.
func TestDefinitionsUnreadable(t *testing.T) {
	client := fakeDefinitions(established(t)...)
	client.PrependReactor("get", crds.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		if name := a.(clienttesting.GetAction).GetName(); name == "tenants.kubetenant.dev" {
			return true, nil, apierrors.NewForbidden(crds.GroupResource(), name, errors.New("no"))
		}
		return false, nil, nil
	})
	problems, err := cluster.Definitions(t.Context(), client)
	if !apierrors.IsForbidden(err) || len(problems) != 0 {
		t.Errorf("%+v, %v", problems, err)
	}
}

// TestProblems checks that Problems reports nothing until the definitions have been read, and then
// observes each change of a definition.
func TestProblems(t *testing.T) {
	client := fakeDefinitions(established(t)...)
	scopes, err := cluster.NewCRDScopes(client)
	if err != nil {
		t.Fatal(err)
	}
	if problems, known := scopes.Problems(); known || problems != nil {
		t.Errorf("before Run: %+v, %v", problems, known)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	go scopes.Run(ctx)
	want := func(states ...cluster.DefinitionState) {
		t.Helper()
		waittest.Until(t, func() error {
			problems, known := scopes.Problems()
			var got []cluster.DefinitionState
			for _, p := range problems {
				got = append(got, p.State)
			}
			if !known || !slices.Equal(got, states) {
				return errors.New("unexpected problems")
			}
			return nil
		})
	}
	want()
	if err := client.Resource(crds).Delete(ctx, "retiredtenants.kubetenant.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want(cluster.DefinitionMissing)
	again := definition(t, deploy.Definitions()["retiredtenants.yaml"])
	setCondition(again, "Established", "False")
	if _, err := client.Resource(crds).Create(ctx, again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want(cluster.DefinitionNotEstablished)
	setCondition(again, "Established", "True")
	if _, err := client.Resource(crds).Update(ctx, again, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want()
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package typed_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func grants() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants)
}

func grant(name string, spec any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindAccessGrant,
		"metadata":   map[string]any{"namespace": "acme-web", "name": name, "uid": "uid-of-" + name},
		"spec":       spec,
	}}
}

func client(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{grants(): "AccessGrantList"}, objects...)
}

// TestOneInvalidObject checks that an informer has the valid objects even if one object does not
// decode.
func TestOneInvalidObject(t *testing.T) {
	content := map[string]any{"from": map[string]any{"tenant": "globex"}}
	for name, spec := range map[string]any{
		"text for an object": "x",
		"number for text":    map[string]any{"from": map[string]any{"tenant": int64(1)}},
		"text for a list":    map[string]any{"to": "pods"},
		"invalid time":       map[string]any{"expires": "tomorrow"},
		"map for text":       map[string]any{"from": map[string]any{"tenant": map[string]any{}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := client(grant("bad", spec), grant("good", content))
			informer, err := typed.NewInformer[v1alpha1.AccessGrant](c, grants(), nil)
			if err != nil {
				t.Fatal(err)
			}
			go informer.RunWithContext(t.Context())
			if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
				t.Fatal("the informer has not synced")
			}
			obj, _, _ := informer.GetStore().GetByKey("acme-web/good")
			if g, err := typed.FromInformer[v1alpha1.AccessGrant](obj); err != nil || g.Spec.From.Tenant != "globex" {
				t.Errorf("the valid grant is %v, %v", g, err)
			}
			obj, _, _ = informer.GetStore().GetByKey("acme-web/bad")
			if _, err := typed.FromInformer[v1alpha1.AccessGrant](obj); err == nil {
				t.Error("the invalid grant decodes")
			}
			if i, ok := obj.(*typed.Invalid); !ok || i.GetUID() != "uid-of-bad" {
				t.Errorf("the invalid grant is %#v", obj)
			}
			var valid, invalid []string
			err = typed.NewClient[v1alpha1.AccessGrant](c, grants()).ForEach(t.Context(), metav1.ListOptions{},
				func(g *v1alpha1.AccessGrant) { valid = append(valid, g.Name) },
				func(i *typed.Invalid) { invalid = append(invalid, i.Name) })
			if err != nil || !slices.Equal(valid, []string{"good"}) || !slices.Equal(invalid, []string{"bad"}) {
				t.Errorf("ForEach() = %v: valid %q, invalid %q", err, valid, invalid)
			}
		})
	}
}

// TestClient checks that Get returns the spec and the status that the client wrote.
func TestClient(t *testing.T) {
	c := typed.NewClient[v1alpha1.AccessGrant](client(), grants())
	g := &v1alpha1.AccessGrant{}
	g.APIVersion, g.Kind = v1alpha1.GroupVersion, v1alpha1.KindAccessGrant
	g.Namespace, g.Name = "acme-web", "share"
	g.Spec.From.Tenant = "globex"
	created, err := c.Create(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	used := metav1.NewTime(time.Unix(1_800_000_000, 0).UTC())
	created.Status.LastUsed = &used
	if _, err := c.UpdateStatus(t.Context(), created); err != nil {
		t.Fatal(err)
	}
	read, err := c.Get(t.Context(), cache.MetaObjectToName(g))
	if err != nil || read.Spec.From.Tenant != "globex" || !read.Status.LastUsed.Equal(&used) {
		t.Errorf("Get() = %+v, %v", read, err)
	}
}

// TestClientReportsInvalid checks that Get returns an [typed.Invalid] for an object that does not
// decode, and that Delete accepts it. ForEach still reads all other objects.
func TestClientReportsInvalid(t *testing.T) {
	content := map[string]any{"from": map[string]any{"tenant": "globex"}}
	c := typed.NewClient[v1alpha1.AccessGrant](client(grant("bad", "x"), grant("good", content)), grants())
	_, err := c.Get(t.Context(), cache.NewObjectName("acme-web", "bad"))
	var invalid *typed.Invalid
	if !errors.As(err, &invalid) || invalid.UID != "uid-of-bad" || !strings.Contains(err.Error(), "AccessGrant bad") {
		t.Fatalf("Get() = %v", err)
	}
	var names []string
	each := func() {
		t.Helper()
		names = nil
		if err := c.ForEach(t.Context(), metav1.ListOptions{}, func(g *v1alpha1.AccessGrant) {
			names = append(names, g.Name)
		}, func(i *typed.Invalid) { names = append(names, "invalid "+i.Name) }); err != nil {
			t.Fatal(err)
		}
	}
	if each(); !slices.Equal(names, []string{"invalid bad", "good"}) {
		t.Errorf("ForEach() calls with %q", names)
	}
	if err := c.Delete(t.Context(), invalid); err != nil {
		t.Fatal(err)
	}
	if each(); !slices.Equal(names, []string{"good"}) {
		t.Errorf("after Delete(), ForEach() calls with %q", names)
	}
}

// TestPreconditions checks that PatchRead and Delete send the UID of the object that was read, and
// that PatchRead also sends its resource version. PatchRead retains the fields that the patch does
// not name.
func TestPreconditions(t *testing.T) {
	stored := grant("share", map[string]any{"from": map[string]any{"tenant": "globex"}, "later": "x"})
	stored.SetResourceVersion("7")
	f := client(stored)
	c := typed.NewClient[v1alpha1.AccessGrant](f, grants())
	read, err := c.Get(t.Context(), cache.NewObjectName("acme-web", "share"))
	if err != nil {
		t.Fatal(err)
	}
	patch := map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/x"}}}
	patched, err := c.PatchRead(t.Context(), read, patch)
	if err != nil || !slices.Equal(patched.Finalizers, []string{"example.com/x"}) {
		t.Errorf("PatchRead() = %+v, %v", patched, err)
	}
	now, err := f.Resource(grants()).Namespace("acme-web").Get(t.Context(), "share", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if later, _, _ := unstructured.NestedString(now.Object, "spec", "later"); later != "x" {
		t.Error("PatchRead() has removed a field")
	}
	if err := c.Delete(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	for _, a := range f.Actions() {
		switch a := a.(type) {
		case clienttesting.PatchActionImpl:
			want := `{"metadata":{"finalizers":["example.com/x"],"resourceVersion":"7","uid":"uid-of-share"}}`
			if got := string(a.Patch); got != want {
				t.Errorf("PatchRead() sends %s", got)
			}
		case clienttesting.DeleteActionImpl:
			if p := a.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != "uid-of-share" {
				t.Errorf("Delete() sends the preconditions %v", p)
			}
		}
	}
}

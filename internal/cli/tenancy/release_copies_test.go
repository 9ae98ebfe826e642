// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// publicationOf returns a Publication of the object named registry. tenants is the value of
// spec.tenants.
func publicationOf(kind, namespace string, tenants any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindPublication,
		"metadata":   map[string]any{"name": "registry"},
		"spec": map[string]any{
			"from": map[string]any{
				"apiVersion": "v1",
				"kind":       kind,
				"namespace":  namespace,
				"name":       "registry",
			},
			"tenants": tenants,
		},
	}}
}

// TestReleaseWithCopies checks that the copies of Publications are deleted. An object that only
// has the labels of a copy blocks the release.
func TestReleaseWithCopies(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	labels := func(of string) map[string]any {
		return map[string]any{tenant.ManagedLabel: "publication", tenant.PublicationLabel: of}
	}
	alone := map[string]any{tenant.PublicationLabel: "registry"}
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		blocks bool
	}{
		"copy":                {inWeb("v1", "Secret", "registry", labels("registry")), false},
		"another name":        {inWeb("v1", "Secret", "own", labels("registry")), true},
		"another Publication": {inWeb("v1", "Secret", "registry", labels("nosuch")), true},
		"another kind":        {inWeb("example.com/v1", "Rollout", "registry", labels("registry")), true},
		"no managed label":    {inWeb("v1", "Secret", "registry", alone), true},
		"no label":            {inWeb("v1", "Secret", "registry", nil), true},
	} {
		for valid, tenants := range map[string]any{
			"":                  map[string]any{"all": true},
			", does not decode": "acme",
			", invalid":         map[string]any{},
		} {
			t.Run(name+valid, func(t *testing.T) {
				w := newReleaseFixture(publicationOf("Secret", "platform", tenants), c.object.DeepCopy())
				err := w.release().Run(t.Context(), "web")
				if errors.Is(err, tenancy.ErrNamespaceNotEmpty) != c.blocks || !c.blocks && err != nil {
					t.Errorf("Run() = %v", err)
				}
				if c.blocks {
					return
				}
				_, err = w.objects.Resource(secrets).Namespace("web").Get(t.Context(), "registry", metav1.GetOptions{})
				if !apierrors.IsNotFound(err) {
					t.Errorf("the copy remains: %v", err)
				}
			})
		}
	}
}

// TestReleaseForcesCopies checks that the manager deletes the copy of a missing Publication,
// because admission does not allow other callers to delete it.
func TestReleaseForcesCopies(t *testing.T) {
	w := newReleaseFixture(inWeb("v1", "Secret", "registry",
		map[string]any{tenant.ManagedLabel: "publication", tenant.PublicationLabel: "nosuch"}))
	r := w.release()
	r.Force = true
	r.Manager.Dynamic = deleting{w.objects, &w.output}
	if err := r.Run(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(w.output, "the server writes secrets") {
		t.Errorf("the copy was not deleted by the manager: %q", w.output)
	}
}

// deleting is a client of the manager. It records the resources that are used.
type deleting struct {
	dynamic.Interface
	output *[]string
}

func (d deleting) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	*d.output = append(*d.output, "the server writes "+of.Resource)
	return d.Interface.Resource(of)
}

// TestReleaseOfSources checks that a release removes the annotations that publish an object.
// Otherwise, the object would be published after the release, because the namespace then belongs
// to the system tenant. If a Publication refers to the object, the annotation with the hash
// remains, because its removal would confirm the content.
func TestReleaseOfSources(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string
		system    bool
		want      map[string]string
	}{
		"no Publication": {want: map[string]string{"app": "x"}},
		"Publication of an object in another namespace": {
			namespace: "platform",
			want:      map[string]string{"app": "x"},
		},
		"Publication of the object": {
			namespace: "web",
			want:      map[string]string{"app": "x", tenant.PublishedAnnotation: "hash"},
		},
		"system namespace": {
			system: true,
			want: map[string]string{
				"app":                      "x",
				tenant.PublishAnnotation:   "*",
				tenant.PublishedAnnotation: "hash",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := inWeb("v1", "ConfigMap", "registry", nil) // without the tenant label
			source.SetAnnotations(map[string]string{
				"app":                      "x",
				tenant.PublishAnnotation:   "*",
				tenant.PublishedAnnotation: "hash",
			})
			objects := []runtime.Object{source}
			if c.namespace != "" {
				objects = append(objects, publicationOf("ConfigMap", c.namespace, map[string]any{"all": true}))
			}
			w := newReleaseFixture(objects...)
			r := w.release()
			if c.system {
				r.System = []string{"web"}
			}
			if err := r.Run(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
			configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			u, err := w.objects.Resource(configMaps).Namespace("web").Get(t.Context(), "registry", metav1.GetOptions{})
			if err != nil || !maps.Equal(u.GetAnnotations(), c.want) {
				t.Errorf("the annotations are %v, %v; want %v", u.GetAnnotations(), err, c.want)
			}
		})
	}
}

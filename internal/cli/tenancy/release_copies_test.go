package tenancy_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestReleaseWithCopies deletes the copies of Publications with the namespace's tenant. An object that
// only has the labels of a copy blocks the release.
func TestReleaseWithCopies(t *testing.T) {
	published := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindPublication,
		"metadata":   map[string]any{"name": "registry"},
		"spec": map[string]any{
			"from": map[string]any{
				"apiVersion": "v1",
				"kind":       "Secret",
				"namespace":  "platform",
				"name":       "registry",
			},
			"tenants": map[string]any{"all": true},
		},
	}}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	labels := func(of string) map[string]any {
		return map[string]any{tenant.ManagedLabel: "publication", tenant.PublicationLabel: of}
	}
	alone := map[string]any{tenant.PublicationLabel: "registry"}
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		blocks bool
	}{
		"a copy":                           {inWeb("v1", "Secret", "registry", labels("registry")), false},
		"another name":                     {inWeb("v1", "Secret", "own", labels("registry")), true},
		"another Publication":              {inWeb("v1", "Secret", "registry", labels("nosuch")), true},
		"another kind":                     {inWeb("example.com/v1", "Rollout", "registry", labels("registry")), true},
		"the label of a Publication alone": {inWeb("v1", "Secret", "registry", alone), true},
		"no label":                         {inWeb("v1", "Secret", "registry", nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReleasing(published, c.object)
			err := w.release().Run(t.Context(), "web")
			if errors.Is(err, tenancy.ErrHolds) != c.blocks || !c.blocks && err != nil {
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

package kubetenant

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// DefineKinds brings the CustomResourceDefinitions of the project's kinds up to date in a cluster.
func DefineKinds(ctx context.Context, client dynamic.Interface) error {
	for _, text := range v1alpha1.Definitions() {
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &definition.Object); err != nil {
			return err
		}
		if _, err := client.Resource(definitions).Apply(ctx, definition.GetName(), definition,
			metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return err
		}
	}
	return nil
}

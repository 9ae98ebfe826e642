package kubetenant

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/kubetenant/kubetenant/authz"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// CustomScopes returns the scopes of custom resources, from the CustomResourceDefinitions that
// client sees until ctx ends. Before they are known, and where they do not say it, a scope is
// unknown.
func CustomScopes(ctx context.Context, client dynamic.Interface) (func(schema.GroupResource) authz.Scope, error) {
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(definitions).Informer()
	if err := informer.SetTransform(scopeOnly); err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return func(resource schema.GroupResource) authz.Scope {
		// A definition is named <plural>.<group> (apiextensions validation, v0.37.1).
		obj, found, err := informer.GetStore().GetByKey(resource.String())
		if err != nil || !found {
			return authz.ScopeUnknown
		}
		return scopeOf(obj)
	}, nil
}

// scopeOnly drops what is not needed of a definition: its schemas are large.
func scopeOnly(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // a tombstone
	}
	scope, _, _ := unstructured.NestedString(u.Object, "spec", "scope")
	slim := &unstructured.Unstructured{}
	slim.SetAPIVersion(u.GetAPIVersion())
	slim.SetKind(u.GetKind())
	slim.SetName(u.GetName())
	slim.SetResourceVersion(u.GetResourceVersion())
	return slim, unstructured.SetNestedField(slim.Object, scope, "spec", "scope")
}

func scopeOf(obj any) authz.Scope {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return authz.ScopeUnknown
	}
	switch scope, _, _ := unstructured.NestedString(u.Object, "spec", "scope"); scope {
	case "Namespaced":
		return authz.ScopeNamespaced
	case "Cluster":
		return authz.ScopeCluster
	}
	return authz.ScopeUnknown
}

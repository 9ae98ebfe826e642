// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/listinformer"
)

var definitions = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// CRDScopes reads the scopes of custom resources from the CustomResourceDefinitions of a server. A
// scope is unknown if the definition has not been read, does not exist or has no valid scope.
type CRDScopes struct {
	informer cache.SharedIndexInformer
}

// NewCRDScopes returns a CRDScopes for which every scope is unknown until [CRDScopes.Run] is
// called.
func NewCRDScopes(client dynamic.Interface) (*CRDScopes, error) {
	informer := listinformer.New(client, definitions)
	err := errors.Join(informer.SetTransform(scopeOnly), informer.AddIndexers(cache.Indexers{byKind: kindOf}))
	return &CRDScopes{informer}, err
}

// Run watches the CustomResourceDefinitions until ctx ends. It must be called only once.
func (c *CRDScopes) Run(ctx context.Context) { c.informer.RunWithContext(ctx) }

// OnChange calls f for each existing definition, and each time a definition is created or changed.
func (c *CRDScopes) OnChange(f func()) error {
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f() },
		UpdateFunc: func(any, any) { f() },
	})
	return err
}

// HasSynced reports whether all definitions have been read once.
func (c *CRDScopes) HasSynced() bool { return c.informer.HasSynced() }

// ResourceScope returns the scope of a custom resource.
func (c *CRDScopes) ResourceScope(resource schema.GroupResource) authz.Scope {
	// A definition is named <plural>.<group> (apiextensions validation, v0.37.1).
	obj, found, err := c.informer.GetStore().GetByKey(resource.String())
	if err != nil || !found {
		return authz.ScopeUnknown
	}
	return ScopeOf(obj)
}

// ScopeOfKind returns the scope of the custom resource with the given kind. It is unknown if
// several definitions define the kind.
func (c *CRDScopes) ScopeOfKind(kind schema.GroupKind) authz.Scope {
	defined, err := c.informer.GetIndexer().ByIndex(byKind, kind.String())
	if err != nil || len(defined) != 1 {
		return authz.ScopeUnknown
	}
	return ScopeOf(defined[0])
}

// KindOf returns the kind of a custom resource, or "" if it is not known.
func (c *CRDScopes) KindOf(resource schema.GroupResource) string {
	obj, found, err := c.informer.GetStore().GetByKey(resource.String())
	if err != nil || !found {
		return ""
	}
	u, _ := obj.(*unstructured.Unstructured)
	if u == nil {
		return ""
	}
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
	return kind
}

// byKind is the name of the index that finds definitions by the kind that they define.
const byKind = "kind"

func kindOf(obj any) ([]string, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
	return []string{schema.GroupKind{Group: group, Kind: kind}.String()}, nil
}

// scopeOnly reduces a definition to its scope, group and kind, because its schema may be large. It
// retains the schemas of the project's own definitions for [CRDScopes.Problems].
func scopeOnly(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // a tombstone
	}
	if isOwnDefinition(u.GetName()) {
		u.SetManagedFields(nil)
		return u, nil
	}
	trimmed := &unstructured.Unstructured{}
	trimmed.SetAPIVersion(u.GetAPIVersion())
	trimmed.SetKind(u.GetKind())
	trimmed.SetName(u.GetName())
	trimmed.SetResourceVersion(u.GetResourceVersion())
	for _, path := range [][]string{{"spec", "scope"}, {"spec", "group"}, {"spec", "names", "kind"}} {
		value, _, _ := unstructured.NestedString(u.Object, path...)
		if err := unstructured.SetNestedField(trimmed.Object, value, path...); err != nil {
			return nil, err
		}
	}
	return trimmed, nil
}

// ScopeOf returns the scope of an unstructured CustomResourceDefinition. The scope of any other
// object is unknown.
func ScopeOf(obj any) authz.Scope {
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

// LabeledResources returns a function that lists resources for [label.Backfill]. The list has the
// namespaced resources that the server itself stores and that can be listed and patched. It
// includes custom resources that are namespaced according to custom, and excludes resources of
// aggregated API servers. If the function returns an error, the list may be incomplete.
func LabeledResources(
	d discovery.DiscoveryInterface, custom func(schema.GroupResource) authz.Scope,
) func() ([]schema.GroupVersionResource, error) {
	scopes := authz.Scopes{Custom: custom}
	return func() ([]schema.GroupVersionResource, error) {
		lists, err := discovery.ServerPreferredNamespacedResources(d)
		if discovery.IsGroupDiscoveryFailedError(err) {
			err = nil // an aggregated API server is down, but its resources would be excluded anyway
		}
		stored := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, lists)
		all, parseErr := discovery.GroupVersionResources(stored)
		var out []schema.GroupVersionResource
		for r := range all {
			if scopes.Of(r.GroupResource()) == authz.ScopeNamespaced {
				out = append(out, r)
			}
		}
		return out, errors.Join(err, parseErr)
	}
}

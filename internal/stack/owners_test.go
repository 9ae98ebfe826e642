// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
)

// writableResources returns the resources that a tenant's caller may write, keyed by kind. They
// are the resources of [stack.OwnWritable], Namespaces, all built-in namespaced kinds and a
// custom kind.
func writableResources(t *testing.T) map[schema.GroupVersionKind]schema.GroupVersionResource {
	t.Helper()
	all := map[schema.GroupVersionKind]schema.GroupVersionResource{
		{Group: "example.com", Version: "v1", Kind: "Thing"}: {Group: "example.com", Version: "v1", Resource: "things"},
	}
	for _, resource := range stack.OwnWritable() {
		kind := schema.GroupVersionKind{Group: resource.Group, Version: "v1alpha1", Kind: "Own"}
		all[kind] = resource.WithVersion("v1alpha1")
	}
	if len(all) == 1 {
		t.Fatal("no resource of OwnWritable is tested")
	}
	for kind := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if kind.Group == "authorization.k8s.io" || kind.Kind == "Binding" {
			continue // the server stores no such objects
		}
		scope := (authz.Scopes{}).Of(resource.GroupResource())
		if scope == authz.ScopeNamespaced || kind == corev1.SchemeGroupVersion.WithKind("Namespace") {
			all[kind] = resource
		}
	}
	return all
}

// TestOwnerReferencesDoNotBlockDeletion checks that a tenant cannot write an object with an
// ownerReference that blocks the deletion of a cluster-scoped object.
func TestOwnerReferencesDoNotBlockDeletion(t *testing.T) {
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := namespaces.Add(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "acme--web", Labels: map[string]string{tenant.Label: "acme"}},
	}); err != nil {
		t.Fatal(err)
	}
	built, err := stack.New(t.Context(), &configv1alpha1.Settings{},
		stack.Server{Cluster: lookuptest.OwnedBy(authz.NewOwners(corelisters.NewNamespaceLister(namespaces).Get, nil))})
	if err != nil {
		t.Fatal(err)
	}
	var plugin admission.ValidationInterface
	for _, p := range built.Admission {
		if p.Name == rolebinding.Name {
			plugin = p.Interface.(admission.ValidationInterface)
		}
	}
	of := func(name, id string) user.Info {
		return &user.DefaultInfo{Name: name, Groups: []string{"dev"}, Extra: map[string][]string{tenant.ExtraKey: {id}}}
	}
	blocks := true
	owners := map[string]metav1.OwnerReference{
		"a StorageClass": {APIVersion: "storage.k8s.io/v1", Kind: "StorageClass", Name: "shared"},
		"a Node":         {APIVersion: "v1", Kind: "Node", Name: "node"},
		"its own Tenant": {APIVersion: "kubetenant.dev/v1alpha1", Kind: "Tenant", Name: "acme"},
		"a Namespace":    {APIVersion: "v1", Kind: "Namespace", Name: "globex--web"},
		"no name":        {APIVersion: "v1", Kind: "Namespace"},
	}
	tested := 0
	for kind, resource := range writableResources(t) {
		namespace := "acme--web"
		if kind.Kind == "Namespace" || kind.Kind == "Own" {
			namespace = ""
		}
		for name, owner := range owners {
			t.Run(name, func(t *testing.T) {
				owner.UID, owner.BlockOwnerDeletion = "1", &blocks
				original := &unstructured.Unstructured{}
				original.SetGroupVersionKind(kind)
				original.SetName("x")
				original.SetNamespace(namespace)
				newObj := original.DeepCopy()
				newObj.SetOwnerReferences([]metav1.OwnerReference{owner})
				for _, operation := range []admission.Operation{admission.Create, admission.Update} {
					for _, by := range []user.Info{of("alice", "acme"), of("root", "system"), &user.DefaultInfo{Name: "unknown"}} {
						old := original
						if operation == admission.Create {
							old = nil
						}
						tested++
						err := plugin.Validate(t.Context(), admission.NewAttributesRecord(newObj, old, kind, namespace, "x",
							resource, "", operation, nil, false, by), nil)
						refused := err != nil && strings.Contains(err.Error(), "ownerReferences[0]")
						if refused == (by.GetName() == "root") {
							t.Errorf("%s owns %s, %s by %s: %v", name, resource, operation, by.GetName(), err)
						}
					}
				}
			})
		}
	}
	if tested < 1000 {
		t.Errorf("tested only %d writes", tested)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// publications is the number of Publications in [BenchmarkObjectsIn].
const publications = 20

// BenchmarkObjectsIn measures how long a drift check takes to compute the objects of one
// namespace, with 20 Publications of all built-in kinds.
func BenchmarkObjectsIn(b *testing.B) {
	id, err := tenant.Parse("acme")
	if err != nil {
		b.Fatal(err)
	}
	gives := &desiredState{uid: "x"}
	all := (&publication.Rules{}).All()
	for i := range publications {
		kind := all[i%len(all)]
		u := &unstructured.Unstructured{Object: map[string]any{
			"data": map[string]any{"text": strings.Repeat("x", 1<<10), "of": "${tenant}"},
		}}
		u.SetGroupVersionKind(kind.Kind.WithVersion("v1"))
		u.SetName(fmt.Sprint("p-", i))
		content, err := (&publication.Rules{}).Content(u, nil)
		if err != nil {
			b.Fatal(err)
		}
		of, err := publication.Parse(&v1alpha1.Publication{
			ObjectMeta: metav1.ObjectMeta{Name: u.GetName()},
			Spec: v1alpha1.PublicationSpec{
				From: v1alpha1.PublicationSource{
					APIVersion: u.GetAPIVersion(),
					Kind:       u.GetKind(),
					Namespace:  "shared",
					Name:       u.GetName(),
				},
				Tenants: v1alpha1.PublicationTenants{All: true},
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		gives.published = append(gives.published, &published{publication: of, resource: content.Resource, content: content})
	}
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   "acme--web",
		Labels: map[string]string{tenant.Label: "acme"},
	}}
	if err := namespaces.Add(ns); err != nil {
		b.Fatal(err)
	}
	e := &Engine{lister: corelisters.NewNamespaceLister(namespaces)}
	e.OwnerOf = func(*corev1.Namespace) tenant.ID { return id }
	ofTenant := func(tenant.ID) *desiredState { return gives }
	kinds := publication.BuiltIn()
	for b.Loop() {
		for _, of := range kinds {
			if got := e.objectsIn(ns.Name, of, ofTenant); len(got.wanted) == 0 {
				b.Fatal("no objects")
			}
		}
		if got := e.objectsIn(ns.Name, schema.GroupVersionResource{}, ofTenant); len(got.wanted) != publications {
			b.Fatal("unexpected objects")
		}
	}
}

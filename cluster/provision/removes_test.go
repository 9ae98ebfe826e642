// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestCopyOfNewerPublicationRemains checks which copies the engine deletes if a Publication is read
// after the wanted objects were computed, for example while a new leader starts. The copies of such
// a Publication are not wanted yet, but must remain.
func TestCopyOfNewerPublicationRemains(t *testing.T) {
	of, err := publication.Parse(&v1alpha1.Publication{
		ObjectMeta: metav1.ObjectMeta{Name: "ca", UID: "u"},
		Spec: v1alpha1.PublicationSpec{
			From: v1alpha1.PublicationSource{
				APIVersion: "v1",
				Kind:       "ConfigMap",
				Namespace:  "shared",
				Name:       "ca",
			},
			Tenants: v1alpha1.PublicationTenants{All: true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	with := func(hash string) *published {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		u.SetName("ca")
		content, err := (&publication.Rules{}).Content(u, nil)
		if err != nil {
			t.Fatal(err)
		}
		content.Hash = hash
		return &published{publication: of, resource: configMaps, content: content}
	}
	copied := &unstructured.Unstructured{}
	copied.SetLabels(map[string]string{
		tenant.ManagedLabel:     managed.SourcePublication,
		tenant.PublicationLabel: "ca",
	})
	for name, c := range map[string]struct {
		known, now *published
		selects    bool
		want       bool
	}{
		"state unknown":                       {nil, nil, true, false},
		"read later":                          {nil, with("1"), true, false},
		"read later, selects other tenants":   {nil, with("1"), false, true},
		"read later, source missing":          {nil, &published{publication: of, gone: true}, true, true},
		"changed later":                       {with("1"), with("2"), true, false},
		"changed later, deselects the tenant": {with("1"), with("2"), false, true},
		"read again without a change":         {with("1"), with("1"), true, true},
		"content unknown":                     {nil, &published{publication: of}, true, false},
		"invalid":                             {nil, &published{publication: of, invalid: true}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := &desiredState{
				publication: func(string) *published { return c.now },
				selects:     func(*published) bool { return c.selects },
			}
			if c.known != nil {
				g.published = []*published{c.known}
			}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme--web"}}
			all := g.objects(tenanttest.ID(t, "acme"), ns)
			// The name of the copy is an earlier name of the source, so the copy is not in wanted.
			if got := all.removes(object{configMaps, "earlier"}, copied); got != c.want {
				t.Errorf("removes() = %t; want %t", got, c.want)
			}
		})
	}
}

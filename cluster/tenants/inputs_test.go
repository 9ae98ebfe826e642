// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func naming(id string, templates ...any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"spec":       map[string]any{"id": id, "namespaces": map[string]any{"templates": templates}},
	}}
	u.SetName(id)
	return u
}

func templateNamed(name string, hold bool) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindNamespaceTemplate,
		"spec": map[string]any{
			"hold": hold,
			"objects": []any{
				map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name + "-of-${tenant}"}},
			},
		},
	}}
	u.SetName(name)
	return u
}

// TestHoldsNamespacesAndProvisions checks that Pods wait for missing templates and for templates
// with spec.hold, and that Provisions finds the objects that templates define.
func TestHoldsNamespacesAndProvisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, naming("nothing"), naming("free", "open"), naming("held", "open", "holding"),
			naming("waits", "missing"), templateNamed("open", false), templateNamed("holding", true))
		w.run()
		configMaps := schema.GroupResource{Resource: "configmaps"}
		for id, want := range map[string]struct {
			holds bool
			gives string // the name of an object that the tenant's templates define
		}{
			"nobody":  {},
			"nothing": {},
			"free":    {false, "open-of-free"},
			"held":    {true, "holding-of-held"},
			"waits":   {holds: true},
		} {
			if got := w.store.HoldsNamespaces(t.Context(), tenanttest.ID(t, id)); got != want.holds {
				t.Errorf("%s: Pods wait: %t", id, got)
			}
			for _, name := range []string{"x", "open-of-x", want.gives} {
				got, err := w.store.Provisions(&publication.Rules{}, tenanttest.ID(t, id), "ns", configMaps, name)
				if err != nil || got != (want.gives != "" && name == want.gives) {
					t.Errorf("%s: a template defines %q: %t, %v", id, name, got, err)
				}
			}
			if got, err := w.store.Provisions(&publication.Rules{}, tenanttest.ID(t, id), "ns",
				schema.GroupResource{Resource: "limitranges"},
				want.gives); got || err != nil {
				t.Errorf("%s: a template defines an object of another kind: %t, %v", id, got, err)
			}
		}
		w.client.PrependReactor("get", "tenants", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("away")
		})
		if !w.store.HoldsNamespaces(t.Context(), tenanttest.ID(t, "nothing")) {
			t.Error("Pods do not wait although the Tenant cannot be read")
		}
	})
}

// TestUnreadTemplates checks that, while the templates have not been read, Pods of a tenant with
// a template wait, and Provisions fails. Identity does not depend on the templates.
func TestUnreadTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, naming("nothing"), naming("free", "open"), templateNamed("open", false))
		w.run() // this store can read everything
		var may atomic.Bool
		var err error
		if w.store, err = tenants.New(w.client, func(r schema.GroupResource) (is, known bool) {
			read := r.Resource != v1alpha1.ResourceNamespaceTemplates || may.Load()
			return read, read
		}); err != nil {
			t.Fatal(err)
		}
		w.run()
		for id, named := range map[string]bool{"nothing": false, "free": true} {
			_, err := w.store.Provisions(&publication.Rules{}, tenanttest.ID(t, id), "ns",
				schema.GroupResource{Resource: "configmaps"}, "x")
			if got := w.store.HoldsNamespaces(t.Context(), tenanttest.ID(t, id)); got != named || (err != nil) != named {
				t.Errorf("%s: Pods wait: %t, %v", id, got, err)
			}
		}
		if !w.store.HasSynced() || w.store.InputsSynced() {
			t.Error("HasSynced waits for the templates, or InputsSynced does not")
		}
		may.Store(true)
		w.settle()
		if !w.store.InputsSynced() || w.store.HoldsNamespaces(t.Context(), tenanttest.ID(t, "free")) {
			t.Error("Pods still wait after the templates were read")
		}
	})
}

// TestMembersOfSuccessor checks that TenantMembers that name the UID of a deleted Tenant do not
// apply to a later Tenant with the same ID. TenantMembers do not apply while they are being
// deleted.
func TestMembersOfSuccessor(t *testing.T) {
	members := func(uid string, isGoing bool) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion,
			"kind":       v1alpha1.KindTenantMembers,
			"spec":       map[string]any{"id": "acme"},
		}}
		u.SetName("acme")
		if uid != "" {
			u.SetAnnotations(map[string]string{tenant.TenantUIDAnnotation: uid})
		}
		if isGoing {
			at := metav1.Now()
			u.SetDeletionTimestamp(&at)
		}
		return u
	}
	for name, c := range map[string]struct {
		uid                          string
		isGoing, replaced, hasTenant bool
		want                         bool
	}{
		"UID of the Tenant":                   {"live", false, false, true, true},
		"being deleted":                       {"live", true, false, true, false},
		"being deleted, UID of the successor": {"live", true, true, true, false},
		"no UID":                              {"", false, false, true, true},
		"another UID, no deleted tenant":      {"old", false, false, true, true},
		"UID of the successor":                {"live", false, true, true, true},
		"UID of the predecessor":              {"old", false, true, true, false},
		"no UID, successor":                   {"", false, true, true, false},
		"UID of a deleted tenant":             {"old", false, true, false, false},
		"no UID, deleted tenant":              {"", false, true, false, false},
		"no UID, no Tenant":                   {"", false, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []runtime.Object
				if c.hasTenant {
					live := naming("acme")
					live.SetUID("live")
					objects = append(objects, live)
				}
				if c.replaced {
					objects = append(objects, retired("acme", "old", time.Now().Add(-time.Hour)))
				}
				w := newFixture(t, objects...)
				resource := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers)
				if err := w.client.Tracker().Create(resource, members(c.uid, c.isGoing), ""); err != nil {
					t.Fatal(err)
				}
				w.run()
				w.settle()
				m, known := w.store.Members(tenanttest.ID(t, "acme"))
				if !known || (m != nil) != c.want {
					t.Errorf("%v, %t", m, known)
				}
			})
		})
	}
}

// TestRemaining checks that Remaining returns the TenantMembers of a tenant, and its TenantQuotas
// that are being deleted.
func TestRemaining(t *testing.T) {
	of := func(kind, name, field, id string, isGoing bool) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion,
			"kind":       kind,
			"spec":       map[string]any{field: id},
		}}
		u.SetName(name)
		if isGoing {
			at := metav1.Now()
			u.SetDeletionTimestamp(&at)
		}
		return u
	}
	members, quota := v1alpha1.KindTenantMembers, v1alpha1.KindTenantQuota
	wrong := of(members, "acme", "id", "acme", false)
	wrong.Object["spec"].(map[string]any)["bindings"] = "none"
	wrongQuota := of(quota, "q", "tenant", "acme", true)
	wrongQuota.Object["spec"].(map[string]any)["hard"] = "none"
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		want   string
	}{
		"members":                               {of(members, "acme", "id", "acme", false), "[TenantMembers acme]"},
		"members being deleted":                 {of(members, "acme", "id", "acme", true), "[TenantMembers acme]"},
		"invalid members":                       {wrong, "[TenantMembers acme]"},
		"members of another tenant":             {of(members, "globex", "id", "globex", false), "[]"},
		"quota":                                 {of(quota, "q", "tenant", "acme", false), "[]"},
		"quota being deleted":                   {of(quota, "q", "tenant", "acme", true), "[TenantQuota q]"},
		"invalid quota being deleted":           {wrongQuota, "[TenantQuota q]"},
		"quota of another tenant being deleted": {of(quota, "q", "tenant", "globex", true), "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers): "TenantMembersList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications):  "PublicationList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas):  "TenantQuotaList",
			})
			resource := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers)
			if c.object.GetKind() == quota {
				resource = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
			}
			if err := client.Tracker().Create(resource, c.object, ""); err != nil {
				t.Fatal(err)
			}
			got, err := tenants.Remaining(t.Context(), client, tenanttest.ID(t, "acme"))
			if err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("%v, %v; want %s", got, err, c.want)
			}
			for _, resource := range []string{"tenantmembers", "tenantquotas"} {
				client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("away")
				})
				if _, err := tenants.Remaining(t.Context(), client, tenanttest.ID(t, "acme")); err == nil {
					t.Errorf("no error although the %s cannot be listed", resource)
				}
				client.ReactionChain = client.ReactionChain[1:]
			}
		})
	}
}

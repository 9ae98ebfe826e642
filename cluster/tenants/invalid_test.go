// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// invalidSpecs returns fields of a spec that cannot be decoded.
func invalidSpecs() map[string]map[string]any {
	return map[string]map[string]any{
		"access":         {"access": int64(1)},
		"admins":         {"admins": "alice"},
		"deletion delay": {"deletionDelay": "soon"},
		"id":             {"id": []any{"a"}},
		"namespaces":     {"namespaces": []any{}},
	}
}

// TestInvalidTenant checks that callers of a tenant have the access Closed and no rights while
// its Tenant cannot be decoded. It covers Tenants that are invalid when the store starts and
// Tenants that become invalid later.
func TestInvalidTenant(t *testing.T) {
	for field, spec := range invalidSpecs() {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upper := tenanttest.ID(t, "Acme") // its name does not determine the ID
				rich := map[string]any{
					"admins":      []any{map[string]any{"kind": "User", "name": "alice"}},
					"memberRoles": []any{"view"},
					"namespaces":  map[string]any{"labels": map[string]any{"team": "x"}},
				}
				w := newFixture(t, definition(), object("a", "a", spec), object(upper.ObjectName(), "Acme", spec),
					object("later", "later", rich), object("other", "other", nil))
				w.run()
				w.expect("from the start", "a", authz.AccessClosed)
				w.expect("from the start", "Acme", authz.AccessClosed)
				w.expect("another tenant", "other", authz.AccessOpen)
				w.expect("without a Tenant", "acme", authz.AccessNone)
				w.reported()
				w.update(object("later", "later", spec))
				later := tenanttest.ID(t, "later")
				w.expect("later", "later", authz.AccessClosed)
				if told := w.reported(); !slices.Equal(told, []string{"later"}) {
					t.Errorf("reported %v", told)
				}
				if admins, roles := w.store.Admins(later), w.store.MemberRoles(later); len(admins)+len(roles) > 0 {
					t.Errorf("admins %v, member roles %v", admins, roles)
				}
				if labels := w.store.NamespaceSettings(later).Labels; labels["team"] != "x" {
					t.Errorf("the labels of its namespaces are %v", labels)
				}
				if got, known := w.store.Tenant(later); got != nil || known {
					t.Errorf("its Tenant is %v, %t", got, known)
				}
				_, err := w.store.Provisions(&publication.Rules{}, later, "ns", schema.GroupResource{Resource: "configmaps"}, "x")
				if err == nil || !w.store.HoldsNamespaces(t.Context(), later) {
					t.Errorf("Pods do not wait, or Provisions does not fail: %v", err)
				}
				w.update(object("later", "later", nil))
				w.update(object(upper.ObjectName(), "Acme", nil))
				w.expect("valid again", "later", authz.AccessOpen)
				w.expect("valid again", "Acme", authz.AccessOpen)
				w.update(object(upper.ObjectName(), "Acme", spec))
				for _, name := range []string{"a", upper.ObjectName()} {
					if err := w.client.Resource(resource).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				w.settle()
				w.expect("deleted", "a", authz.AccessNone)
				w.expect("deleted", "Acme", authz.AccessNone)
			})
		})
	}
}

// TestInvalidTenantIsFollowed checks that Follow and FollowObjects also report changes of a
// Tenant that cannot be decoded.
func TestInvalidTenantIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", map[string]any{"admins": "x"}))
		w.run()
		var names, ids []string
		stop, err := w.store.FollowObjects(func(object metav1.Object) { names = append(names, object.GetName()) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		stopIDs, err := w.store.Follow(func(id tenant.ID) { ids = append(ids, id.String()) })
		if err != nil {
			t.Fatal(err)
		}
		defer stopIDs()
		w.settle()
		w.update(object("a", "a", nil))
		if want := []string{"a", "a", "a"}; !slices.Equal(names, want) || !slices.Equal(ids, want) {
			t.Errorf("reported %v and %v", names, ids)
		}
	})
}

// TestInvalidRetiredTenant checks that the ID of a RetiredTenant that cannot be decoded remains
// retired.
func TestInvalidRetiredTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const uid = "0d2c7c2f-5a43-4d6b-9f3c-2b5f0a6d7e11"
		invalid := func(id string) *unstructured.Unstructured {
			u := retired(id, uid, time.Now())
			u.Object["spec"].(map[string]any)["namespaces"] = "x"
			return u
		}
		upper := tenanttest.ID(t, "Acme")
		later := retired("Acme", uid, time.Now())
		later.SetName(upper.ObjectName() + "-" + uid)
		other := tenanttest.ID(t, "Other") // its name does not determine the ID
		unnamed := invalid("Other")
		unnamed.SetName(other.ObjectName() + "-" + uid)
		w := newFixture(t, definition(), invalid("a"), unnamed, later)
		w.run()
		w.expect("from the start", "a", authz.AccessRetired)
		w.expect("from the start", "Other", authz.AccessRetired)
		w.expect("valid", "Acme", authz.AccessRetired)
		changed := invalid("Acme")
		changed.SetName(later.GetName())
		if _, err := w.client.Resource(retiredOnes).Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("later", "Acme", authz.AccessRetired)
		if l := w.store.Lineage(tenanttest.ID(t, "a")); len(l.Retired) != 1 || l.Retired[0].UID != uid {
			t.Errorf("the lineage is %+v", l)
		}
	})
}

// TestInvalidTemplate checks that a NamespaceTemplate that cannot be decoded is treated like a
// missing template, so that Pods wait. Other templates apply.
func TestInvalidTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := templateNamed("bad", false)
		bad.Object["spec"].(map[string]any)["hold"] = "x"
		w := newFixture(t, definition(), naming("a", "bad"), naming("b", "open"), bad, templateNamed("open", false))
		w.run()
		if !w.store.HoldsNamespaces(t.Context(), tenanttest.ID(t, "a")) ||
			w.store.HoldsNamespaces(t.Context(), tenanttest.ID(t, "b")) {
			t.Error("Pods do not wait for the invalid template, or wait for a valid one")
		}
		if got, known := w.store.Template("bad"); got != nil || !known {
			t.Errorf("the invalid template is %v, %t", got, known)
		}
		// A template that becomes invalid does not apply in its earlier form.
		open := templateNamed("open", false)
		open.Object["spec"].(map[string]any)["hold"] = "x"
		templates := w.client.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates))
		if _, err := templates.Update(t.Context(), open, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if got, known := w.store.Template("open"); got != nil || !known {
			t.Errorf("the template that became invalid is %v, %t", got, known)
		}
	})
}

// update writes a Tenant and waits until the store has observed it.
func (w *fixture) update(u *unstructured.Unstructured) {
	w.t.Helper()
	if _, err := w.client.Resource(resource).Update(w.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var retiredOnes = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)

func retired(id, uid string, at time.Time) *unstructured.Unstructured {
	spec := map[string]any{"id": id, "uid": uid}
	if !at.IsZero() {
		spec["retiredAt"] = at.UTC().Format(time.RFC3339)
	}
	u := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": v1alpha1.GroupVersion, "kind": v1alpha1.KindRetiredTenant, "spec": spec},
	}
	u.SetName(tenants.RetiredName(id, uid))
	return u
}

func deleted(u *unstructured.Unstructured) *unstructured.Unstructured {
	at := metav1.Now()
	u.SetDeletionTimestamp(&at)
	u.SetFinalizers([]string{tenant.Finalizer})
	return u
}

// TestRetired checks that the ID of a deleted tenant is reserved until a new Tenant has the ID.
// The history of the ID remains. The reservation ends when the RetiredTenant is deleted, unless
// it was deleted with its definition.
func TestRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := object("live", "live", nil)
		live.SetUID("new")
		w := newFixture(t, definition(), live, retired("live", "u0", time.Now()), retired("gone", "u2", time.Time{}),
			retired("gone", "u1", time.Now()),
			retired("system", "u3", time.Now()))
		w.expect("before", "gone", authz.AccessUnknown)
		w.run()
		w.reported()
		w.expect("deleted", "gone", authz.AccessRetired)
		w.expect("successor", "live", authz.AccessOpen)
		w.expect("no Tenant", "nobody", authz.AccessNone)
		w.expect("the system tenant", "system", authz.AccessNone)
		if l := w.store.Lineage(tenanttest.ID(t, "gone")); !l.HasEnded() || len(l.Retired) != 2 || l.Retired[1].UID != "u2" {
			t.Errorf("lineage of a deleted tenant: %+v", l)
		}
		if l := w.store.Lineage(tenanttest.ID(t, "live")); l.HasEnded() || len(l.Retired) != 1 || l.Created.IsZero() {
			t.Errorf("lineage of a successor: %+v", l)
		}
		if gone, known := w.store.Tenant(tenanttest.ID(t, "gone")); gone != nil || !known {
			t.Errorf("Tenant of a deleted tenant: %v, %t", gone, known)
		}
		if _, err := w.client.Resource(retiredOnes).Create(t.Context(),
			retired("nobody", "u4", time.Now()), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("new RetiredTenant", "nobody", authz.AccessRetired)
		if got := w.reported(); !slices.Equal(got, []string{"nobody"}) {
			t.Errorf("reported %v", got)
		}
		if err := w.client.Resource(retiredOnes).Delete(t.Context(), "nobody-u4", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("deleted with its definition", "nobody", authz.AccessRetired)
		kind := definition()
		kind.SetName("retiredtenants.kubetenant.dev")
		if _, err := w.client.Resource(definitions).Create(t.Context(), kind, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, act := range []func() error{
			func() error {
				_, err := w.client.Resource(retiredOnes).Create(t.Context(),
					retired("nobody", "u4", time.Now()), metav1.CreateOptions{})
				return err
			},
			func() error {
				return w.client.Resource(retiredOnes).Delete(t.Context(), "nobody-u4", metav1.DeleteOptions{})
			},
		} {
			if err := act(); err != nil {
				t.Fatal(err)
			}
			w.settle()
		}
		w.expect("deleted without its definition", "nobody", authz.AccessNone)
		kind.SetCreationTimestamp(metav1.NewTime(time.Now().Add(time.Second)))
		if _, err := w.client.Resource(definitions).Update(t.Context(), kind, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Resource(retiredOnes).Delete(t.Context(),
			tenants.RetiredName("gone", "u1"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Resource(retiredOnes).Delete(t.Context(),
			tenants.RetiredName("gone", "u2"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("deleted with an earlier definition", "gone", authz.AccessRetired)
	})
}

// TestReplaces checks that a Tenant with spec.replaces rejects earlier and undated credentials,
// even if the RetiredTenant of its predecessor is missing.
func TestReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", map[string]any{"replaces": "u0"}), object("b", "b", nil))
		w.run()
		a, b := tenanttest.ID(t, "a"), tenanttest.ID(t, "b")
		if w.store.Accepts(a, time.Time{}) || w.store.Accepts(a, time.Now().Add(-time.Hour)) ||
			!w.store.Accepts(a, time.Now()) || !w.store.Accepts(b, time.Time{}) {
			t.Error("credentials of a predecessor are accepted, or credentials of a tenant without a predecessor are not")
		}
	})
}

// TestAcceptUndatedRemoved checks that the store calls the function of OnLostAccess for a tenant
// whose Tenant no longer accepts undated credentials, so that their connections end.
func TestAcceptUndatedRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", map[string]any{"acceptUndated": true}),
			retired("a", "u0", time.Now()))
		w.run()
		w.reported()
		for _, step := range []struct {
			accepts bool
			told    []string
		}{{false, []string{"a"}}, {true, nil}} {
			u, err := w.client.Resource(resource).Get(t.Context(), "a", metav1.GetOptions{})
			if err == nil {
				u.Object["spec"].(map[string]any)["acceptUndated"] = step.accepts
				_, err = w.client.Resource(resource).Update(t.Context(), u, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			w.settle()
			if got := w.reported(); !slices.Equal(got, step.told) ||
				w.store.Accepts(tenanttest.ID(t, "a"), time.Time{}) != step.accepts {
				t.Errorf("acceptUndated %t: reported %v", step.accepts, got)
			}
		}
	})
}

// TestEnding checks that callers of a tenant have at most the access ReadOnly while the Tenant is
// being deleted, unless its definition is also being deleted. If a server starts during the
// deletion, this applies from the start.
func TestEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", nil), object("c", "c", map[string]any{"access": "Closed"}),
			deleted(object("b", "b", nil)))
		w.run()
		w.reported()
		w.expect("deleted before", "b", authz.AccessReadOnly)
		for _, u := range []*unstructured.Unstructured{
			deleted(object("a", "a", nil)), deleted(object("c", "c", map[string]any{"access": "Closed"})),
		} {
			if _, err := w.client.Resource(resource).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		w.expect("deleted", "a", authz.AccessReadOnly)
		w.expect("closed, and deleted", "c", authz.AccessClosed)
		if got := w.reported(); !slices.Equal(got, []string{"a", "c"}) { // c too, so that its connections end
			t.Errorf("reported %v", got)
		}
		if l := w.store.Lineage(tenanttest.ID(t, "a")); !l.HasEnded() || !l.Terminating {
			t.Errorf("lineage of a tenant that is being deleted: %+v", l)
		}
		begun, total := w.store.DeletionsSince(time.Now().Add(-time.Hour))
		if len(begun) != 0 || total != 3 {
			t.Errorf("begun %v of %d", begun, total)
		}
	})
}

// TestTenantOlderThanDefinition checks that a tenant does not end if its deleted Tenant is older
// than the definition. The Tenant is then being deleted with an earlier definition.
func TestTenantOlderThanDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", nil))
		w.run()
		anew := definition()
		anew.SetCreationTimestamp(metav1.NewTime(time.Now().Add(time.Second)))
		if _, err := w.client.Resource(definitions).Update(t.Context(), anew, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Resource(resource).Update(t.Context(), deletedOf(w, "a"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("deleted with an earlier definition", "a", authz.AccessOpen)
	})
}

// deletedOf returns a copy of a Tenant that is being deleted.
func deletedOf(w *fixture, name string) *unstructured.Unstructured {
	w.t.Helper()
	u, err := w.client.Resource(resource).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return deleted(u)
}

// TestReferences checks that References returns all bindings that name the tenant, except those
// in namespaces of other tenants.
func TestReferences(t *testing.T) {
	role := func(namespace, name string, subjects ...rbacv1.Subject) runtime.Object {
		if namespace == "" {
			return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects}
		}
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: subjects}
	}
	group := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "Group", Name: name} }
	account := func(namespace string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: "x"}
	}
	made := role("", "made", group("tenant:acme")).(*rbacv1.ClusterRoleBinding)
	made.Labels = map[string]string{tenant.OfTenantLabel: "acme"}
	client := kubefake.NewClientset(made, role("", "group", group("x"), group("tenant:acme")),
		role("", "others", group("tenant:acme2"), group("acme"), account("shop2"),
			rbacv1.Subject{Kind: "User", Name: "acme"}),
		role("", "account", account("acme--web")), role("", "had", account("shop")),
		role("", "user", rbacv1.Subject{Kind: "User", Name: "system:serviceaccount:shop:x"}),
		role("", "accounts", group("system:serviceaccounts:shop")), role("kube-system", "in", group("tenant:acme")),
		role("globex--web", "theirs", group("tenant:acme")),
		role("kube-system", "not", group("tenant:globex")))
	got, err := tenants.References(t.Context(), client, tenanttest.ID(t, "acme"), []string{"shop"},
		func(namespace string) bool { return namespace == "globex--web" })
	want := []string{
		"ClusterRoleBinding account", "ClusterRoleBinding accounts", "ClusterRoleBinding group", "ClusterRoleBinding had",
		"ClusterRoleBinding made", "ClusterRoleBinding user", "RoleBinding kube-system/in",
	}
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

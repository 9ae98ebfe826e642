// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestInvalidTenantIsHeld checks that nothing is deleted while a Tenant that is being deleted
// does not decode. The deletion continues after the Tenant becomes valid. The finalizer of the
// Tenant is removed if the definition of Tenants is deleted.
func TestInvalidTenantIsHeld(t *testing.T) {
	for _, definitionDeleted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			u := object("acme", v1alpha1.TenantDeletionDelete, true)
			u.Object["spec"].(map[string]any)["admins"] = "x"
			w := newFixture(t, u)
			w.namespace("acme--web", "acme")
			w.start()
			time.Sleep(10 * time.Minute)
			if got := w.objects(); got != "namespace acme--web; tenant acme" || w.writes.Load() > 0 {
				t.Fatalf("after %d writes: %s", w.writes.Load(), got)
			}
			want := "retired acme acme-uid-acme ended=true [acme--web] []"
			if definitionDeleted {
				want = "namespace acme--web"
				if err := w.dynamic.Tracker().Delete(definitions, "", "tenants.kubetenant.dev"); err != nil {
					t.Fatal(err)
				}
			} else {
				u := object("acme", v1alpha1.TenantDeletionDelete, true)
				if err := w.dynamic.Tracker().Update(tenantObjects, u, ""); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Minute)
			if got := w.objects(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestInvalidQuotaIsDeleted checks that a TenantQuota that does not decode is deleted with its
// tenant. A quota of another tenant remains. The tenant is not retired while it is unknown to
// which tenant a quota belongs.
func TestInvalidQuotaIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		of   any
		want string
	}{
		"same tenant":    {"acme", "retired acme acme-uid-acme ended=true [] []"},
		"another tenant": {"globex", "tenantquota limits; retired acme acme-uid-acme ended=true [] []"},
		"unknown tenant": {int64(1), "tenantquota limits; tenant acme; retired acme acme-uid-acme ended=false [] []"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": v1alpha1.GroupVersion,
					"kind":       v1alpha1.KindTenantQuota,
					"metadata":   map[string]any{"name": "limits", "uid": "uid-limits"},
					"spec":       map[string]any{"tenant": c.of, "hard": map[string]any{"pods": "1e1.5"}},
				}}
				w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, true), q)
				w.start()
				time.Sleep(10 * time.Minute)
				if got := w.objects(); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		})
	}
}

// TestFinalizerKeepsFields checks that the engine changes only the finalizers of a Tenant, even if
// the Tenant does not decode or has fields of a later release.
func TestFinalizerKeepsFields(t *testing.T) {
	for name, spec := range map[string]any{
		"later release":   map[string]any{"id": "acme", "later": "x"},
		"does not decode": map[string]any{"id": "acme", "admins": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := object("acme", v1alpha1.TenantDeletionDelete, false)
				u.Object["spec"] = spec
				u.SetFinalizers([]string{"example.com/other"})
				want := u.DeepCopy()
				want.SetFinalizers([]string{"example.com/other", tenant.Finalizer})
				w := newFixture(t, u)
				w.start()
				time.Sleep(time.Minute)
				got, err := w.dynamic.Resource(tenantObjects).Get(t.Context(), "acme", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				unstructured.RemoveNestedField(got.Object, "metadata", "resourceVersion")
				unstructured.RemoveNestedField(want.Object, "metadata", "resourceVersion")
				if g, w := mustJSON(t, got), mustJSON(t, want); g != w {
					t.Errorf("the Tenant is\n%s, want\n%s", g, w)
				}
			})
		})
	}
}

func mustJSON(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

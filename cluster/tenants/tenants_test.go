// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"errors"
	"slices"
	"sync"
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

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var (
	resource    = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
	definitions = schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
)

func object(name, id string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion,
			"kind":       v1alpha1.KindTenant,
			"spec":       map[string]any{"id": id},
		},
	}
	for key, value := range spec {
		u.Object["spec"].(map[string]any)[key] = value
	}
	u.SetName(name)
	u.SetCreationTimestamp(metav1.NewTime(time.Now()))
	return u
}

func definition() *unstructured.Unstructured {
	u := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"},
	}
	u.SetName("tenants.kubetenant.dev")
	return u
}

// fixture is a fake cluster and a store of its Tenants.
type fixture struct {
	t       *testing.T
	client  *fake.FakeDynamicClient
	store   *tenants.Store
	defined atomic.Bool

	mu      sync.Mutex
	changed []string
}

// newFixture returns a fake cluster and a store that does not run yet.
func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	w := &fixture{
		t: t,
		client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				resource: "TenantList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates): "NamespaceTemplateList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):      "TenantMembersList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications):       "PublicationList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants):     "RetiredTenantList",
				definitions: "CustomResourceDefinitionList",
			}, objects...),
	}
	w.defined.Store(true)
	var err error
	if w.store, err = tenants.New(w.client, func(schema.GroupResource) (bool, bool) {
		return w.defined.Load(), true
	}); err != nil {
		t.Fatal(err)
	}
	w.store.OnLostAccess(func(id tenant.ID) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed = append(w.changed, id.String())
	})
	return w
}

// run runs the store until the test ends.
func (w *fixture) run() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.store.Run(w.t.Context())
	}()
	w.t.Cleanup(func() { <-done })
	w.settle()
}

func (w *fixture) settle() {
	time.Sleep(2 * time.Second) // in the fake time of synctest
	synctest.Wait()
}

// reported returns the tenants that the store reported to OnLostAccess since the last call.
func (w *fixture) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = nil
	return changed
}

func (w *fixture) expect(what, id string, want authz.Access) {
	w.t.Helper()
	if got := w.store.Access(tenanttest.ID(w.t, id)); got != want {
		w.t.Errorf("%s: %s is %d, want %d", what, id, got, want)
	}
}

// TestAccessOf checks that the stricter of spec.access and spec.suspension applies, and that an
// unknown value means Closed. The ID is zero if it is invalid or does not match the name of the
// Tenant.
func TestAccessOf(t *testing.T) {
	for _, c := range []struct {
		name, id           string
		access, suspension v1alpha1.TenantAccess
		want               authz.Access
	}{
		{"a", "a", "", "", authz.AccessOpen},
		{"a", "a", "Open", "Open", authz.AccessOpen},
		{"a", "a", "ReadOnly", "", authz.AccessReadOnly},
		{"a", "a", "", "ReadOnly", authz.AccessReadOnly},
		{"a", "a", "ReadOnly", "Closed", authz.AccessClosed},
		{"a", "a", "Closed", "ReadOnly", authz.AccessClosed},
		{"a", "a", "Closed", "", authz.AccessClosed},
		{"a", "a", "open", "", authz.AccessClosed},
		{"a", "a", "", "Later", authz.AccessClosed},
		{"a-b.c93a0af7", "a.b", "", "", authz.AccessUnknown},
		{tenanttest.ID(t, "A.b").ObjectName(), "A.b", "", "", authz.AccessOpen},
		{"b", "a", "", "", authz.AccessUnknown},
		{"a.b", "a.b", "", "", authz.AccessUnknown},
		{"a", "A", "", "", authz.AccessUnknown},
		{"system", "system", "", "", authz.AccessUnknown},
		{"all", "all", "", "", authz.AccessUnknown},
		{"a", "", "", "", authz.AccessUnknown},
		{"", "", "", "", authz.AccessUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := &v1alpha1.Tenant{
				ObjectMeta: metav1.ObjectMeta{Name: c.name},
				Spec:       v1alpha1.TenantSpec{ID: c.id, Access: c.access, Suspension: c.suspension},
			}
			id, got := tenants.AccessOf(object)
			if got != c.want || id.IsZero() != (c.want == authz.AccessUnknown) || !id.IsZero() && id.String() != c.id {
				t.Errorf("%+v: %q, %d", c, id, got)
			}
		})
	}
}

// TestStore checks that the access is unknown until the Tenants have been read. After that, the
// store observes each change, and reports each tenant whose callers lose access.
func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", nil), object("b", "b", map[string]any{"access": "Closed"}),
			object("c", "other", nil))
		w.expect("before", "a", authz.AccessUnknown)
		w.expect("before", "nobody", authz.AccessUnknown)
		if w.store.HasSynced() {
			t.Error("synced before the Tenants were read")
		}
		w.run()
		w.expect("then", "a", authz.AccessOpen)
		w.expect("then", "b", authz.AccessClosed)
		w.expect("then", "nobody", authz.AccessNone)
		w.expect("name of another tenant", "c", authz.AccessNone)
		w.expect("name of another tenant", "other", authz.AccessNone)
		for name, want := range map[string]string{
			"a":      "a",
			"b":      "b",
			"c":      "",
			"nobody": "",
			"":       "",
		} {
			if got := w.store.TenantOf(name); got.String() != want {
				t.Errorf("the Tenant %q belongs to %q", name, got)
			}
		}
		if told := w.reported(); !slices.Equal(told, []string{"b"}) { // b has less access than without a Tenant
			t.Errorf("reported of the existing Tenants: %v", told)
		}
		tenantsOf := w.client.Resource(resource)
		for _, step := range []struct {
			spec map[string]any
			want authz.Access
			told []string
		}{
			{map[string]any{"suspension": "ReadOnly"}, authz.AccessReadOnly, []string{"a"}},
			{map[string]any{"access": "Open", "suspension": "ReadOnly"}, authz.AccessReadOnly, nil},
			{map[string]any{"suspension": "Closed"}, authz.AccessClosed, []string{"a"}},
			{map[string]any{"access": "ReadOnly"}, authz.AccessReadOnly, nil},
			{nil, authz.AccessOpen, nil},
		} {
			if _, err := tenantsOf.Update(t.Context(), object("a", "a", step.spec), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			w.settle()
			w.expect("changed", "a", step.want)
			if told := w.reported(); !slices.Equal(told, step.told) {
				t.Errorf("%v: reported %v", step.spec, told)
			}
		}
		if _, err := tenantsOf.Create(t.Context(), object("e", "e", nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := tenantsOf.Create(t.Context(), object("d", "d", map[string]any{"access": "ReadOnly"}),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := tenantsOf.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("created", "d", authz.AccessReadOnly)
		w.expect("deleted", "b", authz.AccessNone)
		if told := w.reported(); len(told) != 2 || !slices.Contains(told, "d") || !slices.Contains(told, "b") {
			t.Errorf("reported %v", told)
		}
		if w.store.TenantOf("b") != (tenant.ID{}) {
			t.Error("a deleted Tenant belongs to a tenant")
		}
	})
}

// TestWithoutDefinition checks that no tenant has a Tenant if the kind is not defined. The access
// is unknown until it is known whether the kind is defined.
func TestWithoutDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", map[string]any{"access": "Closed"}))
		w.defined.Store(false)
		w.run()
		w.expect("not defined", "a", authz.AccessNone)
		if !w.store.HasSynced() {
			t.Error("not synced although the kind is not defined")
		}
		w.defined.Store(true)
		w.expect("defined, and not read", "a", authz.AccessUnknown)
		w.settle()
		w.expect("read", "a", authz.AccessClosed)
		w.defined.Store(false)
		w.expect("no longer defined", "a", authz.AccessClosed)
	})
	s, err := tenants.New(newFixture(t).client, func(schema.GroupResource) (bool, bool) { return false, false })
	if err != nil {
		t.Fatal(err)
	}
	if s.HasSynced() || s.Access(tenanttest.ID(t, "a")) != authz.AccessUnknown {
		t.Error("synced although the definitions are not known")
	}
}

// TestDefinitionDeleted checks that Tenants that are deleted with their definition still apply.
// They also apply while it is not known whether the definition was deleted.
func TestDefinitionDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		definition func(*fixture)
		counts     bool
	}{
		"definition exists": {func(*fixture) {}, false},
		"definition deleted": {func(w *fixture) {
			if err := w.client.Resource(definitions).Delete(t.Context(),
				"tenants.kubetenant.dev", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"definition created again": {func(w *fixture) {
			d := definition()
			d.SetCreationTimestamp(metav1.NewTime(time.Now().Add(time.Second)))
			if _, err := w.client.Resource(definitions).Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"definition being deleted": {func(w *fixture) {
			d := definition()
			d.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
			if _, err := w.client.Resource(definitions).Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"definition not readable at first": {func(w *fixture) {
			failures := 3
			w.client.PrependReactor("get", "customresourcedefinitions",
				func(clienttesting.Action) (bool, runtime.Object, error) {
					if failures--; failures < 0 {
						return false, nil, nil
					}
					if failures == 0 {
						w.expect("while it is not known", "a", authz.AccessClosed)
					}
					return true, nil, errors.New("away")
				})
		}, false},
		"definition never readable": {func(w *fixture) {
			w.client.PrependReactor("get", "customresourcedefinitions",
				func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("away")
				})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t, definition(), object("a", "a", map[string]any{"access": "Closed"}))
				w.run()
				w.reported()
				c.definition(w)
				if err := w.client.Resource(resource).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				w.settle()
				want := authz.AccessNone
				if c.counts {
					want = authz.AccessClosed
				}
				w.expect("afterwards", "a", want)
				if told := w.reported(); (len(told) > 0) == c.counts {
					t.Errorf("reported %v", told)
				}
			})
		})
	}
}

// TestTenantCreatedAgain checks that a Tenant that is created again while the store checks the
// definition is not removed.
func TestTenantCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, definition(), object("a", "a", map[string]any{"access": "Closed"}))
		w.run()
		w.client.PrependReactor("get", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
			if err := w.client.Tracker().Create(resource, object("a", "a", map[string]any{"access": "ReadOnly"}),
				""); err != nil {
				t.Error(err)
			}
			time.Sleep(500 * time.Millisecond) // the informer observes the new Tenant
			return false, nil, nil
		})
		if err := w.client.Resource(resource).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("created again", "a", authz.AccessReadOnly)
	})
}

// TestTenantNameOfAnotherTenant checks that a tenant has no Tenant after its Tenant was replaced
// by an object with the same name and another spec.id.
func TestTenantNameOfAnotherTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upper := tenanttest.ID(t, "Acme")
		w := newFixture(t, definition(), object(upper.ObjectName(), "Acme", map[string]any{"access": "Closed"}))
		w.run()
		w.expect("at first", "Acme", authz.AccessClosed)
		if got, known := w.store.Tenant(upper); got == nil || !known {
			t.Errorf("its Tenant: %v, %t", got, known)
		}
		for _, change := range []func() error{
			func() error {
				return w.client.Resource(resource).Delete(t.Context(), upper.ObjectName(), metav1.DeleteOptions{})
			},
			func() error {
				_, err := w.client.Resource(resource).Create(t.Context(),
					object(upper.ObjectName(), "aCme", nil), metav1.CreateOptions{})
				return err
			},
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		w.expect("replaced", "Acme", authz.AccessNone)
		w.expect("ID does not match the name", "aCme", authz.AccessNone)
		if got, known := w.store.Tenant(upper); got != nil || !known {
			t.Errorf("its Tenant: %v, %t", got, known)
		}
		if _, known := w.store.Tenant(tenanttest.ID(t, "aCme")); !known {
			t.Error("the Tenant of the other tenant is not known")
		}
	})
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var tenantsResource = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)

// TestSuspend checks that Suspend sets and removes a suspension, and returns the resulting access.
// The field spec.access does not change.
func TestSuspend(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	// The access of a Tenant that is suspended to ReadOnly, suspended to Closed, and resumed.
	for access, want := range map[string][3]v1alpha1.TenantAccess{
		"":         {"ReadOnly", "Closed", "Open"},
		"Open":     {"ReadOnly", "Closed", "Open"},
		"ReadOnly": {"ReadOnly", "Closed", "ReadOnly"},
		"Closed":   {"Closed", "Closed", "Closed"},
	} {
		t.Run(access, func(t *testing.T) {
			u := tenancy.Object(acme)
			if access != "" {
				u.Object["spec"].(map[string]any)["access"] = access
			}
			d := objects(u)
			for i, suspension := range []v1alpha1.TenantAccess{v1alpha1.TenantAccessReadOnly, v1alpha1.TenantAccessClosed, ""} {
				for _, wantChanged := range []bool{true, false} {
					got, changed, err := tenancy.Suspend(t.Context(), d, acme, suspension, nil)
					if err != nil || got != want[i] || changed != wantChanged {
						t.Errorf("access %q suspended %q: %q, %t, %v", access, suspension, got, changed, err)
					}
				}
				stored, err := d.Resource(tenantsResource).Get(t.Context(), "acme", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				has, set, _ := unstructured.NestedString(stored.Object, "spec", "suspension")
				if has != string(suspension) || !set {
					t.Errorf("stored as %v", stored.Object["spec"])
				}
				if kept, _, _ := unstructured.NestedString(stored.Object, "spec", "access"); kept != access {
					t.Errorf("access %q became %q", access, kept)
				}
			}
		})
	}
	if _, _, err := tenancy.Suspend(t.Context(), objects(), acme, v1alpha1.TenantAccessClosed, nil); !errors.Is(err,
		tenancy.ErrNoObject) {
		t.Errorf("without a Tenant: %v", err)
	}
	d := objects(tenancy.Object(acme))
	refuse(&d.Fake, "patch", "tenants", apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	if _, _, err := tenancy.Suspend(t.Context(), d, acme, "Closed", nil); !errors.Is(err, tenancy.ErrRefused) {
		t.Errorf("denied: %v", err)
	}
}

// TestAdoptTenants checks that a Tenant object is created for each tenant that owns a namespace
// and has no Tenant object. No object is created for invalid labels, the system tenant and system
// namespaces.
func TestAdoptTenants(t *testing.T) {
	newClient := func() *fake.Clientset {
		return fake.NewClientset(namespace("acme--web", "acme"), namespace("acme--db", "acme"),
			namespace("initech--x", "initech"), namespace("x", "A.b"),
			namespace("has", "has"), namespace("bad", "all"), namespace("sys", "system"), namespace("kube-system", ""),
			namespace("monitoring", "globex"))
	}
	misnamed := tenancy.Object(tenanttest.ID(t, "initech"))
	misnamed.SetName("another")
	odd := tenanttest.ID(t, "A.b").ObjectName()
	for name, c := range map[string]struct {
		only    []tenant.ID
		nothing bool
		want    []string
	}{
		"all tenants":      {nil, false, []string{odd, "acme", "initech"}},
		"selected tenants": {[]tenant.ID{tenanttest.ID(t, "acme"), tenanttest.ID(t, "has")}, false, []string{"acme"}},
		"client dry run":   {nil, true, []string{odd, "acme", "initech"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := objects(tenancy.Object(tenanttest.ID(t, "has")), misnamed)
			var printed []string
			created, err := tenancy.AdoptTenants(t.Context(), newClient(), d,
				&tenancy.ObjectAdoption{Only: c.only, ClientDryRun: c.nothing, System: []string{"monitoring"}},
				newWriting(&printed))
			if err != nil {
				t.Errorf("%v", err)
			}
			var got []string
			for _, obj := range created {
				got = append(got, obj.(*unstructured.Unstructured).GetName())
			}
			same(t, name, c.want, got)
			if len(printed) != len(c.want) || !slices.Contains(printed, "tenant.kubetenant.dev/acme created") {
				t.Errorf("printed %q", printed)
			}
			list, err := d.Resource(tenantsResource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := 2
			if !c.nothing {
				want += len(c.want)
			}
			if len(list.Items) != want {
				t.Errorf("%d Tenants", len(list.Items))
			}
		})
	}
	if _, err := tenancy.AdoptTenants(t.Context(), newClient(), objects(),
		&tenancy.ObjectAdoption{Only: []tenant.ID{tenanttest.ID(t, "typo")}}, tenancy.Writing{}); err == nil ||
		!strings.Contains(err.Error(), "typo owns no namespace") {
		t.Errorf("tenant without namespaces: %v", err)
	}
	for _, c := range []struct{ verb, resource string }{
		{"list", "namespaces"}, {"list", "tenants"}, {"list", "rolebindings"}, {"create", "tenants"},
	} {
		t.Run(c.verb+" "+c.resource, func(t *testing.T) {
			k, d := newClient(), objects()
			forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			refuse(&k.Fake, c.verb, c.resource, forbidden)
			refuse(&d.Fake, c.verb, c.resource, forbidden)
			if _, err := tenancy.AdoptTenants(t.Context(), k, d, &tenancy.ObjectAdoption{Admins: true},
				tenancy.Writing{Printf: func(string, ...any) {}}); !errors.Is(err, tenancy.ErrRefused) {
				t.Errorf("%v, want %v", err, tenancy.ErrRefused)
			}
		})
	}
}

// TestAdoptAdmins checks that a subject becomes an admin if grant-privileges bound the ClusterRole
// admin to the subject in all namespaces, without an expiration. Only these bindings are deleted.
func TestAdoptAdmins(t *testing.T) {
	binding := func(namespace, role, user string, change func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
		g := tenancy.Grant{
			Subject:   rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user},
			Namespace: namespace,
		}
		b := g.Binding(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role})
		b.Name = user + "-" + role
		if change != nil {
			change(b)
		}
		return b
	}
	everywhere := func(role, user string, change func(*rbacv1.RoleBinding)) []runtime.Object {
		return []runtime.Object{binding("acme--web", role, user, change), binding("acme--db", role, user, change)}
	}
	all := slices.Concat([]runtime.Object{
		namespace("acme--web", "acme"), namespace("acme--db", "acme"), namespace("initech--x", "initech"),
		binding("acme--web", "admin", "half", nil),
		binding("initech--x", "admin", "peter", nil),
	}, everywhere("admin", "mary", nil), everywhere("edit", "editor", nil),
		everywhere("admin", "ending", func(b *rbacv1.RoleBinding) {
			b.Annotations = map[string]string{tenant.ExpiresAnnotation: "2199-01-01T00:00:00Z"}
		}),
		everywhere("admin", "others", func(b *rbacv1.RoleBinding) { b.Labels = nil }),
		everywhere("admin", "own-role", func(b *rbacv1.RoleBinding) { b.RoleRef.Kind = "Role" }),
		everywhere("admin", "two", func(b *rbacv1.RoleBinding) {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "z"})
		}))
	for name, c := range map[string]struct {
		of      tenancy.ObjectAdoption
		want    string
		deleted int
	}{
		"no admins":      {tenancy.ObjectAdoption{}, "acme [] initech []", 0},
		"admins":         {tenancy.ObjectAdoption{Admins: true}, "acme [mary] initech [peter]", 3},
		"client dry run": {tenancy.ObjectAdoption{Admins: true, ClientDryRun: true}, "acme [mary] initech [peter]", 0},
		"one tenant": {
			tenancy.ObjectAdoption{Admins: true, Only: []tenant.ID{tenanttest.ID(t, "acme")}}, "acme [mary]", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, d := fake.NewClientset(all...), objects()
			var printed []string
			created, err := tenancy.AdoptTenants(t.Context(), k, d, &c.of,
				tenancy.Writing{DryRun: []string{metav1.DryRunAll}, Changes: output.NewChanges(lines{&printed}, "server", "")})
			if err != nil {
				t.Error(err)
			}
			var got []string
			for _, obj := range created {
				adopted, err := typed.Decode[v1alpha1.Tenant](obj.(*unstructured.Unstructured))
				if err != nil {
					t.Fatal(err)
				}
				names := []string{}
				for _, s := range adopted.Spec.Admins {
					names = append(names, s.Name)
				}
				got = append(got, fmt.Sprint(adopted.Name, " ", names))
			}
			deleted := 0
			for _, action := range k.Actions() {
				if action.GetVerb() == "delete" {
					deleted++
				}
			}
			if text := strings.Join(got, " "); text != c.want || deleted != c.deleted {
				t.Errorf("%s, %d deleted; want %s, %d", text, deleted, c.want, c.deleted)
			}
			if taken := strings.Count(strings.Join(printed, "\n"), " namespace (server dry run)"); c.of.Admins && taken < 2 {
				t.Errorf("printed %q", printed)
			}
		})
	}
}

// TestAwaitPrepared checks that AwaitPrepared waits until the Tenant's condition is for its
// current generation, and until each given namespace is prepared.
func TestAwaitPrepared(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	for name, c := range map[string]struct {
		annotation, status string
		observed           int64
		want               error
	}{
		"prepared":                           {"h", "True", 2, nil},
		"unprepared namespace":               {"", "True", 2, tenancy.ErrNotPrepared},
		"condition of an earlier generation": {"h", "True", 1, tenancy.ErrNotPrepared},
		"failed":                             {"h", "False", 2, tenancy.ErrNotPrepared},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := namespace("acme--web", "acme")
				ns.Annotations = map[string]string{tenant.PreparedAnnotation: c.annotation}
				u := tenancy.Object(acme)
				u.SetGeneration(2)
				u.Object["status"] = map[string]any{
					"observedGeneration": c.observed,
					"conditions":         []any{map[string]any{"type": "Prepared", "status": c.status}},
				}
				if err := tenancy.AwaitPrepared(t.Context(), fake.NewClientset(ns), objects(u),
					acme, []string{"acme--web"}); !errors.Is(err, c.want) {
					t.Errorf("%v", err)
				}
			})
		})
	}
	k := fake.NewClientset(namespace("acme--web", "acme"))
	refuse(&k.Fake, "get", "namespaces", apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	if err := tenancy.AwaitPrepared(t.Context(), k, objects(), acme, []string{"acme--web"}); !errors.Is(err,
		tenancy.ErrRefused) {
		t.Errorf("denied: %v", err)
	}
}

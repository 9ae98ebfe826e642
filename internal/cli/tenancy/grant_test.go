// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

var (
	alice = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}
	bob   = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}
)

func aliceMayEdit() *tenancy.Grant {
	return &tenancy.Grant{Subject: alice, Namespace: "acme--web", Role: "edit"}
}

// TestApplyAndRevoke checks that a binding is created once, corrected after another caller changed
// it, and deleted without a change to other bindings.
func TestApplyAndRevoke(t *testing.T) {
	others := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "others"},
		Subjects:   []rbacv1.Subject{alice, bob},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	}
	k := fake.NewClientset(others, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edit"}})
	bindings := k.RbacV1().RoleBindings("acme--web")
	b, verb, err := aliceMayEdit().Apply(t.Context(), k)
	if err != nil || verb != output.Created || b.RoleRef.Kind != "ClusterRole" {
		t.Fatalf("first: %+v, %s, %v", b, verb, err)
	}
	if _, verb, err = aliceMayEdit().Apply(t.Context(), k); verb != output.Unchanged || err != nil {
		t.Fatalf("again: %s, %v", verb, err)
	}
	b.Subjects = append(b.Subjects, bob)
	if _, err := bindings.Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if b, verb, err = aliceMayEdit().Apply(t.Context(), k); verb != output.Configured || err != nil ||
		len(b.Subjects) != 1 {
		t.Fatalf("changed: %+v, %s, %v", b, verb, err)
	}
	revoked, err := aliceMayEdit().Revoke(t.Context(), k)
	if err != nil || !slices.Equal(revoked.Deleted, []string{b.Name}) ||
		!slices.Equal(revoked.Remaining, []string{"others"}) ||
		len(revoked.Changed) > 0 {
		t.Errorf("%+v, %v", revoked, err)
	}
	if _, err := bindings.Get(t.Context(), "others", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// TestApplyExpiration checks that the expiration from the last grant applies. If the last grant
// has no expiration, the binding does not expire.
func TestApplyExpiration(t *testing.T) {
	k := fake.NewClientset(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edit"}})
	day := time.Date(2030, 1, 31, 18, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		name  string
		until time.Time
		want  string
		verb  string
	}{
		{"a new grant", day, "2030-01-31T18:00:00Z", output.Created},
		{"the same time in another zone", day.In(time.FixedZone("east", 3600)), "2030-01-31T18:00:00Z", output.Unchanged},
		{"a later time", day.Add(time.Hour), "2030-01-31T19:00:00Z", output.Configured},
		{"no longer a time", time.Time{}, "", output.Configured},
		{"still no time", time.Time{}, "", output.Unchanged},
		{"a time again", day, "2030-01-31T18:00:00Z", output.Configured},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			g := aliceMayEdit()
			g.Expires = step.until
			b, verb, err := g.Apply(t.Context(), k)
			if err != nil || verb != step.verb {
				t.Fatalf("%s, %v", verb, err)
			}
			stored, err := k.RbacV1().RoleBindings("acme--web").Get(t.Context(), b.Name, metav1.GetOptions{})
			if err != nil || stored.Annotations[tenant.ExpiresAnnotation] != step.want {
				t.Errorf("stored %v, %v; want %q", stored.Annotations, err, step.want)
			}
		}) {
			return
		}
	}
}

// TestRevokeKeepsOtherSubjects checks that only the revoked subject is removed from a binding with
// other subjects.
func TestRevokeKeepsOtherSubjects(t *testing.T) {
	made := aliceMayEdit().Binding(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"})
	made.Subjects = append(made.Subjects, bob)
	k := fake.NewClientset(made)
	if r, err := aliceMayEdit().Revoke(t.Context(), k); err != nil || len(r.Changed) != 1 || len(r.Deleted) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	got, err := k.RbacV1().RoleBindings("acme--web").Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil || len(got.Subjects) != 1 || got.Subjects[0] != bob {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestApplyRefuses checks that a missing role is an error, and that an existing binding with the
// same name is not changed if it binds another role.
func TestApplyRefuses(t *testing.T) {
	if _, _, err := aliceMayEdit().Apply(t.Context(), fake.NewClientset()); !errors.Is(err, tenancy.ErrNoRole) {
		t.Errorf("no role: %v", err)
	}
	squatter := aliceMayEdit().Binding(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"})
	squatter.RoleRef.Name = "cluster-admin"
	k := fake.NewClientset(squatter, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edit"}})
	if _, _, err := aliceMayEdit().Apply(t.Context(), k); !errors.Is(err, tenancy.ErrRefused) {
		t.Errorf("another role: %v", err)
	}
}

// TestNotFound checks that the error distinguishes a missing role and a missing namespace, even if
// the caller may read neither.
func TestNotFound(t *testing.T) {
	forbid := func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
	}
	for missing, want := range map[schema.GroupResource]error{
		rbacv1.Resource("clusterrole"): tenancy.ErrNoRole,
		rbacv1.Resource("role"):        tenancy.ErrNoRole,
		corev1.Resource("namespaces"):  tenancy.ErrNoNamespace,
	} {
		t.Run(missing.String(), func(t *testing.T) {
			k := fake.NewClientset()
			k.PrependReactor("get", "*", forbid)
			k.PrependReactor("create", "rolebindings", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewNotFound(missing, "x")
			})
			if _, _, err := aliceMayEdit().Apply(t.Context(), k); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}

// TestRolePrecedesClusterRole checks that a Role takes precedence over a ClusterRole, unless a
// ClusterRole is requested.
func TestRolePrecedesClusterRole(t *testing.T) {
	k := fake.NewClientset(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "edit"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edit"}})
	g := aliceMayEdit()
	for want, only := range map[string]bool{"Role": false, "ClusterRole": true} {
		t.Run(want, func(t *testing.T) {
			g.ClusterRole = only
			if b, _, err := g.Apply(t.Context(), k); err != nil || b.RoleRef.Kind != want {
				t.Errorf("%+v, %v; want a %s", b, err, want)
			}
		})
	}
}

// TestCreateNamespace checks that an existing namespace is accepted only if it belongs to the same
// tenant.
func TestCreateNamespace(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	k := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme--old", Labels: map[string]string{tenant.Label: "acme"}}},
		&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "globex--shop", Labels: map[string]string{tenant.Label: "globex"}},
		},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nobodys", Labels: map[string]string{tenant.Label: ""}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for name, c := range map[string]struct {
		owner tenant.ID
		made  bool
		err   error
	}{
		"acme--new":    {acme, true, nil},
		"acme--old":    {acme, false, nil},
		"globex--shop": {acme, false, tenancy.ErrRefused},
		"default":      {acme, false, tenancy.ErrRefused},
		"nobodys":      {tenant.System(), false, tenancy.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			if made, err := tenancy.CreateNamespace(t.Context(), k, name, c.owner, nil); made != c.made ||
				!errors.Is(err, c.err) {
				t.Errorf("%t, %v", made, err)
			}
		})
	}
	if made, err := tenancy.CreateNamespace(t.Context(), k, "default", tenant.System(), nil); made || err != nil {
		t.Errorf("namespace of the system tenant: %t, %v", made, err)
	}
	ns, err := k.CoreV1().Namespaces().Get(t.Context(), "acme--new", metav1.GetOptions{})
	if err != nil || ns.Labels[tenant.Label] != "acme" || ns.Labels["pod-security.kubernetes.io/enforce"] == "" {
		t.Errorf("%+v, %v", ns, err)
	}
}

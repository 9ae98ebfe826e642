// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var membersResource = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers)

func member(t *testing.T, s rbacv1.Subject, role string) *tenancy.MemberGrant {
	t.Helper()
	return &tenancy.MemberGrant{Tenant: tenanttest.ID(t, "acme"), Subject: s, ClusterRole: role}
}

// membersIn returns a client with a TenantMembers object. It creates the object with the client,
// because the fake client would otherwise derive a wrong plural from the kind.
func membersIn(t *testing.T, u *unstructured.Unstructured) *dynamicfake.FakeDynamicClient {
	t.Helper()
	d := objects()
	if _, err := d.Resource(membersResource).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return d
}

// stored returns the bindings in the TenantMembers of acme as ROLE:SUBJECT,..., or "none".
func stored(t *testing.T, d dynamic.Interface) string {
	t.Helper()
	u, err := d.Resource(membersResource).Get(t.Context(), "acme", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	is, err := typed.Decode[v1alpha1.TenantMembers](u)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, b := range is.Spec.Bindings {
		var names []string
		for _, s := range b.Subjects {
			names = append(names, s.Name)
		}
		all = append(all, b.ClusterRole+":"+strings.Join(names, ","))
	}
	return strings.Join(all, " ")
}

// TestMemberGrant checks that a grant or a revocation changes only its own entry. The last
// revocation deletes the object only if kubectl tenant created it.
func TestMemberGrant(t *testing.T) {
	d := objects()
	for _, step := range []struct {
		name       string
		subject    rbacv1.Subject
		role, verb string // if verb is empty, the step is a revocation
		want       string
	}{
		{"the first grant", alice, "view", output.Created, "view:alice"},
		{"the same grant", alice, "view", output.Unchanged, "view:alice"},
		{"another subject", bob, "view", output.Configured, "view:alice,bob"},
		{"another role", alice, "edit", output.Configured, "view:alice,bob edit:alice"},
		{"revocation of one role", alice, "view", "", "view:bob edit:alice"},
		{"revocation of a role that was not granted", bob, "edit", "", "view:bob edit:alice"},
		{"revocation of all roles of one subject", alice, "", "", "view:bob"},
		{"the last revocation", bob, "", "", "none"},
		{"revocation without an object", bob, "", "", "none"},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			g := member(t, step.subject, step.role)
			var err error
			verb := ""
			if step.verb == "" {
				_, _, err = g.Revoke(t.Context(), d)
			} else {
				_, verb, err = g.Apply(t.Context(), d)
			}
			if got := stored(t, d); err != nil || verb != step.verb || got != step.want {
				t.Errorf("%s, %v, stored %s", verb, err, got)
			}
		}) {
			return
		}
	}
	by := member(t, alice, "view").Object()
	by.SetLabels(nil)
	d = membersIn(t, by)
	if deleted, changed, err := member(t, alice, "").Revoke(t.Context(), d); deleted || !changed || err != nil ||
		stored(t, d) != "" {
		t.Errorf("object that kubectl tenant did not create: %t, %t, %v, %s", deleted, changed, err, stored(t, d))
	}
}

// TestMemberGrantConflicts checks that a concurrent write by another caller is not lost.
func TestMemberGrantConflicts(t *testing.T) {
	for name, write := range map[string]func(d dynamic.Interface) error{
		"grant": func(d dynamic.Interface) error {
			_, _, err := member(t, alice, "view").Apply(t.Context(), d)
			return err
		},
		"revoke": func(d dynamic.Interface) error {
			_, _, err := member(t, alice, "edit").Revoke(t.Context(), d)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := membersIn(t, member(t, alice, "edit").Object())
			raced := false
			for _, verb := range []string{"patch", "delete"} {
				d.PrependReactor(verb, "tenantmembers", func(clienttesting.Action) (bool, runtime.Object, error) {
					if raced {
						return false, nil, nil
					}
					raced = true
					both := member(t, alice, "edit").Object()
					_ = unstructured.SetNestedSlice(both.Object, []any{map[string]any{
						"clusterRole": "edit",
						"subjects": []any{
							map[string]any{"kind": "User", "name": "alice"}, map[string]any{"kind": "User", "name": "bob"},
						},
					}}, "spec", "bindings")
					if err := d.Tracker().Update(membersResource, both, ""); err != nil {
						t.Error(err)
					}
					return true, nil, apierrors.NewConflict(membersResource.GroupResource(), "acme", nil)
				})
			}
			if err := write(d); err != nil || !raced || !strings.Contains(stored(t, d), "bob") {
				t.Errorf("%v, raced %t, stored %s", err, raced, stored(t, d))
			}
		})
	}
}

// TestMemberGrantRefused checks that each error contains advice, and that nothing is written.
func TestMemberGrantRefused(t *testing.T) {
	resource := membersResource.GroupResource()
	full := member(t, alice, "r0").Object()
	bindings := []any{}
	for i := range 32 {
		bindings = append(bindings, map[string]any{"clusterRole": fmt.Sprintf("r%d", i), "subjects": []any{}})
	}
	_ = unstructured.SetNestedSlice(full.Object, bindings, "spec", "bindings")
	if _, _, err := member(t, alice, "view").Apply(t.Context(), membersIn(t, full)); !errors.Is(err, tenancy.ErrRefused) {
		t.Errorf("32 bindings: %v", err)
	}
	for name, c := range map[string]struct {
		verb string
		err  error
		want string
	}{
		"role denied": {
			"create", apierrors.NewForbidden(resource, "acme", errors.New(
				`spec.bindings[0].clusterRole: "view" is not listed in spec.memberRoles of the Tenant`)),
			"the Tenant does not let members have ClusterRole view: a cluster admin can add it to spec.memberRoles",
		},
		"read denied by RBAC": {
			"get",
			apierrors.NewForbidden(resource, "acme", errors.New(`User "bob" cannot get resource "tenantmembers" in API group`)),
			"you may not read and write tenantmembers: see docs/tenants.md#members",
		},
		"subject denied": {
			"create", apierrors.NewForbidden(resource, "acme", errors.New("spec.bindings[0].subjects[0] is reserved")),
			"is reserved",
		},
		"no CustomResourceDefinition": {
			"create", apierrors.NewGenericServerResponse(404, "create", schema.GroupResource{}, "", "", 0, true),
			"the CustomResourceDefinition tenantmembers.kubetenant.dev is not installed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := objects()
			refuse(&d.Fake, c.verb, "tenantmembers", c.err)
			if _, _, err := member(t, alice, "view").Apply(t.Context(), d); !errors.Is(err, tenancy.ErrRefused) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestMemberGrantOthers checks that Others omits bindings that the server manages.
func TestMemberGrantOthers(t *testing.T) {
	binding := func(namespace, name, managed string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
			Subjects:   subjects,
		}
		if managed != "" {
			b.Labels = map[string]string{tenant.ManagedLabel: managed}
		}
		return b
	}
	k := fake.NewClientset(namespace("acme--web", "acme"), namespace("globex--shop", "globex"),
		binding("acme--web", "by-hand", "", alice, bob), binding("acme--web", "derived", "members", alice),
		binding("acme--web", "bobs", "", bob), binding("globex--shop", "elsewhere", "", alice))
	if got, err := member(t, alice, "").Others(t.Context(), k); err != nil ||
		!slices.Equal(got, []string{"acme--web/by-hand"}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := member(t, alice, "edit").Others(t.Context(), k); err != nil || len(got) > 0 {
		t.Errorf("another role: %v, %v", got, err)
	}
}

// TestCheckWide checks which subjects CheckClusterWide accepts.
func TestCheckWide(t *testing.T) {
	for subject, allowed := range map[string]bool{
		"User alice":                               true,
		"User system:anonymous":                    false,
		"User tenant:acme":                         true,
		"Group ops":                                true,
		"Group system:masters":                     true,
		"Group tenant:acme":                        false,
		"Group tenant:system":                      false,
		"Group system:authenticated":               false,
		"Group system:unauthenticated":             false,
		"Group system:serviceaccounts":             false,
		"Group system:serviceaccounts:kube-system": false,
		"ServiceAccount robot":                     true,
	} {
		t.Run(subject, func(t *testing.T) {
			kind, name, _ := strings.Cut(subject, " ")
			if err := tenancy.CheckClusterWide(rbacv1.Subject{Kind: kind, Name: name}); (err == nil) != allowed {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestWideGrant checks that the binding applies only to the system tenant's objects, even after
// another caller has changed it. A binding that another caller created with the same name is not
// changed.
func TestWideGrant(t *testing.T) {
	k := fake.NewClientset(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}})
	g := &tenancy.ClusterWideGrant{Subject: alice, ClusterRole: "view"}
	b, verb, err := g.Apply(t.Context(), k)
	if err != nil || verb != output.Created || b.Annotations[tenant.ScopeAnnotation] != "system" {
		t.Fatalf("%+v, %s, %v", b, verb, err)
	}
	if _, verb, err = g.Apply(t.Context(), k); err != nil || verb != output.Unchanged {
		t.Fatalf("again: %s, %v", verb, err)
	}
	b.Annotations = nil
	if _, err := k.RbacV1().ClusterRoleBindings().Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b, verb, err = g.Apply(t.Context(), k)
	if err != nil || verb != output.Configured || b.Annotations[tenant.ScopeAnnotation] != "system" {
		t.Fatalf("without the annotation: %+v, %s, %v", b, verb, err)
	}
	by := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
		RoleRef:    b.RoleRef,
		Subjects:   b.Subjects,
	}
	if _, err := k.RbacV1().ClusterRoleBindings().Create(t.Context(), by, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{b.Name}, nil} {
		deleted, remaining, err := g.Revoke(t.Context(), k)
		if err != nil || !slices.Equal(deleted, want) || !slices.Equal(remaining, []string{"by-hand"}) {
			t.Errorf("%v, %v, %v", deleted, remaining, err)
		}
	}
	other := g.Binding()
	other.Labels = nil
	k = fake.NewClientset(other, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}})
	if _, _, err := g.Apply(t.Context(), k); !errors.Is(err, tenancy.ErrRefused) {
		t.Errorf("binding of another caller: %v", err)
	}
	if _, _, err := (&tenancy.ClusterWideGrant{Subject: alice, ClusterRole: "x"}).Apply(t.Context(), k); !errors.Is(err,
		tenancy.ErrNoRole) {
		t.Errorf("no role: %v", err)
	}
}

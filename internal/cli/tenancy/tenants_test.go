// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// namespace returns a namespace of a tenant. If owner is empty, the namespace has no tenant.
func namespace(name, owner string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}}
	if owner != "" {
		ns.Labels = map[string]string{tenant.Label: owner}
	}
	return ns
}

// same reports an error if two values differ.
func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// lines appends each written line to the slice that to points to.
type lines struct{ to *[]string }

// Write implements [io.Writer].
func (l lines) Write(text []byte) (int, error) {
	*l.to = append(*l.to, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	return len(text), nil
}

// newWriting returns a Writing whose changes and explanations are appended to printed.
func newWriting(printed *[]string) tenancy.Writing {
	return tenancy.Writing{Changes: output.NewChanges(lines{printed}, "", ""), Printf: appendTo(printed)}
}

func appendTo(printed *[]string) func(string, ...any) {
	return func(format string, args ...any) { *printed = append(*printed, fmt.Sprintf(format, args...)) }
}

// refuse makes a request of a fake client return an error.
func refuse(k *clienttesting.Fake, verb, resource string, err error) {
	k.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// createdObjects returns the created objects, each with its dry run option.
func createdObjects(k *fake.Clientset) (all []string) {
	for _, a := range k.Actions() {
		if c, ok := a.(clienttesting.CreateActionImpl); ok {
			o, _ := c.Object.(metav1.Object)
			all = append(all,
				strings.TrimPrefix(strings.Join(append(c.CreateOptions.DryRun, ""), " ")+c.Resource.Resource+" "+o.GetName(), " "))
		}
	}
	return all
}

func newAcme(t *testing.T) *tenancy.New {
	t.Helper()
	return &tenancy.New{
		ID:            tenanttest.ID(t, "acme"),
		Admins:        []string{"alice"},
		Namespaces:    []string{"acme--new", "acme--old"},
		NetworkPolicy: true,
		BindMembers:   true,
	}
}

// TestObjects checks the objects of a new tenant: its Tenant object and its namespaces. The member
// role is bound only if requested.
func TestObjects(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*tenancy.New)
		want []string
	}{
		"no options": {func(n *tenancy.New) { *n = tenancy.New{ID: n.ID} }, []string{"Tenant acme"}},
		"members are admins": {
			func(n *tenancy.New) { *n = tenancy.New{ID: n.ID, MembersAdmin: true} },
			[]string{
				"Tenant acme, admin to [Group tenant:acme]",
			},
		},
		"members are bound": {
			func(n *tenancy.New) { *n = tenancy.New{ID: n.ID, BindMembers: true} },
			[]string{
				"Tenant acme", "ClusterRole kubetenant:tenant-member",
				"ClusterRoleBinding kubetenant:tenant-member:acme: kubetenant:tenant-member to [Group tenant:acme]",
			},
		},
		"a namespace with a policy and admins": {
			func(n *tenancy.New) {
				n.BindMembers, n.Namespaces, n.Admins = false, n.Namespaces[:1], []string{"alice", "bob"}
			},
			[]string{
				"Tenant acme of [alice bob]", "Namespace acme--new of acme",
				"NetworkPolicy acme--new/kubetenant-own-tenant from acme",
			},
		},
		"no policy": {
			func(n *tenancy.New) {
				n.BindMembers, n.Namespaces, n.Admins, n.NetworkPolicy = false, n.Namespaces[:1], nil, false
			},
			[]string{
				"Tenant acme", "Namespace acme--new of acme",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newAcme(t)
			c.of(n)
			var got []string
			for _, obj := range n.Objects() {
				got = append(got, describe(obj))
			}
			same(t, name, c.want, got)
		})
	}
}

func describe(obj runtime.Object) string {
	whom := func(subjects []rbacv1.Subject) (all []string) {
		for _, s := range subjects {
			all = append(all, s.Kind+" "+s.Name)
		}
		return all
	}
	switch o := obj.(type) {
	case *rbacv1.ClusterRole:
		return "ClusterRole " + o.Name
	case *rbacv1.ClusterRoleBinding:
		return fmt.Sprintf("ClusterRoleBinding %s: %s to %v", o.Name, o.RoleRef.Name, whom(o.Subjects))
	case *rbacv1.RoleBinding:
		return fmt.Sprintf("RoleBinding in %s: %s to %v", o.Namespace, o.RoleRef.Name, whom(o.Subjects))
	case *corev1.Namespace:
		return "Namespace " + o.Name + " of " + o.Labels[tenant.Label]
	case *unstructured.Unstructured:
		t, err := typed.Decode[v1alpha1.Tenant](o)
		if err != nil {
			return err.Error()
		}
		text := o.GetKind() + " " + o.GetName()
		var names []string
		for _, s := range t.Spec.Admins {
			names = append(names, s.Name)
		}
		if len(names) > 0 {
			text += fmt.Sprintf(" of %v", names)
		}
		for _, b := range t.Spec.Bindings {
			text += fmt.Sprintf(", %s to %v", b.ClusterRole, whom(tenants.Subjects(b.Subjects)))
		}
		return text
	case *networkingv1.NetworkPolicy:
		return "NetworkPolicy " + o.Namespace + "/" + o.Name + " from " +
			o.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels[tenant.Label]
	}
	return fmt.Sprintf("%T", obj)
}

// TestCreate checks that each created object is reported. Existing objects are not changed, and a
// second call changes nothing.
func TestCreate(t *testing.T) {
	k, d := fake.NewClientset(namespace("acme--old", "acme")), objects()
	var printed []string
	if err := tenancy.Create(t.Context(), k, d, newAcme(t), newWriting(&printed)); err != nil {
		t.Fatal(err)
	}
	same(t, "said", []string{
		"tenant.kubetenant.dev/acme created",
		"clusterrole.rbac.authorization.k8s.io/kubetenant:tenant-member created",
		"clusterrolebinding.rbac.authorization.k8s.io/kubetenant:tenant-member:acme created",
		"namespace/acme--new created",
		"networkpolicy.networking.k8s.io/kubetenant-own-tenant created",
		"networkpolicy.networking.k8s.io/kubetenant-own-tenant created",
	}, printed)
	printed = nil
	if err := tenancy.Create(t.Context(), k, d, newAcme(t), newWriting(&printed)); err != nil {
		t.Fatal(err)
	}
	same(t, "said the second time", []string{"tenant.kubetenant.dev/acme unchanged"}, printed)
	printed = nil
	more := newAcme(t)
	more.Admins = []string{"bob", "alice"}
	if err := tenancy.Create(t.Context(), k, d, more, newWriting(&printed)); err != nil {
		t.Fatal(err)
	}
	same(t, "said with one more", []string{"tenant.kubetenant.dev/acme configured"}, printed)
	u, err := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).
		Get(t.Context(), "acme", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the Tenant", []string{"Tenant acme of [alice bob]"}, []string{describe(u)})
}

// TestCreateMembersAdmin checks that an existing Tenant retains its bindings, and that the binding
// of the members is added only once.
func TestCreateMembersAdmin(t *testing.T) {
	existing := tenancy.Object(tenanttest.ID(t, "acme"))
	spec := existing.Object["spec"].(map[string]any)
	carol := map[string]any{"kind": rbacv1.UserKind, "name": "carol"}
	spec["bindings"] = []any{
		map[string]any{"clusterRole": "view", "subjects": []any{carol}},
		map[string]any{"clusterRole": "admin", "subjects": []any{carol}},
	}
	k, d := fake.NewClientset(), objects()
	resource := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants))
	if _, err := resource.Create(t.Context(), existing, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"tenant.kubetenant.dev/acme configured", "tenant.kubetenant.dev/acme unchanged",
	} {
		var printed []string
		if err := tenancy.Create(t.Context(), k, d, &tenancy.New{ID: tenanttest.ID(t, "acme"), MembersAdmin: true},
			newWriting(&printed)); err != nil {
			t.Fatal(err)
		}
		same(t, "said", []string{want}, printed)
	}
	u, err := resource.Get(t.Context(), "acme", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the Tenant", []string{"Tenant acme, view to [User carol], admin to [User carol Group tenant:acme]"},
		[]string{describe(u)})
	same(t, "created", nil, createdObjects(k))
}

// TestCreateDryRun checks that every request is a dry run, and that no request is for a namespace
// that does not exist.
func TestCreateDryRun(t *testing.T) {
	k := fake.NewClientset(namespace("acme--old", "acme"))
	if err := tenancy.Create(t.Context(), k, objects(), newAcme(t),
		tenancy.Writing{DryRun: []string{metav1.DryRunAll}, Printf: func(string, ...any) {}}); err != nil {
		t.Fatal(err)
	}
	same(t, "requests", []string{
		"All clusterroles kubetenant:tenant-member", "All clusterrolebindings kubetenant:tenant-member:acme",
		"All namespaces acme--new", "All namespaces acme--old", "All networkpolicies kubetenant-own-tenant",
	}, createdObjects(k))
}

// TestCreateRefuses checks that a namespace that cannot belong to the tenant is rejected before
// any object is created.
func TestCreateRefuses(t *testing.T) {
	for name, want := range map[string]string{
		"globex--shop": "already exists and does not belong to tenant acme",
		"nobodys":      "kubectl tenant adopt",
		"globex--new":  "has the prefix of tenant globex",
	} {
		t.Run(name, func(t *testing.T) {
			k := fake.NewClientset(namespace("globex--shop", "globex"), namespace("nobodys", ""))
			n := newAcme(t)
			n.Namespaces = append(n.Namespaces[:1], name)
			err := tenancy.Create(t.Context(), k, objects(), n, tenancy.Writing{Printf: func(string, ...any) {}})
			if !errors.Is(err, tenancy.ErrRefused) || !strings.Contains(err.Error(), want) || len(createdObjects(k)) > 0 {
				t.Errorf("%v, created %v", err, createdObjects(k))
			}
		})
	}
}

// TestCreateFails checks that a denied request ends the creation. The error contains the missing
// rights on one line, and later objects are not reported.
func TestCreateFails(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y",
		errors.New("user is attempting to grant RBAC permissions not currently held:\n{APIGroups:[*]}"))
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "namespaces", "networkpolicies"} {
		k := fake.NewClientset()
		refuse(&k.Fake, "create", resource, forbidden)
		var printed []string
		err := tenancy.Create(t.Context(), k, objects(), newAcme(t), newWriting(&printed))
		if !errors.Is(err, tenancy.ErrRefused) ||
			!strings.HasSuffix(err.Error(),
				"refused: you cannot grant rights that you do not have; missing: {APIGroups:[*]}") {
			t.Errorf("%s: %v", resource, err)
		}
		if slices.Contains(printed, "tenant.kubetenant.dev/acme unchanged") {
			t.Errorf("%s: printed %q", resource, printed)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// listed lists the privileges of an identity in a cluster with only the binding b, which it sets
// to bind alice. It returns the scope of the binding and, if the binding does not apply, the
// reason.
func listed(t *testing.T, i *privileges.Identity, b *simulator.Binding, unread ...string) string {
	t.Helper()
	s := shop(t)
	s.Unread = unread
	b.RoleRef, b.Subjects = rbacv1.RoleRef{Kind: "ClusterRole", Name: "secrets"},
		[]rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}}
	s.Bindings = []*simulator.Binding{b}
	for _, h := range privileges.List(s, i, time.Now()).Roles {
		for _, found := range h.Bindings {
			return found.Scope + ": " + found.HeldBack
		}
	}
	return "none"
}

// TestListScope checks the scope of a binding within the tenant boundary, and the reason if the
// binding does not apply.
func TestListScope(t *testing.T) {
	of := func(name string) *privileges.Identity { return privileges.OfUser("alice", nil, tenanttest.ID(t, name)) }
	unknown := privileges.OfUser("alice", nil, tenant.ID{})
	limited := func(scope string) *simulator.Binding {
		return &simulator.Binding{Name: "b", Scope: scope, Limited: true}
	}
	in := func(ns string) *simulator.Binding { return &simulator.Binding{Namespace: ns, Name: "b"} }
	for name, c := range map[string]struct {
		who    *privileges.Identity
		b      *simulator.Binding
		unread []string
		want   string
	}{
		"own namespace": {of("acme"), in("acme--web"), nil, "namespace acme--web: "},
		"namespace of another tenant": {
			of("acme"), in("globex--shop"), nil, "namespace globex--shop: the namespace does not belong to tenant acme",
		},
		"unowned namespace": {of("acme"), in("nobodys"), nil, "namespace nobodys: the namespace does not belong to " +
			"tenant acme"},
		"namespaces not readable": {of("acme"), in("globex--shop"), []string{"Namespaces"}, "namespace globex--shop: "},
		"caller of the system tenant": {
			privileges.OfUser("alice", nil, tenant.System()), in("globex--shop"), nil, "namespace globex--shop: ",
		},
		"unknown tenant": {unknown, in("globex--shop"), nil, "namespace globex--shop: "},
		"cluster-wide":   {of("acme"), &simulator.Binding{Name: "b"}, nil, "all namespaces of tenant acme: "},
		"cluster-wide, system tenant": {
			privileges.OfUser("alice", nil, tenant.System()), &simulator.Binding{Name: "b"}, nil, "the whole cluster: ",
		},
		"cluster-wide, unknown tenant":       {unknown, &simulator.Binding{Name: "b"}, nil, "the whole cluster: "},
		"limited to this tenant and another": {of("acme"), limited("globex, acme"), nil, "all namespaces of tenant acme: "},
		"limited to another tenant": {
			of("acme"), limited("globex"), nil, "limited to globex: it does not apply to tenant acme",
		},
		"limited to a tenant with a longer name": {
			of("acme"), limited("acme2"), nil, "limited to acme2: it does not apply to tenant acme",
		},
		"empty limit":             {of("acme"), limited(""), nil, "limited to : it does not apply to tenant acme"},
		"limited, unknown tenant": {unknown, limited("globex"), nil, "limited to globex: "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := listed(t, c.who, c.b, c.unread...); got != c.want {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestListReaches checks that a binding matches an identity by user, group or service account, and
// does not match similar names.
func TestListReaches(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	user, group := privileges.OfUser("alice", []string{"dev"}, acme), privileges.OfGroup("dev", tenant.ID{})
	robot := privileges.OfServiceAccount("acme--web", "robot", acme)
	for name, c := range map[string]struct {
		who  *privileges.Identity
		to   rbacv1.Subject
		want string
	}{
		"user":                            {user, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}, "user alice"},
		"group with the name of the user": {user, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "alice"}, ""},
		"group":                           {user, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "dev"}, "group dev"},
		"all authenticated users": {
			user, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}, "group system:authenticated",
		},
		"group of the tenant":     {user, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "tenant:acme"}, "group tenant:acme"},
		"group of another tenant": {user, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "tenant:globex"}, ""},
		"empty user for a group":  {group, rbacv1.Subject{Kind: rbacv1.UserKind, Name: ""}, ""},
		"group without a tenant":  {group, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "tenant:acme"}, ""},
		"service account": {
			robot,
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "acme--web", Name: "robot"},
			"service account acme--web/robot",
		},
		"service account of another namespace": {
			robot, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "globex--shop", Name: "robot"}, "",
		},
		"service account of the binding's namespace": {
			robot, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "robot"}, "service account acme--web/robot",
		},
		"service account as a user": {
			robot,
			rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:acme--web:robot"},
			"user system:serviceaccount:acme--web:robot",
		},
		"service accounts of the namespace": {
			robot,
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:acme--web"},
			"group system:serviceaccounts:acme--web",
		},
		"service accounts of another namespace": {
			robot, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:globex--shop"}, "",
		},
		"service account with the name of the user": {
			user, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "acme--web", Name: "alice"}, "",
		},
		"unknown kind": {user, rbacv1.Subject{Kind: "Person", Name: "alice"}, ""},
		"tenant identity, group of the tenant": {
			privileges.OfTenant(acme), rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "tenant:acme"}, "group tenant:acme",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulator.NewSnapshot()
			b := &simulator.Binding{Namespace: "acme--web", Name: "b", Subjects: []rbacv1.Subject{c.to}}
			s.Bindings = []*simulator.Binding{b}
			got := ""
			if roles := privileges.List(s, c.who, time.Now()).Roles; len(roles) > 0 {
				got = roles[0].Bindings[0].Subject
			}
			if got != c.want || privileges.ForIdentity(c.who).KeepBinding(s, b) != (c.want != "") {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestListRoles checks that a missing role and an unreadable role are distinguished. For an
// aggregated role, the listing contains the ClusterRoles that it aggregates.
func TestListRoles(t *testing.T) {
	s := simulator.NewSnapshot()
	chosen := map[string]string{"to": "view"}
	aggregates := []metav1.LabelSelector{{MatchLabels: chosen}, {MatchLabels: map[string]string{"and": "more"}}}
	s.Roles[simulator.Key{Name: "view"}] = &simulator.Role{Labels: chosen, Aggregates: aggregates}
	s.Roles[simulator.Key{Name: "pods"}] = &simulator.Role{Labels: map[string]string{"to": "view", "and": "more"}}
	s.Roles[simulator.Key{Name: "apps"}] = &simulator.Role{Labels: chosen}
	s.Roles[simulator.Key{Name: "edit"}] = &simulator.Role{Labels: map[string]string{"to": "edit"}}
	s.Roles[simulator.Key{Namespace: "web", Name: "local"}] = &simulator.Role{Labels: chosen}
	for _, ref := range []rbacv1.RoleRef{
		{Kind: "ClusterRole", Name: "view"}, {Kind: "ClusterRole", Name: "gone"}, {Kind: "Role", Name: "closed"},
	} {
		s.Bindings = append(s.Bindings, &simulator.Binding{
			Namespace: "web",
			Name:      "by-" + ref.Name,
			RoleRef:   ref,
			Labels:    map[string]string{privileges.CreatedByLabel: "x"},
			Subjects:  []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}},
		})
	}
	s.Bindings = append(s.Bindings, &simulator.Binding{
		Namespace: "a",
		Name:      "again",
		RoleRef:   s.Bindings[0].RoleRef,
		Subjects:  s.Bindings[0].Subjects,
	})
	s.Unread = []string{"Roles"}
	var got []string
	for _, h := range privileges.List(s, privileges.OfUser("alice", nil, tenant.ID{}), time.Now()).Roles {
		text := h.Kind + " " + h.Namespace + "/" + h.Name + " from " + strings.Join(h.AggregatedFrom, ",")
		if h.Missing {
			text += " missing"
		}
		if h.Unread {
			text += " unread"
		}
		for _, b := range h.Bindings {
			text += " by " + b.Namespace + "/" + b.Name
			if b.CreatedByKubectl {
				text += " made here"
			}
		}
		got = append(got, text)
	}
	want := []string{
		"ClusterRole /gone from  missing by web/by-gone made here",
		"ClusterRole /view from apps,pods by a/again by web/by-view made here",
		"Role web/closed from  unread by web/by-closed made here",
	}
	if !slices.Equal(got, want) {
		t.Errorf("List() =\n%s; want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// grant returns an AccessGrant in globex--shop to alice of acme. change may be nil.
func grant(t *testing.T, name string, change func(*v1alpha1.AccessGrant)) *unstructured.Unstructured {
	t.Helper()
	g := &v1alpha1.AccessGrant{
		TypeMeta:   metav1.TypeMeta{APIVersion: tenant.Domain + "/v1alpha1", Kind: v1alpha1.KindAccessGrant},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "globex--shop"},
		Spec: v1alpha1.AccessGrantSpec{
			From:    v1alpha1.AccessGrantFrom{Tenant: "acme", Users: []string{"alice"}},
			To:      []v1alpha1.AccessGrantRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
			Grantor: &v1alpha1.AccessGrantor{Owner: "globex", Tenant: "globex", User: "bob"},
		},
	}
	if change != nil {
		change(g)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: object}
}

// TestListGrants checks that a grant is listed only for callers to which it applies. If the grant
// is not valid, the reason is listed.
func TestListGrants(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	alice := privileges.OfUser("alice", []string{"dev"}, tenanttest.ID(t, "acme"))
	from := func(f v1alpha1.AccessGrantFrom) func(*v1alpha1.AccessGrant) {
		return func(g *v1alpha1.AccessGrant) { g.Spec.From = f }
	}
	until := func(at time.Time) func(*v1alpha1.AccessGrant) {
		return func(g *v1alpha1.AccessGrant) { g.Spec.Expires = &metav1.Time{Time: at} }
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.AccessGrant)
		who    *privileges.Identity
		want   string
	}{
		"valid":          {nil, alice, "globex: "},
		"group":          {from(v1alpha1.AccessGrantFrom{Tenant: "acme", Groups: []string{"dev"}}), alice, "globex: "},
		"another group":  {from(v1alpha1.AccessGrantFrom{Tenant: "acme", Groups: []string{"ops"}}), alice, "none"},
		"another user":   {from(v1alpha1.AccessGrantFrom{Tenant: "acme", Users: []string{"carol"}}), alice, "none"},
		"another tenant": {from(v1alpha1.AccessGrantFrom{Tenant: "initech", Users: []string{"alice"}}), alice, "none"},
		"unknown tenant": {nil, privileges.OfUser("alice", nil, tenant.ID{}), "none"},
		"invalid grant":  {func(g *v1alpha1.AccessGrant) { g.Spec.To[0].Verbs = []string{"*"} }, alice, "none"},
		"service account": {
			from(v1alpha1.AccessGrantFrom{
				Tenant:          "acme",
				ServiceAccounts: []v1alpha1.ServiceAccountName{{Namespace: "acme--web", Name: "robot"}},
			}),
			privileges.OfServiceAccount("acme--web", "robot", tenanttest.ID(t, "acme")),
			"globex: ",
		},
		"another service account": {
			from(v1alpha1.AccessGrantFrom{
				Tenant:          "acme",
				ServiceAccounts: []v1alpha1.ServiceAccountName{{Namespace: "acme--db", Name: "robot"}},
			}),
			privileges.OfServiceAccount("acme--web", "robot", tenanttest.ID(t, "acme")),
			"none",
		},
		"expires later": {until(now.Add(time.Second)), alice, "globex: "},
		"expires now":   {until(now), alice, "globex: it has expired"},
		"no grantor": {
			func(g *v1alpha1.AccessGrant) { g.Spec.Grantor = nil },
			alice,
			"globex: the namespace had another owner when the grant was created",
		},
		"former owner": {
			func(g *v1alpha1.AccessGrant) { g.Spec.Grantor.Owner = "initech" },
			alice,
			"globex: the namespace had another owner when the grant was created",
		},
		"not accepted": {func(g *v1alpha1.AccessGrant) {
			g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}}
		}, alice, "globex: its grantor no longer has these rights"},
	} {
		t.Run(name, func(t *testing.T) {
			s := shop(t)
			s.Grants = []*unstructured.Unstructured{grant(t, "g", c.change)}
			got := "none"
			for _, g := range privileges.List(s, c.who, now).Grants {
				got = g.Owner + ": " + g.HeldBack
			}
			if got != c.want {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestHostileNames checks that object names cannot control a terminal or add elements to the page.
func TestHostileNames(t *testing.T) {
	const evil = "x\x1b[2J\u202e<script>alert(1)</script>"
	l := listing()
	l.Cluster, l.Identity.Name, l.Unread = evil, evil, []string{evil}
	l.Roles[0].Name, l.Roles[0].Rules[0].Resources = evil, []string{evil}
	l.Roles[0].Bindings[0].Name, l.Roles[0].Bindings[0].HeldBack = evil, evil
	l.Grants = []privileges.IdentityGrant{{
		Namespace: "n",
		Name:      evil,
		Owner:     evil,
		To:        []v1alpha1.AccessGrantRule{{Verbs: []string{evil}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}}
	var tree, page bytes.Buffer
	if err := l.WriteTree(output.NewScreen(&tree)); err != nil || strings.ContainsAny(tree.String(), "\x1b\u202e") {
		t.Errorf("the tree: %v\n%q", err, tree.String())
	}
	if err := privileges.WriteHTML(&page, []*privileges.Listing{l}); err != nil ||
		strings.Contains(page.String(), "<script>alert") {
		t.Errorf("the page: %v", err)
	}
	if !strings.Contains(page.String(), "&lt;script&gt;") {
		t.Error("the page does not contain the escaped names")
	}
}

// TestTreeReportsProblems checks that the tree contains missing, blocked, expired and unreadable
// items, and the bindings that kubectl tenant created. It omits empty values.
func TestTreeReportsProblems(t *testing.T) {
	at := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	l := listing()
	l.Roles[0].Missing, l.Roles[0].AggregatedFrom = true, []string{"a", "b"}
	l.Roles[0].Bindings[0].HeldBack, l.Roles[0].Bindings[0].CreatedByKubectl = "why", true
	l.Roles = append(l.Roles, privileges.IdentityRole{
		Kind:      "Role",
		Namespace: "n",
		Name:      "r",
		Unread:    true,
	})
	l.Grants = []privileges.IdentityGrant{
		{
			Namespace: "n",
			Name:      "g",
			Owner:     "globex",
			Expires:   &at,
			To: []v1alpha1.AccessGrantRule{{
				Verbs:         []string{"get"},
				APIGroups:     []string{"", "apps"},
				Resources:     []string{"pods"},
				ResourceNames: []string{"p"},
			}},
		},
		{
			Namespace: "n",
			Name:      "h",
			Owner:     "globex",
			Expires:   &at,
			HeldBack:  "it ended",
		},
	}
	l.Lines = []int{7}
	l.Reviews = []privileges.Review{
		{
			Namespace:  "n",
			Incomplete: true,
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}},
		},
	}
	nothing := &privileges.Listing{Identity: privileges.OfServiceAccount("n", "robot", tenant.ID{})}
	unread := &privileges.Listing{Identity: privileges.OfTenant(tenanttest.ID(t, "acme")), Unread: []string{"Roles"}}
	for name, c := range map[string]struct {
		l             *privileges.Listing
		wants, wantNo []string
	}{
		"every kind of problem": {
			l,
			[]string{
				"edit (missing: grants nothing)", "(blocked: why)", "created by kubectl tenant", "aggregated from a, b",
				"Role n/r (you may not read it)",
				"AccessGrant n/g of tenant globex until 2030-01-02T03:04:05Z", "get: pods, pods.apps (only p)",
				"h of tenant globex (not valid: it ended)",
				"line 7 of the policy file", "namespace n (incomplete)", "get: /metrics", "user alice, tenant acme",
			},
			[]string{"no bindings", "tenant unknown"},
		},
		"no privileges": {
			nothing,
			[]string{"no bindings, grants or policy lines", "service account n/robot, tenant unknown"},
			nil,
		},
		"unread objects": {unread, []string{"tenant acme"}, []string{"no bindings", "tenant unknown", "acme, tenant"}},
	} {
		t.Run(name, func(t *testing.T) {
			var tree bytes.Buffer
			if err := c.l.WriteTree(&output.Screen{Writer: &tree, Width: 500}); err != nil {
				t.Fatal(err)
			}
			missing := slices.DeleteFunc(slices.Clone(c.wants), func(text string) bool {
				return strings.Contains(tree.String(), text)
			})
			i := slices.IndexFunc(c.wantNo, func(text string) bool { return strings.Contains(tree.String(), text) })
			if i >= 0 || len(missing) > 0 {
				t.Errorf("the tree\n%s\nlacks %q; index of an unexpected text: %d", &tree, missing, i)
			}
		})
	}
}

// TestListByTenants checks that a right that a server derives from a Tenant is listed only for
// callers of that tenant. Its source is the Tenant.
func TestListByTenants(t *testing.T) {
	right := &simulator.Binding{
		Name:     "acme",
		Derived:  tenanttest.ID(t, "acme"),
		RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "secrets"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}},
	}
	for _, c := range []struct {
		name string
		of   tenant.ID
		want string
	}{
		{"its own caller", tenanttest.ID(t, "acme"), "Tenant acme: all namespaces of tenant acme"},
		{"another tenant's caller", tenanttest.ID(t, "globex"), ""},
		{"the system tenant's caller", tenant.System(), ""},
		{"a caller of an unknown tenant", tenant.ID{}, "Tenant acme: all namespaces of tenant acme"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shop(t)
			s.Bindings = []*simulator.Binding{right}
			got := ""
			for _, role := range privileges.List(s, privileges.OfUser("alice", nil, c.of), time.Now()).Roles {
				for _, b := range role.Bindings {
					got += b.Kind + " " + b.Name + ": " + b.Scope
				}
			}
			if got != c.want {
				t.Errorf("List() = %q, want %q", got, c.want)
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestSubjectOf checks that a service account without a namespace belongs to the binding's
// namespace. A user with the name of a service account is that account.
func TestSubjectOf(t *testing.T) {
	for want, s := range map[string]rbacv1.Subject{
		"ServiceAccount web/robot":        {Kind: rbacv1.ServiceAccountKind, Name: "robot"},
		"ServiceAccount db/robot":         {Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "db"},
		"ServiceAccount db/other":         {Kind: rbacv1.UserKind, Name: "system:serviceaccount:db:other"},
		"User system:serviceaccount:db":   {Kind: rbacv1.UserKind, Name: "system:serviceaccount:db"},
		"Group system:serviceaccount:a:b": {Kind: rbacv1.GroupKind, Name: "system:serviceaccount:a:b"},
		"User alice":                      {Kind: rbacv1.UserKind, Name: "alice"},
	} {
		t.Run(want, func(t *testing.T) {
			got := privileges.SubjectOf(s, "web")
			if got.Kind+" "+got.Title() != want {
				t.Errorf("SubjectOf(%+v) = %s %s; want %s", s, got.Kind, got.Title(), want)
			}
		})
	}
}

// TestCaller checks that the caller for a subject has its name, its groups and its tenant's group,
// and no other groups.
func TestCaller(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	all := func(more ...string) []string { return append([]string{"system:authenticated", "tenant:acme"}, more...) }
	for name, c := range map[string]struct {
		s      rbacv1.Subject
		in     string
		user   string
		groups []string
	}{
		"a user":             {rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}, "", "alice", all()},
		"a group":            {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "dev"}, "", "somebody", all("dev")},
		"the tenant's group": {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "tenant:acme"}, "", "somebody", all()},
		"an account": {
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "web", Name: "robot"},
			"db",
			"system:serviceaccount:web:robot",
			all("system:serviceaccounts", "system:serviceaccounts:web"),
		},
		"all of a namespace": {
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:web"},
			"db",
			"system:serviceaccount:web:any",
			all("system:serviceaccounts", "system:serviceaccounts:web"),
		},
		"all accounts": {
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"},
			"db",
			"system:serviceaccount:db:any",
			all("system:serviceaccounts", "system:serviceaccounts:db"),
		},
		"all, of no place": {
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"},
			"",
			"somebody",
			all("system:serviceaccounts"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := privileges.SubjectOf(c.s, "").Caller(acme, c.in)
			if u.Name != c.user || !slices.Equal(u.Groups, c.groups) ||
				!slices.Equal(u.Extra[tenant.ExtraKey], []string{"acme"}) {
				t.Errorf("%+v; want %s in %v", u, c.user, c.groups)
			}
		})
	}
	everybodys := privileges.SubjectOf(rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"}, "")
	if u := everybodys.Caller(tenant.System(), "acme--web"); u.Name != "system:serviceaccount:kube-system:any" {
		t.Errorf("of the system tenant, of another's namespace: %s", u.Name)
	}
}

// TestIdentity checks that an identity has the implicit groups of its callers, once each.
func TestIdentity(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	for name, c := range map[string]struct {
		i      *privileges.Identity
		user   string
		groups []string
		extra  []string
	}{
		"a user": {
			privileges.OfUser("alice", []string{"dev"}, acme),
			"alice",
			[]string{"dev", "system:authenticated", "tenant:acme"},
			[]string{"acme"},
		},
		"who says it all": {
			privileges.OfUser("alice", []string{"tenant:acme", "system:authenticated"}, acme),
			"alice",
			[]string{"tenant:acme", "system:authenticated"},
			[]string{"acme"},
		},
		"of no known tenant": {privileges.OfUser("alice", nil, tenant.ID{}), "alice", []string{"system:authenticated"}, nil},
		"a group": {
			privileges.OfGroup("dev", acme), "", []string{"dev", "system:authenticated", "tenant:acme"}, []string{"acme"},
		},
		"a tenant": {privileges.OfTenant(acme), "", []string{"system:authenticated", "tenant:acme"}, []string{"acme"}},
		"an account": {
			privileges.OfServiceAccount("acme--web", "robot", acme), "system:serviceaccount:acme--web:robot",
			[]string{"system:serviceaccounts", "system:serviceaccounts:acme--web", "system:authenticated", "tenant:acme"},
			[]string{"acme"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := c.i.Info()
			if u.GetName() != c.user || !slices.Equal(u.GetGroups(), c.groups) ||
				!slices.Equal(u.GetExtra()[tenant.ExtraKey], c.extra) {
				t.Errorf("%+v; want %s in %v", u, c.user, c.groups)
			}
		})
	}
	given := []string{"dev", "spare"}
	if privileges.OfUser("alice", given[:1], acme); given[1] != "spare" {
		t.Errorf("the caller's groups became %v", given)
	}
}

// TestIsDefault checks that only the bindings that Kubernetes creates in every cluster are default
// bindings, and not similar ones.
func TestIsDefault(t *testing.T) {
	for name, c := range map[string]struct {
		binding, role, in string
		s                 rbacv1.Subject
		want              bool
	}{
		"masters": {
			"cluster-admin", "cluster-admin", "", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:masters"}, true,
		},
		"masters by another binding": {
			"more", "cluster-admin", "", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:masters"}, false,
		},
		"masters in a namespace": {
			"cluster-admin", "cluster-admin", "web", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:masters"}, false,
		},
		"somebody else by cluster-admin": {
			"cluster-admin", "cluster-admin", "", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "dev"}, false,
		},
		"a component": {
			"system:kube-scheduler",
			"system:kube-scheduler",
			"",
			rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:kube-scheduler"},
			true,
		},
		"a person by a component's": {
			"system:kube-scheduler", "system:kube-scheduler", "", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}, false,
		},
		"a component by a role of one's": {
			"b", "mine", "", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:kube-scheduler"}, false,
		},
		"everybody": {
			"system:basic-user",
			"system:basic-user",
			"",
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"},
			false,
		},
		"nobody known": {
			"system:discovery",
			"system:discovery",
			"",
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:unauthenticated"},
			false,
		},
		"all accounts": {
			"system:x", "system:x", "", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:web"}, false,
		},
		"a controller": {
			"system:controller:job",
			"system:controller:job",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "job"},
			true,
		},
		"another component's account": {
			"system:kube-dns",
			"system:kube-dns",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "kube-dns"},
			true,
		},
		"a controller's name elsewhere": {
			"system:controller:job",
			"system:controller:job",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "web", Name: "job"},
			false,
		},
		"another account by a controller": {
			"system:controller:job",
			"system:controller:job",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "other"},
			false,
		},
		"a controller's account, a big one": {
			"system:controller:job",
			"cluster-admin",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "job"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &simulator.Binding{Namespace: c.in, Name: c.binding, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: c.role}}
			if got := privileges.IsDefault(b, c.s); got != c.want {
				t.Errorf("%t; want %t", got, c.want)
			}
		})
	}
}

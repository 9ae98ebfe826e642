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

// TestSubjectOf checks that a service account without a namespace gets the binding's namespace. A
// user with the user name of a service account becomes that service account.
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

// TestCaller checks that the caller for a subject has the subject's name, its groups, the group of
// its tenant, and no other groups.
func TestCaller(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	all := func(more ...string) []string { return append([]string{"system:authenticated", "tenant:acme"}, more...) }
	for name, c := range map[string]struct {
		s      rbacv1.Subject
		in     string
		user   string
		groups []string
	}{
		"user":                {rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}, "", "alice", all()},
		"group":               {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "dev"}, "", "somebody", all("dev")},
		"group of the tenant": {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "tenant:acme"}, "", "somebody", all()},
		"service account": {
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "web", Name: "robot"},
			"db",
			"system:serviceaccount:web:robot",
			all("system:serviceaccounts", "system:serviceaccounts:web"),
		},
		"service accounts of a namespace": {
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:web"},
			"db",
			"system:serviceaccount:web:any",
			all("system:serviceaccounts", "system:serviceaccounts:web"),
		},
		"all service accounts, in a namespace": {
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"},
			"db",
			"system:serviceaccount:db:any",
			all("system:serviceaccounts", "system:serviceaccounts:db"),
		},
		"all service accounts, no namespace": {
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
		t.Errorf("system tenant, namespace of another tenant: %s", u.Name)
	}
}

// TestIdentity checks that an identity has each implicit group of its callers once.
func TestIdentity(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	for name, c := range map[string]struct {
		i      *privileges.Identity
		user   string
		groups []string
		extra  []string
	}{
		"user": {
			privileges.OfUser("alice", []string{"dev"}, acme),
			"alice",
			[]string{"dev", "system:authenticated", "tenant:acme"},
			[]string{"acme"},
		},
		"implicit groups in the input": {
			privileges.OfUser("alice", []string{"tenant:acme", "system:authenticated"}, acme),
			"alice",
			[]string{"tenant:acme", "system:authenticated"},
			[]string{"acme"},
		},
		"unknown tenant": {privileges.OfUser("alice", nil, tenant.ID{}), "alice", []string{"system:authenticated"}, nil},
		"group": {
			privileges.OfGroup("dev", acme), "", []string{"dev", "system:authenticated", "tenant:acme"}, []string{"acme"},
		},
		"tenant": {privileges.OfTenant(acme), "", []string{"system:authenticated", "tenant:acme"}, []string{"acme"}},
		"service account": {
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
		t.Errorf("OfUser changed the input to %v", given)
	}
}

// TestIsDefault checks that a binding is a default binding only if Kubernetes creates it in every
// cluster for the subject, and that similar bindings are not.
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
		"another subject of cluster-admin": {
			"cluster-admin", "cluster-admin", "", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "dev"}, false,
		},
		"component": {
			"system:kube-scheduler",
			"system:kube-scheduler",
			"",
			rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:kube-scheduler"},
			true,
		},
		"user in a component's binding": {
			"system:kube-scheduler", "system:kube-scheduler", "", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}, false,
		},
		"component in a custom binding": {
			"b", "mine", "", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:kube-scheduler"}, false,
		},
		"all authenticated users": {
			"system:basic-user",
			"system:basic-user",
			"",
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"},
			false,
		},
		"unauthenticated users": {
			"system:discovery",
			"system:discovery",
			"",
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:unauthenticated"},
			false,
		},
		"service accounts of a namespace": {
			"system:x", "system:x", "", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:web"}, false,
		},
		"controller": {
			"system:controller:job",
			"system:controller:job",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "job"},
			true,
		},
		"service account of another component": {
			"system:kube-dns",
			"system:kube-dns",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "kube-dns"},
			true,
		},
		"controller's name in another namespace": {
			"system:controller:job",
			"system:controller:job",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "web", Name: "job"},
			false,
		},
		"another service account in a controller's binding": {
			"system:controller:job",
			"system:controller:job",
			"",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "other"},
			false,
		},
		"controller with another role": {
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

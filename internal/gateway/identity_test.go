// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

func newTestMapping(t *testing.T, change func(*configv1alpha1.GatewayCluster)) *mapping {
	t.Helper()
	c := configv1alpha1.GatewayCluster{Name: "c", Tenants: []string{"*"}}
	change(&c)
	s := &configv1alpha1.Settings{Gateway: &configv1alpha1.Gateway{Clusters: []configv1alpha1.GatewayCluster{c}}}
	configv1alpha1.Default(s)
	m, err := newMapping(&s.Gateway.Clusters[0])
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMappedIdentity checks the identity in a cluster for each field of the configuration.
func TestMappedIdentity(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	alice := tenant.Bind(&user.DefaultInfo{
		Name:   "alice",
		UID:    "u1",
		Groups: []string{"dev-a", "ops", "system:authenticated", "tenant:acme", "devil"},
		Extra:  map[string][]string{"example.com/floor": {"3"}, "kubetenant.dev/source": {"tokens"}},
	}, acme)
	type want struct {
		name, uid string
		groups    []string
		extras    int
		tenant    string
	}
	none, no := "", false
	dev := "dev-.*"
	for what, c := range map[string]struct {
		change func(*configv1alpha1.GatewayCluster)
		want   want
	}{
		"by default": {
			func(*configv1alpha1.GatewayCluster) {},
			want{"alice", "", []string{"dev-a", "ops", "devil", "tenant:acme"}, 1, "acme"},
		},
		"a tenant map": {
			func(c *configv1alpha1.GatewayCluster) { c.TenantMap = map[string]string{"acme": "acme-eu"} },
			want{"alice", "", []string{"dev-a", "ops", "devil", "tenant:acme-eu"}, 1, "acme-eu"},
		},
		"a pattern for the whole group": {
			func(c *configv1alpha1.GatewayCluster) { c.Identity.GroupPattern = &dev },
			want{"alice", "", []string{"dev-a", "tenant:acme"}, 1, "acme"},
		},
		"no groups": {
			func(c *configv1alpha1.GatewayCluster) { c.Identity.GroupPattern = &none },
			want{"alice", "", []string{"tenant:acme"}, 1, "acme"},
		},
		"prefixes": {
			func(c *configv1alpha1.GatewayCluster) {
				c.Identity.UsernamePrefix, c.Identity.GroupsPrefix, c.Identity.GroupPattern = "kt:", "g:", &dev
			},
			want{"kt:alice", "", []string{"g:dev-a", "tenant:acme"}, 1, "acme"},
		},
		"without the user": {
			func(c *configv1alpha1.GatewayCluster) {
				c.Identity.WithUser, c.Identity.DefaultUser, c.Identity.GroupPattern = &no, "gateway", &none
			},
			want{"gateway", "", []string{"tenant:acme"}, 1, "acme"},
		},
		"another name, extras and the UID": {func(c *configv1alpha1.GatewayCluster) {
			c.Identity = configv1alpha1.GatewayIdentity{
				WithUID:      true,
				Extras:       []string{"example.com/floor"},
				GroupPattern: &none,
				Unmapped:     configv1alpha1.UnmappedDeny,
				Users:        []configv1alpha1.GatewayUser{{Tenant: "acme", User: "alice", As: "bob"}},
			}
		}, want{"bob", "u1", []string{"tenant:acme"}, 2, "acme"}},
	} {
		t.Run(what, func(t *testing.T) {
			m := newTestMapping(t, c.change)
			mapped, err := m.caller(acme, alice)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			if !slices.Contains(mapped.GetGroups(), user.AllAuthenticated) {
				t.Errorf("the identity lacks %s: %v", user.AllAuthenticated, mapped.GetGroups())
			}
			got, err := m.impersonation(mapped)
			if err != nil || got.UserName != c.want.name || got.UID != c.want.uid || !slices.Equal(got.Groups, c.want.groups) ||
				len(got.Extra) != c.want.extras ||
				!slices.Equal(got.Extra[tenant.ExtraKey], []string{c.want.tenant}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestIncompleteIdentityIsRejected checks that an identity is rejected if it cannot be forwarded
// completely.
func TestIncompleteIdentityIsRejected(t *testing.T) {
	acme, other := tenanttest.ID(t, "acme"), tenanttest.ID(t, "acme-eu")
	plain := func(*configv1alpha1.GatewayCluster) {}
	for what, c := range map[string]struct {
		change func(*configv1alpha1.GatewayCluster)
		id     tenant.ID
		user   user.DefaultInfo
		want   error
	}{
		"a reserved name": {plain, tenant.System(), user.DefaultInfo{Name: "system:admin"}, errReserved},
		"a node":          {plain, tenant.System(), user.DefaultInfo{Name: "system:node:a"}, errReserved},
		"no name":         {plain, acme, user.DefaultInfo{}, errForm},
		"a line break": {
			plain, acme, user.DefaultInfo{Name: "a\r\nImpersonate-Group: system:masters"}, errForm,
		},
		"white space at an end":     {plain, acme, user.DefaultInfo{Name: "alice "}, errForm},
		"a group with a line break": {plain, acme, user.DefaultInfo{Name: "a", Groups: []string{"b\nc"}}, errForm},
		"another tenant's name in the cluster": {
			func(c *configv1alpha1.GatewayCluster) { c.TenantMap = map[string]string{"acme": "acme-eu"} },
			other,
			user.DefaultInfo{Name: "a"},
			errTenantName,
		},
		"an unmapped user": {
			func(c *configv1alpha1.GatewayCluster) { c.Identity.Unmapped = configv1alpha1.UnmappedDeny },
			acme,
			user.DefaultInfo{Name: "a"},
			errUnmapped,
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newTestMapping(t, c.change)
			mapped, err := m.caller(c.id, &c.user)
			if err == nil {
				_, err = m.impersonation(mapped)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestImpersonatedIdentityIsComplete checks that an impersonated identity is forwarded completely,
// or rejected.
func TestImpersonatedIdentityIsComplete(t *testing.T) {
	m := newTestMapping(t, func(c *configv1alpha1.GatewayCluster) { c.Identity.Extras = []string{"example.com/a"} })
	of := map[string][]string{tenant.ExtraKey: {"acme"}}
	for what, c := range map[string]struct {
		user user.DefaultInfo
		want error
	}{
		"a user":         {user.DefaultInfo{Name: "bob", Groups: []string{"dev", user.AllAuthenticated}, Extra: of}, nil},
		"system:masters": {user.DefaultInfo{Name: "bob", Groups: []string{"system:masters"}, Extra: of}, errReserved},
		"a listed extra": {user.DefaultInfo{Name: "bob", Extra: map[string][]string{"example.com/a": {"1"}}}, nil},
		"another extra":  {user.DefaultInfo{Name: "bob", Extra: map[string][]string{"example.com/b": {"1"}}}, errExtra},
		"an empty extra": {user.DefaultInfo{Name: "bob", Extra: map[string][]string{"example.com/a": {""}}}, errForm},
		"no values":      {user.DefaultInfo{Name: "bob", Extra: map[string][]string{"example.com/a": {}}}, errForm},
		"anonymous":      {user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, errReserved},
		"a service account": {
			user.DefaultInfo{
				Name: "system:serviceaccount:acme--web:default",
				Groups: []string{
					"system:serviceaccounts", "system:serviceaccounts:acme--web", user.AllAuthenticated, "tenant:acme",
				},
				Extra: of,
			},
			nil,
		},
		"a service account in a group": {
			user.DefaultInfo{Name: "system:serviceaccount:acme--web:default", Groups: []string{"dev", "tenant:acme"}, Extra: of},
			errAccountGroup,
		},
		"a service account in another group": {
			user.DefaultInfo{
				Name:   "system:serviceaccount:acme--web:default",
				Groups: []string{"system:serviceaccounts:acme--shop"},
				Extra:  of,
			},
			errReserved,
		},
		"a user as an account": {user.DefaultInfo{Name: "bob", Groups: []string{"system:serviceaccounts"}}, errReserved},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := m.impersonation(&c.user)
			if !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
			if tenant.IsServiceAccountName(c.user.Name) && len(got.Groups) > 0 {
				t.Errorf("a service account is forwarded with groups: %v", got.Groups)
			}
		})
	}
}

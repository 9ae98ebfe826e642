// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

func podsGrant(tb testing.TB) *accessgrant.Grant {
	return &accessgrant.Grant{
		Namespace: "b--web",
		Name:      "pods",
		Owner:     tenanttest.ID(tb, "b"),
		Tenant:    tenanttest.ID(tb, "a"),
		Users:     []string{"alice"},
		Rules:     []accessgrant.Rule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}
}

// crossTenantRequest returns a get request of alice of tenant a for a pod in a namespace of tenant
// b.
func crossTenantRequest(tb testing.TB) *authz.CrossTenantRequest {
	u := &user.DefaultInfo{Name: "alice"}
	return &authz.CrossTenantRequest{
		Caller: tenanttest.ID(tb, "a"),
		User:   u,
		Owner:  authz.ObjectOwner{ID: tenanttest.ID(tb, "b")},
		Attributes: &authorizer.AttributesRecord{
			User:            u,
			Verb:            "get",
			Resource:        "pods",
			Namespace:       "b--web",
			Name:            "p",
			ResourceRequest: true,
		},
	}
}

func allowed(t *testing.T, g *accessgrant.Grants, c *authz.CrossTenantRequest) bool {
	t.Helper()
	ok, _ := g.Allows(t.Context(), c)
	return ok
}

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newGrants returns Grants whose index contains one grant. live returns the current version of that
// grant.
func newGrants(indexed *accessgrant.Grant, live func() (*accessgrant.Grant, error)) *accessgrant.Grants {
	index := accessgrant.NewIndex()
	index.Set(indexed)
	return &accessgrant.Grants{
		Index: index,
		Now:   func() time.Time { return now },
		Live:  func(context.Context, tenant.ID, string, string) (*accessgrant.Grant, error) { return live() },
	}
}

// TestStoredGrantDecides checks that the stored version of a grant determines the decision, and not
// the indexed version.
func TestStoredGrantDecides(t *testing.T) {
	for name, c := range map[string]struct {
		live func(*accessgrant.Grant) (*accessgrant.Grant, error)
		want bool
	}{
		"unchanged":  {func(g *accessgrant.Grant) (*accessgrant.Grant, error) { return g, nil }, true},
		"removed":    {func(*accessgrant.Grant) (*accessgrant.Grant, error) { return nil, nil }, false},
		"read error": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) { return g, errors.New("away") }, false},
		"for another tenant": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Tenant = tenanttest.ID(t, "c")
			return g, nil
		}, false},
		"in another namespace": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Namespace = "b--other"
			return g, nil
		}, false},
		"created for a former owner": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Owner = tenanttest.ID(t, "c")
			return g, nil
		}, false},
		"without an owner": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Owner = tenant.ID{}
			return g, nil
		}, false},
		"for another user": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Users = []string{"bob"}
			return g, nil
		}, false},
		"for another verb": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Rules[0].Verbs = []string{"list"}
			return g, nil
		}, false},
		"expires now": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Expires = now
			return g, nil
		}, false},
		"expires later": {func(g *accessgrant.Grant) (*accessgrant.Grant, error) {
			g.Expires = now.Add(time.Nanosecond)
			return g, nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrants(podsGrant(t), func() (*accessgrant.Grant, error) { return c.live(podsGrant(t)) })
			if got, _ := g.Allows(t.Context(), crossTenantRequest(t)); got != c.want {
				t.Errorf("stored grant %q: allowed %t", name, got)
			}
		})
	}
}

// TestZeroGrantAllowsNothing checks that a zero grant and a deleted grant allow nothing.
func TestZeroGrantAllowsNothing(t *testing.T) {
	g := newGrants(&accessgrant.Grant{}, func() (*accessgrant.Grant, error) { return &accessgrant.Grant{}, nil })
	for _, c := range []*authz.CrossTenantRequest{
		crossTenantRequest(t), {Attributes: authorizer.AttributesRecord{}, User: &user.DefaultInfo{}},
	} {
		if allowed(t, g, c) {
			t.Error("allowed")
		}
	}
	g = newGrants(podsGrant(t), func() (*accessgrant.Grant, error) { return podsGrant(t), nil })
	if !allowed(t, g, crossTenantRequest(t)) {
		t.Fatal("denied")
	}
	g.Index.Delete("b--web", "pods")
	if allowed(t, g, crossTenantRequest(t)) {
		t.Error("allowed by a grant that was deleted")
	}
}

// TestUpdateReplacesGrant checks that a grant no longer applies to its first tenant after an update
// to another tenant.
func TestUpdateReplacesGrant(t *testing.T) {
	g := newGrants(podsGrant(t), func() (*accessgrant.Grant, error) { return podsGrant(t), nil })
	other := podsGrant(t)
	other.Tenant = tenanttest.ID(t, "c")
	g.Index.Set(other)
	if allowed(t, g, crossTenantRequest(t)) {
		t.Error("allowed by the previous version of the grant")
	}
}

// wideGrant returns a grant that lists all requests of the tests below.
func wideGrant(tb testing.TB, from string) *accessgrant.Grant {
	g := podsGrant(tb)
	g.Tenant, g.Name = tenanttest.ID(tb, from), "wide"
	g.Rules = []accessgrant.Rule{{
		APIGroups: []string{"", "authentication.k8s.io"},
		Resources: []string{"pods", "namespaces", "serviceaccounts", "users", "pods/exec", ""},
		Verbs:     []string{"get", "list", "impersonate", "impersonate-on:user-info:get", "use", ""},
	}}
	return g
}

// TestRequestsThatNoGrantAllows checks that some requests are denied, even if a grant lists them.
func TestRequestsThatNoGrantAllows(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*authz.CrossTenantRequest, *authorizer.AttributesRecord)
		want   bool
	}{
		"pod": {func(*authz.CrossTenantRequest, *authorizer.AttributesRecord) {}, true},
		"listed subresource": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) { a.Subresource = "exec" },
			true,
		},
		"another subresource": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) { a.Subresource = "log" },
			false,
		},
		"another API group": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) { a.APIGroup = "apps" },
			false,
		},
		"non-resource request": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) { a.ResourceRequest = false },
			false,
		},
		"all namespaces": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) { a.Namespace = "" },
			false,
		},
		"the Namespace itself": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) { a.Resource = "namespaces" }, false,
		},
		"another kind named namespaces": {func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) {
			a.Resource, a.APIGroup = "namespaces", "authentication.k8s.io"
		}, true},
		"impersonation": {func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) {
			a.Verb, a.Resource = "impersonate", "serviceaccounts"
		}, false},
		"constrained impersonation": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) {
				a.Verb = "impersonate-on:user-info:get"
			}, false,
		},
		"custom verb": {
			func(_ *authz.CrossTenantRequest, a *authorizer.AttributesRecord) { a.Verb = "use" },
			true,
		},
		"objects of several tenants": {
			func(c *authz.CrossTenantRequest, _ *authorizer.AttributesRecord) {
				c.Owner = authz.ObjectOwner{All: true}
			}, false,
		},
		"objects of several tenants, including the owner": {
			func(c *authz.CrossTenantRequest, _ *authorizer.AttributesRecord) { c.Owner.All = true },
			false,
		},
		"unowned objects": {
			func(c *authz.CrossTenantRequest, _ *authorizer.AttributesRecord) { c.Owner = authz.ObjectOwner{} }, false,
		},
		"objects of another tenant": {
			func(c *authz.CrossTenantRequest, _ *authorizer.AttributesRecord) { c.Owner.ID = tenanttest.ID(t, "c") }, false,
		},
		"caller of the system tenant": {
			func(c *authz.CrossTenantRequest, _ *authorizer.AttributesRecord) { c.Caller = tenant.System() }, false,
		},
		"caller of a third tenant": {
			func(c *authz.CrossTenantRequest, _ *authorizer.AttributesRecord) { c.Caller = tenanttest.ID(t, "c") },
			false,
		},
		"no tenant": {func(c *authz.CrossTenantRequest, _ *authorizer.AttributesRecord) { c.Caller = tenant.ID{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			index := accessgrant.NewIndex()
			one, system := wideGrant(t, "a"), wideGrant(t, "system")
			system.Name = "system"
			index.Set(one)
			index.Set(system)
			g := &accessgrant.Grants{
				Index: index,
				Now:   func() time.Time { return now },
				Live: func(_ context.Context, _ tenant.ID, _, name string) (*accessgrant.Grant, error) {
					return map[string]*accessgrant.Grant{"wide": one, "system": system}[name], nil
				},
			}
			request := crossTenantRequest(t)
			c.change(request, request.Attributes.(*authorizer.AttributesRecord))
			if got := allowed(t, g, request); got != c.want {
				t.Errorf("allowed %t", got)
			}
		})
	}
}

// TestEachGrantAppliesIndependently checks that membership in one group is enough, and that
// resource names limit a grant. It also checks that each of several grants applies and is deleted
// independently.
func TestEachGrantAppliesIndependently(t *testing.T) {
	index, live := accessgrant.NewIndex(), map[string]*accessgrant.Grant{}
	used, reads := "", 0
	g := &accessgrant.Grants{
		Index: index,
		Now:   func() time.Time { return now },
		Used:  func(g *accessgrant.Grant) { used = g.Name },
		Live: func(_ context.Context, _ tenant.ID, _, name string) (*accessgrant.Grant, error) {
			reads++
			return live[name], nil
		},
	}
	add := func(name string, change func(*accessgrant.Grant)) {
		one := podsGrant(t)
		one.Name = name
		change(one)
		live[name] = one
		index.Set(one)
	}
	add("other", func(g *accessgrant.Grant) { g.Users = []string{"bob"} })
	add("dev", func(g *accessgrant.Grant) { g.Users, g.Groups, g.Expires = nil, []string{"dev"}, now.Add(time.Hour) })
	add("named", func(g *accessgrant.Grant) { g.Rules[0].ResourceNames = []string{"q", "r"} })
	c := crossTenantRequest(t)
	if allowed(t, g, c) || reads > 0 {
		t.Errorf("allowed a pod that no grant lists, or read a grant: %d reads", reads)
	}
	c.User = &user.DefaultInfo{Name: "carol", Groups: []string{"ops", "dev"}}
	if ok, until := g.Allows(t.Context(), c); !ok || !until.Equal(now.Add(time.Hour)) || used != "dev" {
		t.Errorf("by group: %t until %v, grant %q", ok, until, used)
	}
	c.User = &user.DefaultInfo{Name: "alice"}
	c.Attributes.(*authorizer.AttributesRecord).Name = "r"
	if ok, until := g.Allows(t.Context(), c); !ok || !until.IsZero() || used != "named" {
		t.Errorf("by resource name: %t until %v, grant %q", ok, until, used)
	}
	index.Delete("b--web", "other")
	index.Delete("b--web", "none")
	if !allowed(t, g, c) {
		t.Error("denied after another grant was deleted")
	}
	index.Delete("b--web", "named")
	if allowed(t, g, c) {
		t.Error("allowed by a deleted grant")
	}
	c.User = &user.DefaultInfo{Name: "carol", Groups: []string{"dev"}}
	index.Delete("b--web", "dev")
	if allowed(t, g, c) {
		t.Error("allowed by the last grant after it was deleted")
	}
}

// BenchmarkGrants measures a decision with 100,000 grants, of which none matches.
func BenchmarkGrants(b *testing.B) {
	g := newGrants(podsGrant(b), func() (*accessgrant.Grant, error) { return nil, nil })
	for i := range 100_000 {
		one := podsGrant(b)
		one.Namespace, one.Name = fmt.Sprintf("b--%05d", i/10), fmt.Sprintf("grant-%d", i)
		one.Tenant = tenanttest.ID(b, fmt.Sprintf("tenant-%d", i%1000))
		g.Index.Set(one)
	}
	c := crossTenantRequest(b)
	c.Caller = tenanttest.ID(b, "tenant-7")
	b.ReportAllocs()
	for b.Loop() {
		if allowed, _ := g.Allows(b.Context(), c); allowed {
			b.Fatal("allowed")
		}
	}
}

// TestGrantsEndWithTheirTenants checks that a grant does not apply if its owner or its grantee is
// being deleted. It also checks that a grant does not apply to a successor of the grantee with the
// same name.
func TestGrantsEndWithTheirTenants(t *testing.T) {
	before := []tenant.Retired{{UID: "old"}}
	for name, c := range map[string]struct {
		recorded       string
		owner, grantee tenant.Lineage
		want           bool
	}{
		"no Tenant objects":              {"", tenant.Lineage{}, tenant.Lineage{}, true},
		"the same Tenant":                {tenant.Seal("u"), tenant.Lineage{UID: "o"}, tenant.Lineage{UID: "u"}, true},
		"Tenant created after the grant": {tenant.Seal(""), tenant.Lineage{}, tenant.Lineage{UID: "u"}, true},
		"Tenant with a new UID":          {tenant.Seal("u"), tenant.Lineage{}, tenant.Lineage{UID: "v"}, true},
		"successor of the grantee": {
			tenant.Seal("old"), tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, false,
		},
		"successor, no seal": {"", tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, false},
		"successor, seal of no Tenant": {
			tenant.Seal(""), tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, false,
		},
		"granted to the successor": {tenant.Seal("v"), tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, true},
		"grantee being deleted":    {tenant.Seal("u"), tenant.Lineage{}, tenant.Lineage{UID: "u", Terminating: true}, false},
		"owner being deleted": {
			tenant.Seal("u"), tenant.Lineage{UID: "o", Terminating: true}, tenant.Lineage{UID: "u"}, false,
		},
		"deleted owner": {"", tenant.Lineage{Retired: before}, tenant.Lineage{}, false},
		"owner is a successor": {
			tenant.Seal("u"), tenant.Lineage{UID: "o", Retired: before}, tenant.Lineage{UID: "u"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored := podsGrant(t)
			stored.GranteeSeal = c.recorded
			g := newGrants(stored, func() (*accessgrant.Grant, error) { return stored, nil })
			g.Lineage = func(id tenant.ID) tenant.Lineage {
				if id == stored.Owner {
					return c.owner
				}
				return c.grantee
			}
			if got := allowed(t, g, crossTenantRequest(t)); got != c.want {
				t.Errorf("allowed %t", got)
			}
		})
	}
}

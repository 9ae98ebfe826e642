// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package grant_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/grant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

func pods(tb testing.TB) *grant.Grant {
	return &grant.Grant{
		Namespace: "b--web",
		Name:      "pods",
		Owner:     tenanttest.ID(tb, "b"),
		Tenant:    tenanttest.ID(tb, "a"),
		Users:     []string{"alice"},
		Rules:     []grant.Rule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}
}

// crossing returns a request of alice of tenant a, which gets a pod in a namespace of tenant b.
func crossing(tb testing.TB) *authz.Crossing {
	u := &user.DefaultInfo{Name: "alice"}
	return &authz.Crossing{
		Caller: tenanttest.ID(tb, "a"),
		User:   u,
		Space:  authz.Space{ID: tenanttest.ID(tb, "b")},
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

func allowed(t *testing.T, g *grant.Grants, c *authz.Crossing) bool {
	t.Helper()
	ok, _ := g.Allows(t.Context(), c)
	return ok
}

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// grants returns Grants with an indexed grant. live returns the current version of the grant.
func grants(indexed *grant.Grant, live func() (*grant.Grant, error)) *grant.Grants {
	index := grant.NewIndex()
	index.Set(indexed)
	return &grant.Grants{
		Index: index,
		Now:   func() time.Time { return now },
		Live:  func(context.Context, tenant.ID, string, string) (*grant.Grant, error) { return live() },
	}
}

// TestWhatIsStoredNowCounts checks that the stored version of a grant decides. The index only finds
// the grant to read.
func TestWhatIsStoredNowCounts(t *testing.T) {
	for name, c := range map[string]struct {
		live func(*grant.Grant) (*grant.Grant, error)
		want bool
	}{
		"unchanged": {func(g *grant.Grant) (*grant.Grant, error) { return g, nil }, true},
		"removed":   {func(*grant.Grant) (*grant.Grant, error) { return nil, nil }, false},
		"away":      {func(g *grant.Grant) (*grant.Grant, error) { return g, errors.New("away") }, false},
		"of another tenant": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Tenant = tenanttest.ID(t, "c")
			return g, nil
		}, false},
		"of another namespace": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Namespace = "b--other"
			return g, nil
		}, false},
		"made by a former owner": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Owner = tenanttest.ID(t, "c")
			return g, nil
		}, false},
		"made by nobody": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Owner = tenant.ID{}
			return g, nil
		}, false},
		"for another user": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Users = []string{"bob"}
			return g, nil
		}, false},
		"for another verb": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Rules[0].Verbs = []string{"list"}
			return g, nil
		}, false},
		"ends this moment": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Expires = now
			return g, nil
		}, false},
		"ends later": {func(g *grant.Grant) (*grant.Grant, error) {
			g.Expires = now.Add(time.Nanosecond)
			return g, nil
		}, true},
	} {
		g := grants(pods(t), func() (*grant.Grant, error) { return c.live(pods(t)) })
		if got, _ := g.Allows(t.Context(), crossing(t)); got != c.want {
			t.Errorf("a grant that is %s: %t", name, got)
		}
	}
}

// TestTheZeroGrantAllowsNothing checks that a zero grant and a deleted grant allow nothing.
func TestTheZeroGrantAllowsNothing(t *testing.T) {
	g := grants(&grant.Grant{}, func() (*grant.Grant, error) { return &grant.Grant{}, nil })
	for _, c := range []*authz.Crossing{
		crossing(t), {Attributes: authorizer.AttributesRecord{}, User: &user.DefaultInfo{}},
	} {
		if allowed(t, g, c) {
			t.Error("allowed")
		}
	}
	g = grants(pods(t), func() (*grant.Grant, error) { return pods(t), nil })
	if !allowed(t, g, crossing(t)) {
		t.Fatal("denied")
	}
	g.Index.Delete("b--web", "pods")
	if allowed(t, g, crossing(t)) {
		t.Error("allowed by a grant that was deleted")
	}
}

// TestAnotherGrantOfTheName checks that an update to another tenant removes the grant from the
// first tenant.
func TestAnotherGrantOfTheName(t *testing.T) {
	g := grants(pods(t), func() (*grant.Grant, error) { return pods(t), nil })
	other := pods(t)
	other.Tenant = tenanttest.ID(t, "c")
	g.Index.Set(other)
	if allowed(t, g, crossing(t)) {
		t.Error("allowed by what the grant said before")
	}
}

// wide returns a grant that lists every request of the tests below.
func wide(tb testing.TB, from string) *grant.Grant {
	g := pods(tb)
	g.Tenant, g.Name = tenanttest.ID(tb, from), "wide"
	g.Rules = []grant.Rule{{
		APIGroups: []string{"", "authentication.k8s.io"},
		Resources: []string{"pods", "namespaces", "serviceaccounts", "users", "pods/exec", ""},
		Verbs:     []string{"get", "list", "impersonate", "impersonate-on:user-info:get", "use", ""},
	}}
	return g
}

// TestWhatIsNeverGranted checks requests that no grant allows, whatever it lists.
func TestWhatIsNeverGranted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*authz.Crossing, *authorizer.AttributesRecord)
		want   bool
	}{
		"a pod":               {func(*authz.Crossing, *authorizer.AttributesRecord) {}, true},
		"a subresource":       {func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.Subresource = "exec" }, true},
		"another subresource": {func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.Subresource = "log" }, false},
		"another API group":   {func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.APIGroup = "apps" }, false},
		"a path":              {func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.ResourceRequest = false }, false},
		"all namespaces":      {func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.Namespace = "" }, false},
		"the Namespace itself": {
			func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.Resource = "namespaces" }, false,
		},
		"a kind of its name": {func(_ *authz.Crossing, a *authorizer.AttributesRecord) {
			a.Resource, a.APIGroup = "namespaces", "authentication.k8s.io"
		}, true},
		"impersonation": {func(_ *authz.Crossing, a *authorizer.AttributesRecord) {
			a.Verb, a.Resource = "impersonate", "serviceaccounts"
		}, false},
		"constrained": {
			func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.Verb = "impersonate-on:user-info:get" }, false,
		},
		"a verb that has a name": {func(_ *authz.Crossing, a *authorizer.AttributesRecord) { a.Verb = "use" }, true},
		"the space of several": {
			func(c *authz.Crossing, _ *authorizer.AttributesRecord) { c.Space = authz.Space{All: true} }, false,
		},
		"several, and the owner": {func(c *authz.Crossing, _ *authorizer.AttributesRecord) { c.Space.All = true }, false},
		"the space of nobody": {
			func(c *authz.Crossing, _ *authorizer.AttributesRecord) { c.Space = authz.Space{} }, false,
		},
		"another's space": {
			func(c *authz.Crossing, _ *authorizer.AttributesRecord) { c.Space.ID = tenanttest.ID(t, "c") }, false,
		},
		"to the system tenant's": {
			func(c *authz.Crossing, _ *authorizer.AttributesRecord) { c.Caller = tenant.System() }, false,
		},
		"to a third": {func(c *authz.Crossing, _ *authorizer.AttributesRecord) { c.Caller = tenanttest.ID(t, "c") }, false},
		"to nobody":  {func(c *authz.Crossing, _ *authorizer.AttributesRecord) { c.Caller = tenant.ID{} }, false},
	} {
		index := grant.NewIndex()
		one, system := wide(t, "a"), wide(t, "system")
		system.Name = "system"
		index.Set(one)
		index.Set(system)
		g := &grant.Grants{
			Index: index,
			Now:   func() time.Time { return now },
			Live: func(_ context.Context, _ tenant.ID, _, name string) (*grant.Grant, error) {
				return map[string]*grant.Grant{"wide": one, "system": system}[name], nil
			},
		}
		crossing := crossing(t)
		c.change(crossing, crossing.Attributes.(*authorizer.AttributesRecord))
		if got := allowed(t, g, crossing); got != c.want {
			t.Errorf("%s: allowed %t", name, got)
		}
	}
}

// TestWhoAndWhat checks that one group is enough, that names limit a grant, and that each of
// several grants applies and is deleted independently.
func TestWhoAndWhat(t *testing.T) {
	index, live := grant.NewIndex(), map[string]*grant.Grant{}
	used, reads := "", 0
	g := &grant.Grants{
		Index: index,
		Now:   func() time.Time { return now },
		Used:  func(g *grant.Grant) { used = g.Name },
		Live: func(_ context.Context, _ tenant.ID, _, name string) (*grant.Grant, error) {
			reads++
			return live[name], nil
		},
	}
	add := func(name string, change func(*grant.Grant)) {
		one := pods(t)
		one.Name = name
		change(one)
		live[name] = one
		index.Set(one)
	}
	add("other", func(g *grant.Grant) { g.Users = []string{"bob"} })
	add("dev", func(g *grant.Grant) { g.Users, g.Groups, g.Expires = nil, []string{"dev"}, now.Add(time.Hour) })
	add("named", func(g *grant.Grant) { g.Rules[0].ResourceNames = []string{"q", "r"} })
	c := crossing(t)
	if allowed(t, g, c) || reads > 0 {
		t.Errorf("a pod of no name that is listed, after %d reads", reads)
	}
	c.User = &user.DefaultInfo{Name: "carol", Groups: []string{"ops", "dev"}}
	if ok, until := g.Allows(t.Context(), c); !ok || !until.Equal(now.Add(time.Hour)) || used != "dev" {
		t.Errorf("by the group: %t until %v by %q", ok, until, used)
	}
	c.User = &user.DefaultInfo{Name: "alice"}
	c.Attributes.(*authorizer.AttributesRecord).Name = "r"
	if ok, until := g.Allows(t.Context(), c); !ok || !until.IsZero() || used != "named" {
		t.Errorf("by the name: %t until %v by %q", ok, until, used)
	}
	index.Delete("b--web", "other")
	index.Delete("b--web", "none")
	if !allowed(t, g, c) {
		t.Error("gone with another")
	}
	index.Delete("b--web", "named")
	if allowed(t, g, c) {
		t.Error("still there")
	}
	c.User = &user.DefaultInfo{Name: "carol", Groups: []string{"dev"}}
	index.Delete("b--web", "dev")
	if allowed(t, g, c) {
		t.Error("the last is still there")
	}
}

// BenchmarkGrants measures a decision with 100,000 grants, none of which matches.
func BenchmarkGrants(b *testing.B) {
	g := grants(pods(b), func() (*grant.Grant, error) { return nil, nil })
	for i := range 100_000 {
		one := pods(b)
		one.Namespace, one.Name = fmt.Sprintf("b--%05d", i/10), fmt.Sprintf("grant-%d", i)
		one.Tenant = tenanttest.ID(b, fmt.Sprintf("tenant-%d", i%1000))
		g.Index.Set(one)
	}
	c := crossing(b)
	c.Caller = tenanttest.ID(b, "tenant-7")
	b.ReportAllocs()
	for b.Loop() {
		if allowed, _ := g.Allows(b.Context(), c); allowed {
			b.Fatal("allowed")
		}
	}
}

// TestLineage checks that a grant applies only while its owner and its grantee are the same as at
// its creation, and neither is being deleted.
func TestLineage(t *testing.T) {
	before := []tenant.Retired{{UID: "old"}}
	for name, c := range map[string]struct {
		recorded       string
		owner, grantee tenant.Lineage
		want           bool
	}{
		"names alone":                  {"", tenant.Lineage{}, tenant.Lineage{}, true},
		"the same Tenant":              {tenant.Seal("u"), tenant.Lineage{UID: "o"}, tenant.Lineage{UID: "u"}, true},
		"a Tenant that came later":     {tenant.Seal(""), tenant.Lineage{}, tenant.Lineage{UID: "u"}, true},
		"another, of a new definition": {tenant.Seal("u"), tenant.Lineage{}, tenant.Lineage{UID: "v"}, true},
		"a successor": {
			tenant.Seal("old"), tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, false,
		},
		"a successor, nothing recorded": {"", tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, false},
		"a successor, of nobody": {
			tenant.Seal(""), tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, false,
		},
		"for a successor":     {tenant.Seal("v"), tenant.Lineage{}, tenant.Lineage{UID: "v", Retired: before}, true},
		"a grantee that ends": {tenant.Seal("u"), tenant.Lineage{}, tenant.Lineage{UID: "u", Ending: true}, false},
		"an owner that ends": {
			tenant.Seal("u"), tenant.Lineage{UID: "o", Ending: true}, tenant.Lineage{UID: "u"}, false,
		},
		"an owner that was deleted": {"", tenant.Lineage{Retired: before}, tenant.Lineage{}, false},
		"a successor's own and its names": {
			tenant.Seal("u"), tenant.Lineage{UID: "o", Retired: before}, tenant.Lineage{UID: "u"}, true,
		},
	} {
		made := pods(t)
		made.Grantee = c.recorded
		g := grants(made, func() (*grant.Grant, error) { return made, nil })
		g.Lineage = func(id tenant.ID) tenant.Lineage {
			if id == made.Owner {
				return c.owner
			}
			return c.grantee
		}
		if got := allowed(t, g, crossing(t)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var errUnavailable = errors.New("away")

// fakeAuthorizer allows the authorization requests in a list, and records all requests.
type fakeAuthorizer struct {
	all      []string
	other    authorizer.Decision
	err      error
	requests []string
}

func (m *fakeAuthorizer) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	resource := a.GetResource()
	if a.GetAPIGroup() != "" {
		resource += "." + a.GetAPIGroup()
	}
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	name := strings.TrimPrefix(a.GetNamespace()+"/"+a.GetName(), "/")
	text := fmt.Sprintf("%s %s %s", a.GetVerb(), resource, name)
	m.requests = append(m.requests, text)
	if !a.IsResourceRequest() || a.GetAPIVersion() != "v1" || a.GetUser().GetName() != "velero" {
		return authorizer.DecisionDeny, "", nil
	}
	if slices.Contains(m.all, text) {
		return authorizer.DecisionAllow, "", m.err
	}
	return m.other, "", nil
}

func owner(_ context.Context, namespace string) (tenant.ID, error) {
	switch namespace {
	case "a--web":
		return tenant.Parse("a")
	case "b--web":
		return tenant.Parse("b")
	case "away":
		return tenant.ID{}, errUnavailable
	}
	return tenant.System(), nil
}

// TestMayImpersonate checks that each request of upstream's impersonation filter must be allowed,
// and that all requests have the verb impersonate. The result is false for a user of another
// tenant, an unknown owner or an error.
func TestMayImpersonate(t *testing.T) {
	const (
		alice = "impersonate users alice"
		dev   = "impersonate groups dev"
		uid   = "impersonate uids.authentication.k8s.io u1"
		extra = "impersonate userextras.authentication.k8s.io/kubetenant.dev/tenant a"
		robot = "impersonate serviceaccounts a--web/robot"
	)
	account := "system:serviceaccount:a--web:robot"
	person := plugins.Identity{
		User:   "alice",
		UID:    "u1",
		Tenant: "a",
		Groups: []string{"dev", "tenant:a", "system:authenticated"},
	}
	with := func(change func(*plugins.Identity)) plugins.Identity {
		p := person
		change(&p)
		return p
	}
	many := make([]string, 65)
	for i := range many {
		many[i] = "dev"
	}
	all := []string{
		alice, dev, uid, extra, robot, "impersonate users ", "impersonate groups tenant:b",
		"impersonate serviceaccounts b--web/robot", "impersonate serviceaccounts away/robot",
	}
	for name, c := range map[string]struct {
		person plugins.Identity
		may    fakeAuthorizer
		caller string
		owner  string
		want   bool
	}{
		"everything allowed": {person: person, may: fakeAuthorizer{all: all}, want: true},
		"a caller of a": {
			person: person,
			may:    fakeAuthorizer{all: []string{alice, dev, uid}},
			caller: "a",
			want:   true,
		},
		"without the user": {person: person, may: fakeAuthorizer{all: []string{dev, uid, extra}}},
		"without a group":  {person: person, may: fakeAuthorizer{all: []string{alice, uid, extra}}},
		"without the UID":  {person: person, may: fakeAuthorizer{all: []string{alice, dev, extra}}},
		"without the extra": {
			person: person,
			may:    fakeAuthorizer{all: []string{alice, dev, uid}},
		},
		"one request denied": {
			person: person,
			may:    fakeAuthorizer{all: []string{alice, uid, extra}, other: authorizer.DecisionDeny},
		},
		"an error":          {person: person, may: fakeAuthorizer{all: all, err: errUnavailable}},
		"an unknown caller": {person: person, may: fakeAuthorizer{all: all}, caller: "?"},
		"no tenant":         {person: person, may: fakeAuthorizer{all: all}, caller: "-"},
		"another owner":     {person: person, may: fakeAuthorizer{all: all}, owner: "b"},
		"no owner": {
			person: with(func(p *plugins.Identity) { p.Tenant = "" }),
			may:    fakeAuthorizer{all: all},
			owner:  "-",
		},
		"another tenant": {
			person: with(func(p *plugins.Identity) { p.Tenant, p.Groups = "b", nil }),
			may:    fakeAuthorizer{all: all},
		},
		"no user": {person: with(func(p *plugins.Identity) { p.User = "" }), may: fakeAuthorizer{all: all}},
		"another tenant's group": {
			person: with(func(p *plugins.Identity) { p.Groups = []string{"tenant:b"} }),
			may:    fakeAuthorizer{all: all},
		},
		"many groups": {person: with(func(p *plugins.Identity) { p.Groups = many }), may: fakeAuthorizer{all: all}},
		"64 groups": {
			person: with(func(p *plugins.Identity) { p.Groups = many[:64] }),
			may:    fakeAuthorizer{all: all},
			want:   true,
		},
		"identity without a tenant": {
			person: with(func(p *plugins.Identity) { p.Tenant = "" }),
			may:    fakeAuthorizer{all: all},
			want:   true,
		},
		"a service account": {
			person: plugins.Identity{
				User:   account,
				Tenant: "a",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:a--web", "system:authenticated"},
			},
			may:  fakeAuthorizer{all: []string{robot, extra}},
			want: true,
		},
		"a service account as a user": {
			person: plugins.Identity{User: account, Tenant: "a"},
			may:    fakeAuthorizer{all: []string{"impersonate users " + account, extra}},
		},
		"another tenant's service account": {
			person: plugins.Identity{User: "system:serviceaccount:b--web:robot", Tenant: "a"},
			may:    fakeAuthorizer{all: all},
		},
		"an account whose owner is unknown": {
			person: plugins.Identity{User: "system:serviceaccount:away:robot", Tenant: "a"},
			may:    fakeAuthorizer{all: all},
		},
		"constrained impersonation": {
			person: person,
			may: fakeAuthorizer{all: []string{
				"impersonate:user-info users alice", "impersonate:user-info groups dev",
				"impersonate:user-info uids.authentication.k8s.io u1",
			}},
			caller: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			subject := func(context.Context, user.Info) (tenant.ID, error) {
				switch c.caller {
				case "?":
					return tenant.System(), errUnavailable
				case "-":
					return tenant.ID{}, nil
				case "":
					return tenant.System(), nil
				}
				return tenant.Parse(c.caller)
			}
			id, err := tenant.Parse("a")
			if c.owner == "-" {
				id = tenant.ID{}
			} else if c.owner != "" {
				id, err = tenant.Parse(c.owner)
			}
			if err != nil {
				t.Fatal(err)
			}
			m := plugins.ImpersonationCheck{
				Authorizer: authorizer.AuthorizerFunc(c.may.authorize),
				Subject:    subject,
				Owner:      owner,
			}
			if got := m.MayImpersonate(t.Context(), &user.DefaultInfo{Name: "velero"}, c.person, id); got != c.want {
				t.Errorf("MayImpersonate() = %t, want %t; requests %q", got, c.want, c.may.requests)
			}
			if (&plugins.ImpersonationCheck{}).MayImpersonate(t.Context(), &user.DefaultInfo{Name: "velero"}, c.person, id) {
				t.Error("the zero value allows an identity")
			}
		})
	}
}

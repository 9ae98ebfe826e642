// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/tenant"
)

func set(t *testing.T, names ...string) tenant.Set {
	t.Helper()
	s, err := tenant.ParseSet(names)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func identityRules(t *testing.T, name string, tenants ...string) authn.IdentityRules {
	return authn.IdentityRules{
		Source:   name,
		Tenants:  set(t, tenants...),
		Reserved: &tenant.SystemNames{Groups: []string{"root"}},
	}
}

// identity returns a source that always returns the same identity.
func identity(u user.Info) authenticator.Request {
	return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: u}, true, nil
	})
}

func tenantExtra(tenants ...string) map[string][]string {
	return map[string][]string{tenant.ExtraKey: tenants}
}

func TestIdentityRules(t *testing.T) {
	for _, c := range []struct {
		name string
		user *user.DefaultInfo
		want error
	}{
		{"bound", &user.DefaultInfo{Name: "u", Extra: tenantExtra("a")}, nil},
		{"unbound", &user.DefaultInfo{Name: "u"}, tenant.ErrUnbound},
		{"two tenants", &user.DefaultInfo{Name: "u", Extra: tenantExtra("a", "b")}, tenant.ErrAmbiguous},
		{"an invalid tenant", &user.DefaultInfo{Name: "u", Extra: tenantExtra("A L L")}, tenant.ErrInvalid},
		{"a tenant that is not allowed", &user.DefaultInfo{Name: "u", Extra: tenantExtra("b")}, authn.ErrTenantNotAllowed},
		{"the system tenant", &user.DefaultInfo{Name: "u", Extra: tenantExtra("system")}, authn.ErrTenantNotAllowed},
		{"no name", &user.DefaultInfo{Extra: tenantExtra("a")}, authn.ErrNoUsername},
		{"a system user", &user.DefaultInfo{Name: "system:x", Extra: tenantExtra("a")}, authn.ErrReservedUser},
		{
			"a system group",
			&user.DefaultInfo{Name: "u", Groups: []string{"g", "system:x"}, Extra: tenantExtra("a")},
			authn.ErrReservedGroup,
		},
		{
			"a configured group",
			&user.DefaultInfo{Name: "u", Groups: []string{"root"}, Extra: tenantExtra("a")},
			authn.ErrReservedGroup,
		},
		{
			"a tenant group",
			&user.DefaultInfo{Name: "u", Groups: []string{"tenant:a"}, Extra: tenantExtra("a")},
			authn.ErrReservedGroup,
		},
		{
			"a key in the project's domain",
			&user.DefaultInfo{Name: "u", Extra: map[string][]string{tenant.ExtraKey: {"a"}, "kubetenant.dev/x": {"y"}}},
			authn.ErrReservedExtra,
		},
		{
			"a key in the project's domain, in another case",
			&user.DefaultInfo{Name: "u", Extra: map[string][]string{tenant.ExtraKey: {"a"}, "Kubetenant.Dev/x": {"y"}}},
			authn.ErrReservedExtra,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			chain := authn.New(
				authn.Chain{Sources: []authn.Source{{Rules: identityRules(t, "src", "a"), Request: identity(c.user)}}},
			)
			resp, ok, err := chain.AuthenticateRequest(&http.Request{})
			if !errors.Is(err, c.want) || ok != (c.want == nil) || (resp != nil) != ok {
				t.Errorf("%v, %v, %v; want %v", resp, ok, err, c.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), `source "src": `) {
				t.Errorf("the error does not name the source: %v", err)
			}
		})
	}
}

// TestIdentityRulesOfRemoteSources checks that reserved names and extra keys from a remote
// source are rejected for every tenant, including the system tenant. Only the keys in Extras are
// allowed.
func TestIdentityRulesOfRemoteSources(t *testing.T) {
	const own, foreign = "alpha.kubernetes.io/own", "alpha.kubernetes.io/foreign"
	for _, c := range []struct {
		name  string
		user  *user.DefaultInfo
		local error // the error for a source that the cluster's admin controls
		want  error
	}{
		{"a plain user", &user.DefaultInfo{Name: "u", Groups: []string{"g"}, Extra: tenantExtra("system")}, nil, nil},
		{"a system user", &user.DefaultInfo{Name: "system:x", Extra: tenantExtra("system")}, nil, authn.ErrReservedUser},
		{
			"a system group",
			&user.DefaultInfo{Name: "u", Groups: []string{"system:masters"}, Extra: tenantExtra("system")},
			nil,
			authn.ErrReservedGroup,
		},
		{
			"a configured group",
			&user.DefaultInfo{Name: "u", Groups: []string{"root"}, Extra: tenantExtra("system")},
			nil,
			authn.ErrReservedGroup,
		},
		{
			"a service account",
			&user.DefaultInfo{Name: "system:serviceaccount:a:b", Extra: tenantExtra("system")},
			authn.ErrReservedUser,
			authn.ErrReservedUser,
		},
		{
			"a tenant group",
			&user.DefaultInfo{Name: "u", Groups: []string{"tenant:system"}, Extra: tenantExtra("system")},
			authn.ErrReservedGroup,
			authn.ErrReservedGroup,
		},
		{
			"a key in Extras",
			&user.DefaultInfo{Name: "u", Extra: map[string][]string{tenant.ExtraKey: {"a"}, own: {"x"}}},
			nil,
			nil,
		},
		{
			"a key in kubernetes.io",
			&user.DefaultInfo{Name: "u", Extra: map[string][]string{tenant.ExtraKey: {"a"}, foreign: {"x"}}},
			nil,
			authn.ErrReservedExtra,
		},
		{
			"a key in Extras, in another case",
			&user.DefaultInfo{Name: "u", Extra: map[string][]string{tenant.ExtraKey: {"a"}, "Alpha.Kubernetes.IO/own": {"x"}}},
			nil,
			authn.ErrReservedExtra,
		},
		{
			"the source key",
			&user.DefaultInfo{Name: "u", Extra: map[string][]string{tenant.ExtraKey: {"a"}, tenant.SourceKey: {"x"}}},
			nil,
			authn.ErrReservedExtra,
		},
		{
			"a key without a domain",
			&user.DefaultInfo{Name: "u", Extra: map[string][]string{tenant.ExtraKey: {"a"}, "k": {"x"}}},
			nil,
			nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, remote := range []bool{false, true} {
				h := identityRules(t, "src", "a", "system")
				h.Remote, h.Extras = remote, []string{own}
				want := c.local
				if remote {
					want = c.want
				}
				_, ok, err := authn.New(authn.Chain{Sources: []authn.Source{{Rules: h, Request: identity(c.user)}}}).
					AuthenticateRequest(&http.Request{})
				if !errors.Is(err, want) || ok != (want == nil) {
					t.Errorf("%s, remote %v: %v, %v; want %v", c.name, remote, ok, err, want)
				}
			}
		})
	}
}

// TestIdentityRulesOfServiceAccounts checks that a source with ServiceAccounts accepts only
// service accounts with exactly their two groups, and does not change their names.
func TestIdentityRulesOfServiceAccounts(t *testing.T) {
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:ns"}
	for _, c := range []struct {
		name   string
		groups []string
		want   error
	}{
		{"system:serviceaccount:ns:n", groups, nil},
		{"system:serviceaccount:ns:n", append(groups[:2:2], "more"), authn.ErrReservedGroup},
		{"system:serviceaccount:ns:n", groups[:1], authn.ErrReservedGroup},
		{
			"system:serviceaccount:ns:n",
			[]string{"system:serviceaccounts", "system:serviceaccounts:other"},
			authn.ErrReservedGroup,
		},
		{"system:serviceaccount:n", groups, authn.ErrReservedUser},
		{"system:admin", groups, authn.ErrReservedUser},
		{"alice", nil, authn.ErrReservedUser},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := identityRules(t, "src", "a")
			h.ServiceAccounts, h.QualifyNames = true, true
			resp, ok, err := authn.New(authn.Chain{Sources: []authn.Source{{
				Rules:   h,
				Request: identity(&user.DefaultInfo{Name: c.name, Groups: c.groups, Extra: tenantExtra("a")}),
			}}}).AuthenticateRequest(&http.Request{})
			if !errors.Is(err, c.want) || ok != (c.want == nil) || ok && resp.User.GetName() != c.name {
				t.Errorf("%s in %q: %+v, %v; want %v", c.name, c.groups, resp, err, c.want)
			}
		})
	}
}

func TestZeroIdentityRulesRejectEveryone(t *testing.T) {
	chain := authn.New(authn.Chain{
		Sources: []authn.Source{{Request: identity(&user.DefaultInfo{Name: "u", Extra: tenantExtra("a")})}},
	})
	if _, ok, err := chain.AuthenticateRequest(&http.Request{}); ok || err == nil {
		t.Errorf("a source without rules = %v, %v; want an error", ok, err)
	}
}

// TestOrderOfGroups checks that an identity has the groups from the source, then the tenant's
// group, and then system:authenticated.
func TestOrderOfGroups(t *testing.T) {
	h := identityRules(t, "src", "a")
	h.UsernamePrefix, h.GroupsPrefix, h.QualifyNames = "p:", "q:", true
	source := &user.DefaultInfo{
		Name:   "u",
		UID:    "1",
		Groups: []string{"g", "h"},
		Extra:  tenantExtra("a"),
	}
	resp, _, err := authn.New(authn.Chain{Sources: []authn.Source{{Rules: h, Request: identity(source)}}}).
		AuthenticateRequest(&http.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if resp.User.GetName() != "a:p:u" || resp.User.GetUID() != "1" ||
		!slices.Equal(resp.User.GetGroups(), []string{"a:q:g", "a:q:h", "tenant:a", "system:authenticated"}) ||
		!slices.Equal(resp.User.GetExtra()[tenant.SourceKey], []string{"src"}) {
		t.Errorf("identity = %+v", resp.User)
	}
	if len(source.Extra) != 1 || len(source.Groups) != 2 || source.Name != "u" {
		t.Errorf("the source's own identity was changed: %+v", source)
	}
}

// TestQualifiedNamesMayNotBeReserved checks that a name is rejected if the prefix for its tenant
// turns it into a reserved name.
func TestQualifiedNamesMayNotBeReserved(t *testing.T) {
	h := authn.IdentityRules{
		Source:       "src",
		Tenants:      set(t, "*"),
		QualifyNames: true,
		Reserved: &tenant.SystemNames{
			Users:        []string{"infra:root"},
			UserPrefixes: []string{"boot:"},
			Groups:       []string{"kubeadm:cluster-admins"},
		},
	}
	for name, c := range map[string]struct {
		user *user.DefaultInfo
		want error
	}{
		"a reserved group": {
			&user.DefaultInfo{Name: "u", Groups: []string{"cluster-admins"}, Extra: tenantExtra("kubeadm")},
			authn.ErrReservedGroup,
		},
		"a reserved user":        {&user.DefaultInfo{Name: "root", Extra: tenantExtra("infra")}, authn.ErrReservedUser},
		"a reserved user prefix": {&user.DefaultInfo{Name: "u", Extra: tenantExtra("boot")}, authn.ErrReservedUser},
		"another tenant": {
			&user.DefaultInfo{Name: "root", Groups: []string{"cluster-admins"}, Extra: tenantExtra("other")}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			chain := authn.New(authn.Chain{Sources: []authn.Source{{Rules: h, Request: identity(c.user)}}})
			if resp, _, err := chain.AuthenticateRequest(&http.Request{}); !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", resp, err, c.want)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	var asked []string
	ask := func(name string, ok bool, err error) authenticator.Request {
		return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			asked = append(asked, name)
			return &authenticator.Response{User: &user.DefaultInfo{Name: name, Extra: tenantExtra("a")}}, ok, err
		})
	}
	token := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
		asked = append(asked, "token")
		return nil, false, nil
	})
	chain := func(second authenticator.Request) authenticator.Request {
		return authn.New(authn.Chain{
			FrontProxy: &authn.Source{Rules: identityRules(t, "proxy", "a"), Request: ask("proxy", false, nil)},
			Sources: []authn.Source{
				{Rules: identityRules(t, "one", "a"), Request: ask("one", false, nil)},
				{Rules: identityRules(t, "t1", "a"), Token: token, Match: authn.Match{Every: true}},
				{Rules: identityRules(t, "two", "a"), Request: second},
				{Rules: identityRules(t, "t2", "a"), Token: token, Match: authn.Match{Every: true}},
			},
			BuiltIn: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				asked = append(asked, "built-in")
				return &authenticator.Response{User: &user.DefaultInfo{Name: "b"}}, true, nil
			}),
		})
	}
	bearer := &http.Request{Header: http.Header{"Authorization": {"Bearer x"}}}
	if resp, ok, err := chain(ask("two", false, nil)).AuthenticateRequest(bearer); !ok || err != nil ||
		resp.User.GetName() != "b" {
		t.Errorf("BuiltIn is not called: %v, %v", ok, err)
	}
	if want := []string{"proxy", "one", "token", "token", "two", "built-in"}; !slices.Equal(asked, want) {
		t.Errorf("called %v, want %v", asked, want)
	}
	asked = nil
	failure := errors.New("expired")
	if resp, ok, err := chain(ask("two", false, failure)).AuthenticateRequest(bearer); ok || resp != nil ||
		!errors.Is(err, failure) {
		t.Errorf("an error from a source = %v, %v; want the request to fail", ok, err)
	}
	if slices.Contains(asked, "built-in") {
		t.Error("BuiltIn, which may accept anonymous requests, was called after an error")
	}
}

func TestBuiltInMayNotAssertTenants(t *testing.T) {
	for name, u := range map[string]*user.DefaultInfo{
		"a tenant":               {Name: "u", Extra: tenantExtra("a")},
		"a tenant, another case": {Name: "u", Extra: map[string][]string{"KubeTenant.dev/tenant": {"a"}}},
		"a tenant, case folding": {Name: "u", Extra: map[string][]string{"\u212aubetenant.dev/tenant": {"a"}}},
		"another own key":        {Name: "u", Extra: map[string][]string{"kubetenant.dev/x": {"a"}}},
		"a tenant group":         {Name: "u", Groups: []string{"g", "tenant:a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, ok, err := authn.New(authn.Chain{BuiltIn: identity(u)}).AuthenticateRequest(&http.Request{}); ok ||
				err == nil {
				t.Errorf("%s = %v, %v; want an error", name, ok, err)
			}
		})
	}
	plain := &user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	if resp, ok, err := authn.New(authn.Chain{BuiltIn: identity(plain)}).AuthenticateRequest(&http.Request{}); !ok ||
		err != nil || resp.User != user.Info(plain) {
		t.Errorf("an identity without tenants = %v, %v; want it unchanged", ok, err)
	}
}

// TestTokens checks that tokens in the header and in the websocket subprotocol are passed to the
// same sources. The chain abstains from unknown tokens, and removes accepted tokens from the
// request.
func TestTokens(t *testing.T) {
	source := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		switch token {
		case "good":
			return &authenticator.Response{User: &user.DefaultInfo{Name: "u", Extra: tenantExtra("a")}}, true, nil
		case "bad":
			return nil, false, errors.New("expired")
		}
		return nil, false, nil
	})
	chain := authn.New(authn.Chain{
		Sources: []authn.Source{{Rules: identityRules(t, "tokens", "a"), Token: source, Match: authn.Match{Every: true}}},
	})
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	websocket := func(token string) http.Header {
		encoded := base64.RawURLEncoding.EncodeToString([]byte(token))
		return http.Header{
			"Connection":             {"upgrade"},
			"Upgrade":                {"websocket"},
			"Sec-Websocket-Protocol": {"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + encoded},
		}
	}
	for name, form := range map[string]func(string) http.Header{"bearer": bearer, "websocket": websocket} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{Header: form("good")}
			if _, ok, err := chain.AuthenticateRequest(r); !ok || err != nil {
				t.Errorf("a good token = %v, %v", ok, err)
			}
			for _, values := range r.Header {
				for _, v := range values {
					if strings.Contains(v, "good") || strings.Contains(v, "base64url.bearer") {
						t.Errorf("the token is still on the request: %v", r.Header)
					}
				}
			}
			if _, ok, err := chain.AuthenticateRequest(&http.Request{Header: form("bad")}); ok || err == nil {
				t.Errorf("a bad token = %v, %v; want an error", ok, err)
			}
			if resp, ok, err := chain.AuthenticateRequest(&http.Request{Header: form("foreign")}); resp != nil || ok ||
				err != nil {
				t.Errorf("a foreign token = %v, %v; want an abstention", ok, err)
			}
		})
	}
}

func TestAudiences(t *testing.T) {
	chain := authn.New(authn.Chain{
		Audiences: authenticator.Audiences{"api"},
		Sources: []authn.Source{
			{Rules: identityRules(t, "src", "a"), Request: identity(&user.DefaultInfo{Name: "u", Extra: tenantExtra("a")})},
		},
	})
	ask := func(audiences ...string) (*authenticator.Response, bool, error) {
		r := &http.Request{}
		return chain.AuthenticateRequest(r.WithContext(authenticator.WithAudiences(t.Context(), audiences)))
	}
	if resp, ok, err := ask("api", "other"); !ok || err != nil || !slices.Equal(resp.Audiences, []string{"api"}) {
		t.Errorf("for our audience: %v, %v", ok, err)
	}
	if _, ok, err := ask("other"); ok || err != nil {
		t.Errorf("for another audience: %v, %v; want an abstention", ok, err)
	}
}

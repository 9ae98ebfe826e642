// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/internal/validity"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestCredentialsOfDeletedTenants checks all kinds of credentials for a tenant whose name
// belonged to a deleted tenant. A credential that is older than the tenant is rejected. An
// undated credential is rejected unless the Tenant accepts undated credentials. Cached results
// are checked too. Credentials of the system tenant are not rejected.
func TestCredentialsOfDeletedTenants(t *testing.T) {
	made := time.Unix(2_000_000, 0)
	old, young := made.Add(-time.Hour), made.Add(time.Hour)
	at := func(u user.Info, at time.Time) authenticator.RequestFunc {
		return func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: validity.With(u, at, time.Time{})}, true, nil
		}
	}
	source := func(s authn.Source) authn.Chain {
		s.Rules = identityRules(t, "src", "a", "system")
		return authn.Chain{Sources: []authn.Source{s}}
	}
	builtIn := func(u user.Info) authn.Chain {
		return authn.Chain{
			BuiltIn: identity(u),
			Subject: func(context.Context, user.Info) (tenant.ID, error) { return tenanttest.ID(t, "a"), nil },
		}
	}
	one := authn.Match{Issuers: []string{"https://one"}}
	token := func(more ...map[string]any) *http.Request { return bearing(t.Context(), jwt("https://one", more...)) }
	twice := func(bearer, socket time.Time) *http.Request {
		req := token(map[string]any{"iat": bearer.Unix()})
		second := base64.RawURLEncoding.EncodeToString([]byte(jwt("https://one", map[string]any{"iat": socket.Unix()})))
		for key, value := range map[string]string{
			"Connection":             "upgrade",
			"Upgrade":                "websocket",
			"Sec-Websocket-Protocol": "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + second,
		} {
			req.Header.Set(key, value)
		}
		return req
	}
	certified := &user.DefaultInfo{Name: "u", Extra: credential("X509SHA256=00")}
	system := &user.DefaultInfo{Name: "root", Extra: tenantExtra("system")}
	_, certificate := issue(t, testKey.Private)
	with := func(at time.Time) *http.Request {
		presented := *certificate
		presented.NotBefore = at
		return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{&presented}}}
	}
	type answer struct{ ok, acceptingUndated bool }
	no, always, undated := answer{}, answer{true, true}, answer{false, true}
	for what, c := range map[string]struct {
		chain authn.Chain
		req   *http.Request
		want  answer
	}{
		"an old certificate":  {source(authn.Source{Request: at(alice(), old)}), &http.Request{}, no},
		"a young certificate": {source(authn.Source{Request: at(alice(), young)}), &http.Request{}, always},
		"a certificate from 5 minutes before": {
			source(authn.Source{Request: at(alice(), made.Add(-5*time.Minute))}), &http.Request{}, always,
		},
		"a certificate from more than 5 minutes before": {
			source(authn.Source{Request: at(alice(), made.Add(-5*time.Minute-time.Second))}), &http.Request{}, no,
		},
		"a password":                   {source(authn.Source{Request: identity(alice())}), &http.Request{}, undated},
		"the system tenant's password": {source(authn.Source{Request: identity(system)}), &http.Request{}, always},
		"an identity from a front proxy": {
			authn.Chain{FrontProxy: &authn.Source{Rules: identityRules(t, "src", "a"), Request: identity(alice())}},
			&http.Request{},
			undated,
		},
		"an old token": {
			source(authn.Source{Token: &fake{user: alice()}, Match: one}), token(map[string]any{"iat": old.Unix()}), no,
		},
		"a young token": {
			source(authn.Source{Token: &fake{user: alice()}, Match: one}), token(map[string]any{"iat": young.Unix()}), always,
		},
		"a token without a time": {source(authn.Source{Token: &fake{user: alice()}, Match: one}), token(), undated},
		"an old opaque token": {
			source(authn.Source{Token: &fake{user: validity.With(alice(), old, time.Time{})}, Match: authn.Match{Rest: true}}),
			bearing(t.Context(), "opaque"),
			no,
		},
		"a young opaque token": {
			source(authn.Source{Token: &fake{user: validity.With(alice(), young, time.Time{})}, Match: authn.Match{Rest: true}}),
			bearing(t.Context(), "opaque"),
			always,
		},
		"an opaque token without a time": {
			source(authn.Source{Token: &fake{user: alice()}, Match: authn.Match{Rest: true}}),
			bearing(t.Context(), "opaque"),
			undated,
		},
		"a token from a file": {
			source(authn.Source{Token: &fake{user: alice()}, Match: authn.Match{Every: true}}),
			bearing(t.Context(), "line"),
			undated,
		},
		"the server's own old certificate":   {builtIn(certified), with(old), no},
		"the server's own young certificate": {builtIn(certified), with(young), always},
		"the server's own old token": {
			builtIn(&user.DefaultInfo{Name: "u"}), token(map[string]any{"iat": old.Unix()}), no,
		},
		"the server's own young token": {
			builtIn(&user.DefaultInfo{Name: "u"}), token(map[string]any{"iat": young.Unix()}), always,
		},
		"an old token and a young token":    {builtIn(&user.DefaultInfo{Name: "u"}), twice(old, young), no},
		"a young token and an old token":    {builtIn(&user.DefaultInfo{Name: "u"}), twice(young, old), no},
		"two young tokens":                  {builtIn(&user.DefaultInfo{Name: "u"}), twice(young, young), always},
		"the server's own undated identity": {builtIn(&user.DefaultInfo{Name: "u"}), &http.Request{}, undated},
	} {
		t.Run(what, func(t *testing.T) {
			for accepting, want := range map[bool]bool{false: c.want.ok, true: c.want.acceptingUndated} {
				var of tenant.Lineage
				c.chain.Accepts = func(_ context.Context, id tenant.ID, issued time.Time) bool {
					return id.String() != "a" || of.Accepts(issued)
				}
				chain := authn.New(c.chain)
				ask := func() (bool, error) {
					_, ok, err := chain.AuthenticateRequest(c.req.Clone(t.Context()))
					return ok, err
				}
				if ok, err := ask(); !ok || err != nil { // the result is cached
					t.Errorf("%s, for a name without a deleted tenant: %t, %v", what, ok, err)
				}
				of = tenant.Lineage{
					UID:           "new",
					Created:       made,
					AcceptUndated: accepting,
					Retired:       []tenant.Retired{{UID: "old"}},
				}
				if ok, err := ask(); ok != want || errors.Is(err, authn.ErrPredecessor) == want {
					t.Errorf("%s, accepting undated %t: %t, %v", what, accepting, ok, err)
				}
			}
		})
	}
}

// TestBuiltInFailedTenantLookup checks that an identity from BuiltIn is rejected if the lookup
// of its tenant fails. An identity without a tenant is accepted, because package authz denies
// its requests.
func TestBuiltInFailedTenantLookup(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct{ told, want error }{
		"a failure":           {down, down},
		"a wrapped failure":   {fmt.Errorf("namespace: %w", down), down},
		"no tenant":           {tenant.ErrUnbound, nil},
		"an invalid tenant":   {tenant.ErrInvalid, nil},
		"an ambiguous tenant": {tenant.ErrAmbiguous, nil},
	} {
		t.Run(name, func(t *testing.T) {
			chain := authn.New(authn.Chain{
				BuiltIn: identity(&user.DefaultInfo{Name: "u"}),
				Subject: func(context.Context, user.Info) (tenant.ID, error) { return tenant.ID{}, c.told },
				Accepts: func(context.Context, tenant.ID, time.Time) bool { return true },
			})
			if _, ok, err := chain.AuthenticateRequest(&http.Request{}); ok != (c.want == nil) || !errors.Is(err, c.want) {
				t.Errorf("%t, %v", ok, err)
			}
		})
	}
}

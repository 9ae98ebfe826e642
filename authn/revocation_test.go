// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

func credential(id string) map[string][]string {
	return map[string][]string{user.CredentialIDKey: {id}}
}

// TestRevokedIdentities checks revocation by tenant, user name, UID of a service account and
// fingerprint. A token can only be reported as possibly revoked.
func TestRevokedIdentities(t *testing.T) {
	a, b := tenanttest.ID(t, "a"), tenanttest.ID(t, "b")
	list := &authn.Revocations{
		Fingerprints:    map[string]struct{}{"00ff": {}},
		Tokens:          map[string][]authn.TokenRule{"https://one": {{ID: "token-1"}}},
		Users:           map[authn.TenantUser]struct{}{{Tenant: a, Name: "mallory"}: {}, {Name: "nobody"}: {}},
		ServiceAccounts: map[string]struct{}{"uid-1": {}},
		Tenants:         map[tenant.ID]struct{}{b: {}, {}: {}},
	}
	for _, c := range []struct {
		what        string
		id          tenant.ID
		user        user.DefaultInfo
		is, mayBeIt bool
	}{
		{"a caller that is not revoked", a, user.DefaultInfo{Name: "alice", UID: "uid-1"}, false, false},
		{"a user", a, user.DefaultInfo{Name: "mallory"}, true, true},
		{"a revoked name in another tenant", tenanttest.ID(t, "c"), user.DefaultInfo{Name: "mallory"}, false, false},
		{"a revoked name without a tenant", tenant.ID{}, user.DefaultInfo{Name: "nobody"}, true, true},
		{"a caller of a revoked tenant", b, user.DefaultInfo{Name: "alice"}, true, true},
		{"a caller without a tenant", tenant.ID{}, user.DefaultInfo{Name: "alice"}, false, false},
		{"a service account", a, user.DefaultInfo{Name: "system:serviceaccount:a--web:robot", UID: "uid-1"}, true, true},
		{
			"another service account",
			a,
			user.DefaultInfo{Name: "system:serviceaccount:a--web:robot", UID: "uid-2"},
			false,
			false,
		},
		{"a certificate", a, user.DefaultInfo{Name: "alice", Extra: credential("X509SHA256=00FF")}, true, true},
		{"another certificate", a, user.DefaultInfo{Name: "alice", Extra: credential("X509SHA256=00fe")}, false, false},
		{"a fingerprint without a prefix", a, user.DefaultInfo{Name: "alice", Extra: credential("00ff")}, false, false},
		{"a token", a, user.DefaultInfo{Name: "alice", Extra: credential("JTI=token-1")}, false, true},
		{"another token", a, user.DefaultInfo{Name: "alice", Extra: credential("JTI=token-2")}, false, false},
		{"a token ID without a prefix", a, user.DefaultInfo{Name: "alice", Extra: credential("token-1")}, false, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := list.Covers(c.id, &c.user); got != c.is {
				t.Errorf("Covers() = %t", got)
			}
			if got := list.MayCover(c.id, &c.user); got != c.mayBeIt {
				t.Errorf("MayCover() = %t", got)
			}
			for name, nothing := range map[string]*authn.Revocations{"nil": nil, "the zero value": {}} {
				if nothing.Covers(c.id, &c.user) || nothing.MayCover(c.id, &c.user) {
					t.Errorf("%s is covered by %s", c.what, name)
				}
			}
		})
	}
	// An identity does not contain the subject or the time of issue, so any token may be revoked.
	for _, rule := range []authn.TokenRule{{Subject: "alice"}, {IssuedBefore: time.Now()}} {
		list := &authn.Revocations{Tokens: map[string][]authn.TokenRule{"https://one": {rule}}}
		if !list.MayCover(a, &user.DefaultInfo{Name: "bob", Extra: credential("JTI=x")}) {
			t.Errorf("%+v: a token that may be revoked is not covered", rule)
		}
	}
}

// TestRevokedTokens checks that a token is revoked only if it matches all fields of a rule, for all
// sources and for cached results.
func TestRevokedTokens(t *testing.T) {
	issued := time.Unix(1_000_000, 0)
	token := jwt("https://one", map[string]any{"jti": "t1", "sub": "alice", "iat": issued.Unix()})
	undated := jwt("https://one", map[string]any{"jti": "t1", "sub": "alice"})
	for _, c := range []struct {
		what    string
		token   string
		rules   []authn.TokenRule
		issuer  string
		refused bool
	}{
		{"no rule", token, nil, "https://one", false},
		{"a rule without fields", token, []authn.TokenRule{{}}, "https://one", false},
		{"its ID", token, []authn.TokenRule{{ID: "t1"}}, "https://one", true},
		{"another ID", token, []authn.TokenRule{{ID: "t2"}}, "https://one", false},
		{"the second of two", token, []authn.TokenRule{{ID: "t2"}, {ID: "t1"}}, "https://one", true},
		{"a rule for another issuer", token, []authn.TokenRule{{ID: "t1"}}, "https://two", false},
		{"its subject", token, []authn.TokenRule{{Subject: "alice"}}, "https://one", true},
		{"its ID and another subject", token, []authn.TokenRule{{ID: "t1", Subject: "bob"}}, "https://one", false},
		{"issued before", token, []authn.TokenRule{{IssuedBefore: issued.Add(time.Second)}}, "https://one", true},
		{"issued at that time", token, []authn.TokenRule{{IssuedBefore: issued}}, "https://one", false},
		{"no time of issue", undated, []authn.TokenRule{{IssuedBefore: issued}}, "https://one", true},
		{"its ID, issued at that time", token, []authn.TokenRule{{ID: "t1", IssuedBefore: issued}}, "https://one", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			list := &authn.Revocations{Tokens: map[string][]authn.TokenRule{c.issuer: c.rules}}
			var in *authn.Revocations
			chain := authn.New(authn.Chain{
				Revoked: func() *authn.Revocations { return in },
				Sources: []authn.Source{
					{
						Rules: identityRules(t, "one", "a"),
						Match: authn.Match{Issuers: []string{"https://one"}},
						Token: &fake{user: alice()},
					},
				},
			})
			if _, ok, err := chain.AuthenticateRequest(bearing(t.Context(), c.token)); !ok ||
				err != nil { // the result is cached
				t.Fatal(c.what, ok, err)
			}
			in = list
			_, ok, err := chain.AuthenticateRequest(bearing(t.Context(), c.token))
			if ok == c.refused || errors.Is(err, authn.ErrRevoked) != c.refused {
				t.Errorf("%t, %v", ok, err)
			}
		})
	}
}

// TestRevokedClientCertificate checks that every request over a connection with a revoked client
// certificate is rejected, regardless of its credential.
func TestRevokedClientCertificate(t *testing.T) {
	_, presented := issue(t, authntest.MustKey("ES256").Private) // serial number 2 of CN=ca
	for what, c := range map[string]struct {
		list    authn.Revocations
		refused bool
	}{
		"nothing":           {authn.Revocations{}, false},
		"its serial number": {authn.Revocations{Serials: map[string][]string{"2": {"CN=other", "CN=ca"}}}, true},
		"its serial number, and another fingerprint": {
			authn.Revocations{Serials: map[string][]string{"2": {"CN=ca"}}, Fingerprints: map[string]struct{}{"00": {}}}, true,
		},
		"another issuer":           {authn.Revocations{Serials: map[string][]string{"2": {"CN=other"}}}, false},
		"another serial number":    {authn.Revocations{Serials: map[string][]string{"1": {"CN=ca"}}}, false},
		"a number without issuers": {authn.Revocations{Serials: map[string][]string{"2": {}}}, false},
		"the user name": {
			authn.Revocations{Users: map[authn.TenantUser]struct{}{{Tenant: tenanttest.ID(t, "a"), Name: "u"}: {}}}, true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			chain := authn.New(authn.Chain{
				Revoked: func() *authn.Revocations { return &c.list },
				Sources: []authn.Source{
					{Rules: identityRules(t, "src", "a"), Request: identity(&user.DefaultInfo{Name: "u", Extra: tenantExtra("a")})},
				},
			})
			_, ok, err := chain.AuthenticateRequest(&http.Request{
				TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{presented}},
			})
			if ok == c.refused || errors.Is(err, authn.ErrRevoked) != c.refused ||
				c.refused && !strings.Contains(err.Error(), `"src"`) {
				t.Errorf("%t, %v", ok, err)
			}
		})
	}
}

// TestBuiltInRevokedCallers checks that Subject determines the tenant of an identity from
// BuiltIn. If Subject fails, the request is rejected, unless the identity has no valid tenant.
func TestBuiltInRevokedCallers(t *testing.T) {
	list := &authn.Revocations{Tenants: map[tenant.ID]struct{}{tenanttest.ID(t, "a"): {}}}
	away := errors.New("the server is away")
	for _, c := range []struct {
		what string
		id   tenant.ID
		err  error
		ok   bool
		want error
	}{
		{"a caller of a revoked tenant", tenanttest.ID(t, "a"), nil, false, authn.ErrRevoked},
		{"a caller of another tenant", tenanttest.ID(t, "b"), nil, true, nil},
		{"no tenant", tenant.ID{}, tenant.ErrUnbound, true, nil},
		{"an invalid tenant", tenant.ID{}, tenant.ErrInvalid, true, nil},
		{"an ambiguous tenant", tenant.ID{}, tenant.ErrAmbiguous, true, nil},
		{"a failed lookup", tenant.ID{}, away, false, away},
	} {
		t.Run(c.what, func(t *testing.T) {
			chain := authn.New(authn.Chain{
				Revoked: func() *authn.Revocations { return list },
				BuiltIn: identity(&user.DefaultInfo{Name: "u"}),
				Subject: func(context.Context, user.Info) (tenant.ID, error) { return c.id, c.err },
			})
			if _, ok, err := chain.AuthenticateRequest(&http.Request{}); ok != c.ok || !errors.Is(err, c.want) {
				t.Errorf("%t, %v", ok, err)
			}
		})
	}
}

// TestAmbiguousTokensAreRejected checks that tokens that are too long or contain invisible
// characters are rejected before the matching source receives them.
func TestAmbiguousTokensAreRejected(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	for what, token := range map[string]string{
		"an invisible character": "hello\u200balice",
		"a control character":    "hello\x00alice",
		"too long":               long + "x",
	} {
		t.Run(what, func(t *testing.T) {
			source := &fake{user: alice()}
			chain := authn.New(authn.Chain{
				Sources: []authn.Source{{Rules: identityRules(t, "src", "a"), Match: authn.Match{Rest: true}, Token: source}},
			})
			_, ok, err := chain.AuthenticateRequest(bearing(t.Context(), token))
			if ok || !errors.Is(err, authn.ErrForm) || source.calls > 0 {
				t.Errorf("%t, %v, called %d times", ok, err, source.calls)
			}
		})
	}
	source := &fake{user: alice()}
	chain := authn.New(authn.Chain{
		Sources: []authn.Source{{Rules: identityRules(t, "src", "a"), Match: authn.Match{Rest: true}, Token: source}},
	})
	if _, ok, err := chain.AuthenticateRequest(bearing(t.Context(), long)); !ok || err != nil {
		t.Errorf("a token of the maximum size: %t, %v", ok, err)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// fake is a token source that records the number of its calls.
type fake struct {
	calls int
	user  user.Info
	err   error
}

func (f *fake) AuthenticateToken(context.Context, string) (*authenticator.Response, bool, error) {
	f.calls++
	if f.user == nil {
		return nil, false, f.err
	}
	return &authenticator.Response{User: f.user}, true, nil
}

func alice() user.Info { return &user.DefaultInfo{Name: "alice", Extra: tenantExtra("a")} }

func bearing(ctx context.Context, token string) *http.Request {
	return (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(ctx)
}

var testKey = authntest.MustKey("ES256")

func jwt(issuer string, more ...map[string]any) string {
	claims := map[string]any{"iss": issuer}
	for _, m := range more {
		for k, v := range m {
			claims[k] = v
		}
	}
	return testKey.MustSign(claims)
}

// TestTokenGoesToItsSource checks that each token goes only to the lookup and to the source that
// may claim it, in any order of sources.
func TestTokenGoesToItsSource(t *testing.T) {
	form := func(token string) bool {
		return token == strings.Trim(token, "ghijklmnopqrstuvwxyz-.") && len(token) == 8
	}
	matches := map[string]authn.Match{
		"rest":    {Rest: true},
		"lookup":  {Every: true},
		"nothing": {},
		"one":     {Issuers: []string{"https://one"}},
		"several": {Issuers: []string{"https://two", "https://three"}},
		"prefix":  {Prefix: "p-"},
		"form":    {Form: form},
	}
	for token, want := range map[string]string{
		jwt("https://one"):          "one",
		jwt("https://two"):          "several",
		jwt("https://three"):        "several",
		jwt("https://four"):         "",
		jwt(""):                     "",
		jwt("https://one") + ".x.y": "one",
		"p-x":                       "prefix",
		"p-" + jwt("https://one"):   "one",
		"0123abcd":                  "form",
		"anything-else":             "rest",
		"anything else":             "malformed",
		"something":                 "rest",
		"abcdef.0123456789abcdef":   "",
		"a.b.c":                     "rest",
		"eyJhbGciOiJub25lIn0.e30.":  "",
	} {
		t.Run(token, func(t *testing.T) {
			sources := map[string]*fake{}
			var chain authn.Chain
			for name, match := range matches { // in random order
				sources[name] = &fake{}
				if name != "lookup" {
					sources[name].user = alice()
				}
				chain.Sources = append(chain.Sources,
					authn.Source{Rules: identityRules(t, name, "a"), Token: sources[name], Match: match})
			}
			resp, ok, err := authn.New(chain).AuthenticateRequest(bearing(t.Context(), token))
			got := ""
			if ok {
				got = resp.User.GetExtra()[tenant.SourceKey][0]
			}
			if want == "malformed" {
				if want = ""; !errors.Is(err, authn.ErrForm) {
					t.Errorf("%.20q: %v, want %v", token, err, authn.ErrForm)
				}
				err = nil
			}
			if got != want || err != nil {
				t.Errorf("%.20q was claimed by %q (%v), want %q", token, got, err, want)
			}
			for name, s := range sources {
				if shown := s.calls > 0; shown != (name == want || name == "lookup" && token != "anything else") {
					t.Errorf("%.20q was shown to %q: %v", token, name, shown)
				}
			}
		})
	}
}

// TestNoFallbackIfSourceAbstains checks that no other source receives a token if the source that
// matches the token abstains.
func TestNoFallbackIfSourceAbstains(t *testing.T) {
	chain := authn.New(authn.Chain{
		Sources: []authn.Source{{Rules: identityRules(t, "src", "a"), Token: &fake{}, Match: authn.Match{Rest: true}}},
		BuiltIn: identity(&user.DefaultInfo{Name: "somebody"}),
	})
	if resp, ok, err := chain.AuthenticateRequest(bearing(t.Context(), "x")); ok || err == nil {
		t.Errorf("AuthenticateRequest() = %v, %v, %v; want an error", resp, ok, err)
	}
}

// cached returns a chain with the source s, which caches its results, and the clock of the
// chain.
func cached(t testing.TB, s authn.Source) (authenticator.Request, *time.Time) {
	now := time.Unix(1_000_000, 0)
	tenants, err := tenant.ParseSet([]string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	s.Rules = authn.IdentityRules{Source: "src", Tenants: tenants}
	s.Match.Rest, s.Match.Issuers = true, []string{"i"}
	return authn.New(authn.Chain{
		Sources:   []authn.Source{s},
		Audiences: authenticator.Audiences{"one", "two"},
		Now:       func() time.Time { return now },
	}), &now
}

func TestCache(t *testing.T) {
	src := &fake{user: alice()}
	chain, now := cached(t, authn.Source{Token: src})
	ask := func(token string, audiences ...string) {
		t.Helper()
		ctx := t.Context()
		if audiences != nil {
			ctx = authenticator.WithAudiences(ctx, audiences)
		}
		if resp, ok, err := chain.AuthenticateRequest(bearing(ctx, token)); !ok || err != nil ||
			resp.User.GetName() != "alice" {
			t.Fatalf("AuthenticateRequest() = %+v, %v, %v", resp, ok, err)
		}
	}
	want := func(n int, why string) {
		t.Helper()
		if src.calls != n {
			t.Errorf("%s: the source was called %d times, want %d", why, src.calls, n)
		}
	}
	ask("x")
	ask("x")
	want(1, "the same token")
	ask("y")
	want(2, "another token")
	ask("x", "one")
	ask("x", "two")
	want(4, "other audiences")
	ask("x", "two")
	want(4, "the same audience")
	*now = now.Add(10 * time.Second)
	ask("x")
	want(5, "an expired result")
	short := jwt("i", map[string]any{"exp": now.Unix() + 3})
	ask(short)
	*now = now.Add(2 * time.Second)
	ask(short)
	want(6, "a token that expires soon")
	*now = now.Add(time.Second)
	ask(short)
	ask(short)
	want(8, "an expired token is not cached")
}

// TestCacheSeparatesAudiences checks that a token that was accepted for one audience is
// not accepted for another.
func TestCacheSeparatesAudiences(t *testing.T) {
	aware := authenticator.TokenFunc(func(ctx context.Context, _ string) (*authenticator.Response, bool, error) {
		asked, _ := authenticator.AudiencesFrom(ctx)
		both := asked.Intersect(authenticator.Audiences{"one"})
		if len(both) == 0 {
			return nil, false, errors.New("wrong audience")
		}
		return &authenticator.Response{User: alice(), Audiences: both}, true, nil
	})
	chain, _ := cached(t, authn.Source{Token: aware, AudienceAware: true})
	for range 2 {
		if _, ok, _ := chain.AuthenticateRequest(
			bearing(authenticator.WithAudiences(t.Context(), authenticator.Audiences{"one"}), "x"),
		); !ok {
			t.Error("refused for its own audience")
		}
		if _, ok, _ := chain.AuthenticateRequest(
			bearing(authenticator.WithAudiences(t.Context(), authenticator.Audiences{"two"}), "x"),
		); ok {
			t.Error("accepted for another audience")
		}
	}
}

func TestRejectionsAreNotCached(t *testing.T) {
	src := &fake{err: errors.New("down")}
	chain, _ := cached(t, authn.Source{Token: src})
	if _, ok, err := chain.AuthenticateRequest(bearing(t.Context(), "x")); ok || err == nil {
		t.Errorf("= %v, %v", ok, err)
	}
	src.user = alice()
	if _, ok, err := chain.AuthenticateRequest(bearing(t.Context(), "x")); !ok || err != nil {
		t.Errorf("after the source has recovered: %v, %v", ok, err)
	}
}

func TestUncachedSources(t *testing.T) {
	src := &fake{user: alice()}
	chain, _ := cached(t, authn.Source{Token: src, Uncached: true})
	for range 3 {
		_, _, _ = chain.AuthenticateRequest(bearing(t.Context(), "x"))
	}
	if src.calls != 3 {
		t.Errorf("called %d times, want 3", src.calls)
	}
}

// expiringUser is an identity that may become invalid before its token expires.
type expiringUser struct {
	user.Info
	end *error
}

func (m expiringUser) Revalidate(context.Context) error { return *m.end }

func TestCachedTokensAreRevalidated(t *testing.T) {
	var end error
	src := &fake{user: expiringUser{alice(), &end}}
	chain, _ := cached(t, authn.Source{Token: src})
	ask := func() bool {
		_, ok, err := chain.AuthenticateRequest(bearing(t.Context(), "x"))
		return ok && err == nil
	}
	for range 2 {
		if !ask() || src.calls != 1 {
			t.Errorf("a valid identity: called %d times", src.calls)
		}
	}
	end = errors.New("gone")
	if ask() {
		t.Error("an identity that failed revalidation was accepted")
	}
	end = nil
	if !ask() || src.calls != 2 {
		t.Errorf("after the failed revalidation, the source was not called again: called %d times", src.calls)
	}
}

// TestRevocation checks that revocations apply to all sources, and to cached results.
func TestRevocation(t *testing.T) {
	_, certificate := issue(t, signers(t)["Ed25519"])
	fingerprint := sha256.Sum256(certificate.Raw)
	token := jwt("i", map[string]any{"jti": "id", "sub": "s"})
	a := tenanttest.ID(t, "a")
	for name, rules := range map[string]authn.Revocations{
		"nothing":       {},
		"another token": {Tokens: map[string][]authn.TokenRule{"i": {{}, {ID: "other"}}, "j": {{ID: "id"}}}},
		"another user": {
			Users: map[authn.TenantUser]struct{}{{Tenant: tenant.System(), Name: "alice"}: {}, {Tenant: a, Name: "bob"}: {}},
		},
		"another account": {ServiceAccounts: map[string]struct{}{"": {}}},
		"token":           {Tokens: map[string][]authn.TokenRule{"i": {{ID: "other"}, {ID: "id"}}}},
		"subject":         {Tokens: map[string][]authn.TokenRule{"i": {{Subject: "s"}}}},
		"time":            {Tokens: map[string][]authn.TokenRule{"i": {{IssuedBefore: time.Unix(1, 0)}}}},
		"user":            {Users: map[authn.TenantUser]struct{}{{Tenant: a, Name: "alice"}: {}}},
		"tenant":          {Tenants: map[tenant.ID]struct{}{a: {}}},
		"certificate":     {Fingerprints: map[string]struct{}{hex.EncodeToString(fingerprint[:]): {}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, builtIn := range []bool{false, true} {
				current := &authn.Revocations{}
				c := authn.Chain{
					Revoked: func() *authn.Revocations { return current },
					Subject: func(context.Context, user.Info) (tenant.ID, error) { return a, nil },
				}
				if builtIn {
					c.BuiltIn = identity(&user.DefaultInfo{Name: "alice"})
				} else {
					c.Sources = []authn.Source{
						{Rules: identityRules(t, "src", "a"), Token: &fake{user: alice()}, Match: authn.Match{Issuers: []string{"i"}}},
					}
				}
				chain := authn.New(c)
				ask := func() error {
					req := bearing(t.Context(), token)
					req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
					_, ok, err := chain.AuthenticateRequest(req)
					if ok == (err != nil) {
						t.Fatalf("%v, %v", ok, err)
					}
					return err
				}
				if err := ask(); err != nil {
					t.Fatalf("before: %v", err)
				}
				current = &rules
				revoked := !strings.HasPrefix(name, "another") && name != "nothing"
				if err := ask(); revoked != errors.Is(err, authn.ErrRevoked) || !revoked && err != nil {
					t.Errorf("%s, built-in %v: %v", name, builtIn, err)
				}
			}
		})
	}
}

// upstreamLike returns an authenticator that reads tokens like upstream's authenticators. They
// read the issuer from the payload alone, and ignore white space in the token
// (jose.ParseSigned).
func upstreamLike() authenticator.Request {
	return bearertoken.New(
		authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			parts := strings.Split(token, ".")
			if len(parts) != 3 {
				return nil, false, nil
			}
			if _, err := base64.RawURLEncoding.DecodeString(parts[1]); err != nil {
				return nil, false, nil
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: "system:serviceaccount:ns:n"}}, true, nil
		}),
	)
}

// TestModifiedTokensDoNotReachBuiltIn checks modified tokens of one issuer. BuiltIn might accept
// them. They must not reach BuiltIn if a source has this issuer or if there are revocations.
// Tokens that are too long or contain white space must never reach it.
func TestModifiedTokensDoNotReachBuiltIn(t *testing.T) {
	token := jwt("https://one", map[string]any{"jti": "id"})
	header, rest, _ := strings.Cut(token, ".")
	spaced := base64.RawURLEncoding.EncodeToString([]byte("          {\"alg\":\"ES256\"}"))
	nested := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	encode := base64.RawURLEncoding.EncodeToString
	deep, behind := encode([]byte(`{"app":`+nested+`,"iss":"https://one","jti":"id"}`)),
		encode([]byte(`{"iss":"https://one","app":`+nested+`,"jti":"id"}`))
	variant := encode([]byte(`{"ISS":"https://one","jti":"id"}`))
	dressed := []string{
		"\t" + token, "\v" + token, "\u00a0" + token, header[:3] + "\t" + header[3:] + "." + rest, token + "\n",
		"\ufeff" + token,
		header + "." + deep + ".x", header + "." + variant + ".x", header + "." + behind + ".x", spaced + "." + rest,
		"." + rest, "x." + rest, header + "\r." + rest, strings.Repeat("x", 70<<10) + "." + rest,
	}
	for _, withSource := range []bool{false, true} {
		for _, revoking := range []bool{false, true} {
			c := authn.Chain{BuiltIn: upstreamLike()}
			if withSource {
				c.Sources = []authn.Source{
					{
						Rules: identityRules(t, "src", "a"),
						Token: &fake{err: errors.New("refused")},
						Match: authn.Match{Issuers: []string{"https://one"}},
					},
					{Rules: identityRules(t, "rest", "a"), Token: &fake{user: alice()}, Match: authn.Match{Rest: true}},
				}
			}
			if revoking {
				c.Revoked = func() *authn.Revocations {
					return &authn.Revocations{Tokens: map[string][]authn.TokenRule{"https://one": {{ID: "id"}}}}
				}
				c.Subject = func(context.Context, user.Info) (tenant.ID, error) { return tenant.ID{}, tenant.ErrUnbound }
			}
			for _, d := range dressed {
				resp, ok, err := authn.New(c).AuthenticateRequest(bearing(t.Context(), d))
				visible := strings.Trim(d, "\t\v") == d && !strings.ContainsAny(d, "\t\r\u00a0\ufeff") && len(d) < 64<<10
				if ok && (withSource || revoking || !visible) {
					t.Errorf("source %v, revoking %v: %.30q is %v, %v", withSource, revoking, d, resp.User, err)
				}
			}
		}
	}
}

// TestFailedTenantLookupRejectsWithRevocations checks that an identity is rejected if the lookup of
// its tenant fails, because it may be revoked.
func TestFailedTenantLookupRejectsWithRevocations(t *testing.T) {
	a := tenanttest.ID(t, "a")
	down := errors.New("timeout")
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"a failure": {down, down},
		"no tenant": {tenant.ErrUnbound, nil},
		"bad label": {fmt.Errorf("%w: x", tenant.ErrInvalid), nil},
	} {
		t.Run(name, func(t *testing.T) {
			chain := authn.New(authn.Chain{
				BuiltIn: identity(&user.DefaultInfo{Name: "u"}),
				Revoked: func() *authn.Revocations { return &authn.Revocations{Tenants: map[tenant.ID]struct{}{a: {}}} },
				Subject: func(context.Context, user.Info) (tenant.ID, error) { return tenant.ID{}, c.err },
			})
			if _, ok, err := chain.AuthenticateRequest(&http.Request{}); !errors.Is(err, c.want) || ok != (c.want == nil) {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
}

// BenchmarkCachedToken measures the authentication of a request with a cached token.
func BenchmarkCachedToken(b *testing.B) {
	chain, _ := cached(b, authn.Source{Token: &fake{user: alice()}})
	for _, size := range []int{300, 900} {
		token := jwt("i", map[string]any{"pad": strings.Repeat("x", size)})
		b.Run(fmt.Sprintf("bytes=%d", len(token)), func(b *testing.B) {
			header := http.Header{"Authorization": {"Bearer " + token}}
			req := (&http.Request{Header: header.Clone()}).WithContext(b.Context())
			b.ReportAllocs()
			for b.Loop() {
				req.Header["Authorization"] = header["Authorization"]
				if _, ok, err := chain.AuthenticateRequest(req); !ok || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAuditNamesRevokedCaller checks that the audit event names the caller, the credential and the
// revocation entry, even if the token is cached.
func TestAuditNamesRevokedCaller(t *testing.T) {
	u := &user.DefaultInfo{
		Name:  "alice",
		Extra: map[string][]string{tenant.ExtraKey: {"a"}, user.CredentialIDKey: {"JTI=id"}},
	}
	rules := &authn.Revocations{}
	chain := authn.New(authn.Chain{
		Sources: []authn.Source{
			{Rules: identityRules(t, "src", "a"), Token: &fake{user: u}, Match: authn.Match{Issuers: []string{"i"}}},
		},
		Revoked: func() *authn.Revocations { return rules },
	})
	token := jwt("i", map[string]any{"jti": "id"})
	if _, ok, err := chain.AuthenticateRequest(bearing(t.Context(), token)); !ok {
		t.Fatal(err)
	}
	a := tenanttest.ID(t, "a")
	for entry, r := range map[string]authn.Revocations{
		`tokens { issuer: "i", id: "id" }`:     {Tokens: map[string][]authn.TokenRule{"i": {{ID: "id"}}}},
		`users { tenant: "a", name: "alice" }`: {Users: map[authn.TenantUser]struct{}{{Tenant: a, Name: "alice"}: {}}},
		`tenants { name: "a" }`:                {Tenants: map[tenant.ID]struct{}{a: {}}},
		`tokens { issuer: "i", issuedBefore: 2099-01-01T00:00:00Z }`: {Tokens: map[string][]authn.TokenRule{
			"i": {{IssuedBefore: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}},
		}},
	} {
		t.Run(entry, func(t *testing.T) {
			rules = &r
			want := `revoked: user "alice" in tenant "a", by the entry ` + entry
			ctx := audit.WithAuditContext(t.Context())
			_, _, _ = chain.AuthenticateRequest(bearing(ctx, token))
			got := audit.AuditContextFrom(ctx).GetEventAnnotations()
			const prefix = "authentication.kubetenant.dev/"
			if got[prefix+"source"] != "src" || got[prefix+"refused"] != want || got[prefix+"credential-id"] != "JTI=id" {
				t.Errorf("annotations %v", got)
			}
		})
	}
}

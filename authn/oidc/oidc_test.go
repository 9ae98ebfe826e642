// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/oidc"
	"github.com/kubetenant/kubetenant/tenant"
)

var compiler = sync.OnceValue(func() authenticationcel.Compiler {
	return oidc.NewCompiler(authenticationcel.NewDefaultCompiler())
})

// config returns the configuration of an issuer. It maps the claims sub, groups and org.
func config(url, ca string) apiserver.JWTAuthenticator {
	prefix := ""
	return apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: url, Audiences: []string{"kubernetes"}, CertificateAuthority: ca},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix},
			Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &prefix},
			Extra:    []apiserver.ExtraMapping{{Key: tenant.ExtraKey, ValueExpression: `claims["org"]`}},
		},
	}
}

func claims(url string) map[string]any {
	return map[string]any{
		"iss":    url,
		"aud":    "kubernetes",
		"sub":    "alice",
		"org":    "acme",
		"groups": []string{"dev"},
		"exp":    time.Now().Add(time.Hour).Unix(),
		"iat":    time.Now().Unix(),
	}
}

func open(t testing.TB, keys ...*authntest.Key) (*authntest.Issuer, *oidc.Authenticator, *authntest.Clock) {
	t.Helper()
	issuer := authntest.NewIssuer(keys...)
	t.Cleanup(issuer.Close)
	c := &authntest.Clock{}
	a := oidc.New(t.Context(), oidc.Options{
		JWT:      config(issuer.URL(), issuer.CA()),
		Compiler: compiler(),
		Clients:  &oidc.Clients{},
		Now:      c.Now,
	})
	return issuer, a, c
}

func refusedWith(t *testing.T, a *oidc.Authenticator, token string, want error) {
	t.Helper()
	resp, ok, err := a.AuthenticateToken(t.Context(), token)
	if ok != (want == nil) || !errors.Is(err, want) {
		t.Errorf("AuthenticateToken() = %+v, %v, %v; want %v", resp, ok, err, want)
	}
}

func TestNothingIsFetchedBeforeTheFirstToken(t *testing.T) {
	key := authntest.MustKey("ES256")
	issuer, a, _ := open(t, key)
	if n := issuer.Fetches.Load(); n != 0 {
		t.Errorf("%d fetches", n)
	}
	for range 3 {
		refusedWith(t, a, key.MustSign(claims(issuer.URL())), nil)
	}
	if n := issuer.Fetches.Load(); n != 1 {
		t.Errorf("%d fetches for three tokens", n)
	}
}

func TestRotation(t *testing.T) {
	before, after, foreign := authntest.MustKey("ES256"), authntest.MustKey("RS256"), authntest.MustKey("ES256")
	issuer, a, clock := open(t, before)
	old, fresh := before.MustSign(claims(issuer.URL())), after.MustSign(claims(issuer.URL()))
	refusedWith(t, a, old, nil)
	refusedWith(t, a, fresh, oidc.ErrNoKey)
	issuer.Rotate(before, after)
	clock.Advance(5 * time.Second)
	refusedWith(t, a, fresh, nil) // this token causes a fetch
	issuer.Rotate(after)
	refusedWith(t, a, old, nil) // the withdrawn key is still cached
	clock.Advance(5 * time.Minute)
	refusedWith(t, a, old, oidc.ErrNoKey) // the withdrawn key is no longer valid
	refusedWith(t, a, fresh, nil)
	refusedWith(t, a, foreign.MustSign(claims(issuer.URL())), oidc.ErrNoKey)
}

// TestForgedTokenCausesOneFetch checks that a forged token causes only one fetch of keys.
func TestForgedTokenCausesOneFetch(t *testing.T) {
	issuer, a, _ := open(t, authntest.MustKey("ES256"))
	refusedWith(t, a, authntest.MustKey("ES256").MustSign(claims(issuer.URL())), oidc.ErrNoKey)
	if n := issuer.Fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

// TestUnknownKeysCauseFewFetches checks that tokens with unknown keys cause few fetches, because
// any client can send them.
func TestUnknownKeysCauseFewFetches(t *testing.T) {
	key, foreign := authntest.MustKey("ES256"), authntest.MustKey("ES256")
	issuer, a, _ := open(t, key)
	forged := foreign.MustSign(claims(issuer.URL()))
	began := time.Now()
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { _, _, _ = a.AuthenticateToken(context.Background(), forged) })
	}
	all.Wait()
	for range 20 {
		_, _, _ = a.AuthenticateToken(t.Context(), forged)
	}
	most := 2 + int64(time.Since(began)/(5*time.Second)) // one more every 5 seconds
	if n := issuer.Fetches.Load(); n > most {
		t.Errorf("220 forged tokens caused %d fetches, want no more than %d", n, most)
	}
	refusedWith(t, a, key.MustSign(claims(issuer.URL())), nil)
}

// TestKnownKeysDuringOutage checks that known keys are used for one hour during an outage, but not
// longer.
func TestKnownKeysDuringOutage(t *testing.T) {
	key := authntest.MustKey("ES256")
	issuer, a, clock := open(t, key)
	token := key.MustSign(claims(issuer.URL()))
	refusedWith(t, a, token, nil)
	issuer.Fail(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	clock.Advance(30 * time.Minute)
	refusedWith(t, a, token, nil)
	clock.Advance(31 * time.Minute)
	refusedWith(t, a, token, oidc.ErrKeys)
	issuer.Fail(nil)
	clock.Advance(5 * time.Second)
	refusedWith(t, a, token, nil)
}

func TestFaultyProviders(t *testing.T) {
	key := authntest.MustKey("ES256")
	json := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for name, fault := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		},
		"closes":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"garbage": json("<html>"),
		"nothing": json(""),
		"another issuer": json(`{"issuer":"https://other.example.com",` +
			`"jwks_uri":"https://other.example.com/keys"}`),
		"a gigabyte":               func(w http.ResponseWriter, _ *http.Request) { authntest.Flood(w, "") },
		"a gigabyte of one string": func(w http.ResponseWriter, _ *http.Request) { authntest.Flood(w, `{"issuer":"`) },
	} {
		t.Run(name, func(t *testing.T) {
			issuer, a, _ := open(t, key)
			issuer.Fail(fault)
			refusedWith(t, a, key.MustSign(claims(issuer.URL())), oidc.ErrKeys)
		})
	}
}

// TestCompilerSeparatesKinds checks that an expression that is valid for a mapping may be
// invalid for a rule. Results for the same expression text do not share their keys.
func TestCompilerSeparatesKinds(t *testing.T) {
	c := compiler()
	for range 2 {
		for key, e := range map[string]authenticationcel.ExpressionAccessor{
			"one": &authenticationcel.ExtraMappingExpression{Key: "one", Expression: "claims.x"},
			"two": &authenticationcel.ExtraMappingExpression{Key: "two", Expression: "claims.x"},
		} {
			t.Run(key, func(t *testing.T) {
				r, err := c.CompileClaimsExpression(e)
				if err != nil || r.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression).Key != key {
					t.Errorf("%+v, %v", r.ExpressionAccessor, err)
				}
			})
		}
		if _, err := c.CompileClaimsExpression(&authenticationcel.ClaimValidationCondition{
			Expression: "'text'",
		}); err == nil {
			t.Error("a rule that is not a boolean was compiled")
		}
		if _, err := c.CompileClaimsExpression(&authenticationcel.ClaimMappingExpression{Expression: "'text'"}); err != nil {
			t.Error(err)
		}
		if _, err := c.CompileClaimsExpression(&authenticationcel.ClaimMappingExpression{
			Expression: "claims.(",
		}); err == nil {
			t.Error("an invalid expression was compiled")
		}
	}
}

// TestKeySets checks which key sets can verify a token. Secret keys and encryption keys in a set
// are not used.
func TestKeySets(t *testing.T) {
	key := authntest.MustKey("ES256")
	for name, c := range map[string]struct {
		change func(jwks []any) []any
		want   error
	}{
		"one key":             {func(k []any) []any { return k }, nil},
		"an unknown key type": {func(k []any) []any { return append(k, map[string]any{"kty": "LWE", "kid": "x"}) }, nil},
		"a shared secret": {
			func([]any) []any { return []any{map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": key.ID}} }, oidc.ErrNoKey,
		},
		"a private key": {func(k []any) []any {
			k[0].(map[string]any)["d"] = "c2VjcmV0"
			return k
		}, oidc.ErrNoKey},
		"a key for encryption": {func(k []any) []any {
			k[0].(map[string]any)["use"] = "enc"
			return k
		}, oidc.ErrNoKey},
		"an empty set": {func([]any) []any { return []any{} }, oidc.ErrNoKey},
		"no set":       {func([]any) []any { return nil }, oidc.ErrKeys},
		"null entries": {func(k []any) []any { return append([]any{nil, "text", 1}, k...) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			issuer, a, _ := open(t, key)
			issuer.Fail(func(w http.ResponseWriter, r *http.Request) {
				document := map[string]any{"issuer": issuer.URL(), "jwks_uri": issuer.URL() + "/keys"}
				if r.URL.Path == "/keys" {
					document = map[string]any{"keys": c.change([]any{key.JWK()})}
				}
				_ = json.NewEncoder(w).Encode(document)
			})
			if _, _, err := a.AuthenticateToken(t.Context(), key.MustSign(claims(issuer.URL()))); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestDiscovery checks that the discovery document must name the issuer, and that the URL of the
// keys must be an https URL.
func TestDiscovery(t *testing.T) {
	key := authntest.MustKey("ES256")
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{key.JWK()}})
	}))
	defer plain.Close()
	for name, c := range map[string]struct {
		change func(document map[string]any)
		want   error
	}{
		"a valid document":        {func(map[string]any) {}, nil},
		"another issuer":          {func(d map[string]any) { d["issuer"] = "https://other.example.com" }, oidc.ErrKeys},
		"no issuer":               {func(d map[string]any) { delete(d, "issuer") }, oidc.ErrKeys},
		"keys over http":          {func(d map[string]any) { d["jwks_uri"] = plain.URL }, oidc.ErrKeys},
		"no keys":                 {func(d map[string]any) { delete(d, "jwks_uri") }, oidc.ErrKeys},
		"the issuer with a slash": {func(d map[string]any) { d["issuer"] = d["issuer"].(string) + "/" }, oidc.ErrKeys},
	} {
		t.Run(name, func(t *testing.T) {
			issuer, a, _ := open(t, key)
			issuer.Fail(func(w http.ResponseWriter, r *http.Request) {
				document := map[string]any{"issuer": issuer.URL(), "jwks_uri": issuer.URL() + "/keys"}
				c.change(document)
				if r.URL.Path == "/keys" {
					document = map[string]any{"keys": []any{key.JWK()}}
				}
				_ = json.NewEncoder(w).Encode(document)
			})
			if _, _, err := a.AuthenticateToken(t.Context(), key.MustSign(claims(issuer.URL()))); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestRedirects checks that only redirects to https are followed.
func TestRedirects(t *testing.T) {
	key := authntest.MustKey("ES256")
	issuer, a, _ := open(t, key)
	issuer.Fail(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
	})
	refusedWith(t, a, key.MustSign(claims(issuer.URL())), oidc.ErrKeys)
}

// TestHangingProvider checks that a request does not wait for a provider longer than its context
// allows.
func TestHangingProvider(t *testing.T) {
	key := authntest.MustKey("ES256")
	issuer, a, _ := open(t, key)
	issuer.Fail(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, ok, err := a.AuthenticateToken(ctx, key.MustSign(claims(issuer.URL())))
	if ok || !errors.Is(err, oidc.ErrKeys) {
		t.Errorf("AuthenticateToken() = %v, %v", ok, err)
	}
}

// TestErrorsContainNoClaims checks that errors contain no claims. The errors from upstream
// contain claims.
func TestErrorsContainNoClaims(t *testing.T) {
	const canary = "CANARY"
	key := authntest.MustKey("ES256")
	issuer, a, _ := open(t, key)
	for name, change := range map[string]func(map[string]any){
		"audience":  func(c map[string]any) { c["aud"] = canary },
		"expired":   func(c map[string]any) { c["exp"] = 1; c["jti"] = canary },
		"no expiry": func(c map[string]any) { c["exp"] = canary },
		"not yet":   func(c map[string]any) { c["nbf"] = 4102444800; c["jti"] = canary },
		"user name": func(c map[string]any) { c["sub"] = map[string]any{canary: canary} },
		"groups":    func(c map[string]any) { c["groups"] = map[string]any{canary: canary} },
		"tenant":    func(c map[string]any) { c["org"] = map[string]any{canary: canary} },
		"no tenant": func(c map[string]any) { delete(c, "org"); c["jti"] = canary },
		"names":     func(c map[string]any) { delete(c, "groups"); c["_claim_names"] = canary },
		"no source": func(c map[string]any) { c["_claim_names"] = map[string]any{canary: canary} },
		"sources": func(c map[string]any) {
			delete(c, "groups")
			c["_claim_names"] = map[string]any{"groups": canary}
			c["_claim_sources"] = map[string]any{canary: 1}
		},
		"a bad subject": func(c map[string]any) { c["sub"] = 1; c["jti"] = canary },
	} {
		t.Run(name, func(t *testing.T) {
			c := claims(issuer.URL())
			change(c)
			resp, ok, err := a.AuthenticateToken(t.Context(), key.MustSign(c))
			if ok || err == nil {
				t.Errorf("accepted: %+v", resp)
				return
			}
			if strings.Contains(err.Error(), canary) || strings.Contains(fmt.Sprintf("%+v", err), canary) {
				t.Errorf("the error contains a part of the token: %v", err)
			}
		})
	}
}

// FuzzToken checks signed tokens with any payload. An identity must have a name. Only signed tokens
// are accepted.
func FuzzToken(f *testing.F) {
	key := authntest.MustKey("ES256")
	issuer, a, _ := open(f, key)
	good, err := json.Marshal(claims(issuer.URL()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(strings.Replace(string(good), `"org":"acme"`, `"org":["acme"]`, 1)))
	f.Add([]byte(strings.Replace(string(good), `"acme"`, `""`, 1)))
	f.Add([]byte(`{"iss":"` + issuer.URL() + `"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		token, err := key.Sign(key.Header(), payload)
		if err != nil {
			t.Fatal(err)
		}
		resp, ok, err := a.AuthenticateToken(t.Context(), token)
		if ok == (err != nil) && (ok || err != nil) ||
			ok && resp.User.GetName() == "" && !strings.Contains(string(payload), `""`) {
			t.Fatalf("AuthenticateToken() = %+v, %v, %v", resp, ok, err)
		}
		if ok && !json.Valid(payload) {
			t.Fatal("accepted a payload that is not JSON")
		}
		if _, ok, _ := a.AuthenticateToken(t.Context(), string(payload)); ok {
			t.Fatal("accepted without a signature")
		}
	})
}

var _ authenticator.Token = (*oidc.Authenticator)(nil)

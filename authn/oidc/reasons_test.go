// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/oidc"
)

// canary is the value of a claim that no reason may contain.
const canary = "CANARY"

// configured returns an authenticator with a changed configuration.
func configured(
	t *testing.T, issuer *authntest.Issuer, change func(*apiserver.JWTAuthenticator),
) *oidc.Authenticator {
	t.Helper()
	jwt := config(issuer.URL(), issuer.CA())
	// A configuration that names a tenant claim is converted to an expression of this form.
	jwt.ClaimMappings.Extra[0].ValueExpression = `type(claims["org"]) == string ? claims["org"] : dyn({})`
	if change != nil {
		change(&jwt)
	}
	return oidc.New(t.Context(), oidc.Options{
		JWT:        jwt,
		TenantFrom: "org",
		Compiler:   compiler(),
		Clients:    &oidc.Clients{},
	})
}

func rule(r apiserver.ClaimValidationRule) func(*apiserver.JWTAuthenticator) {
	return func(jwt *apiserver.JWTAuthenticator) {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules,
			apiserver.ClaimValidationRule{Expression: `claims.iss != "x"`, Message: "the first rule"}, r)
	}
}

func mapped(change func(*apiserver.ClaimMappings)) func(*apiserver.JWTAuthenticator) {
	return func(jwt *apiserver.JWTAuthenticator) { change(&jwt.ClaimMappings) }
}

func set(name string, value any) func(map[string]any) {
	return func(c map[string]any) { c[name] = value }
}

func drop(name string) func(map[string]any) {
	return func(c map[string]any) { delete(c, name) }
}

// TestReasons checks that each reason contains words from the configuration, and no claims from
// the token.
func TestReasons(t *testing.T) {
	email := mapped(func(m *apiserver.ClaimMappings) { m.Username.Claim = "email" })
	uid := mapped(func(m *apiserver.ClaimMappings) { m.UID.Claim = "oid" })
	byName := mapped(func(m *apiserver.ClaimMappings) { m.Username.Claim = "name" })
	expressions := mapped(func(m *apiserver.ClaimMappings) {
		m.Username = apiserver.PrefixedClaimOrExpression{Expression: "claims.name"}
		m.Groups = apiserver.PrefixedClaimOrExpression{Expression: "claims.roles"}
		m.UID = apiserver.ClaimOrExpression{Expression: "claims.oid"}
		m.Extra = append(m.Extra, apiserver.ExtraMapping{Key: "example.com/team", ValueExpression: "claims.team"})
	})
	whole := func(change func(map[string]any)) func(map[string]any) {
		return func(c map[string]any) {
			c["name"], c["roles"], c["oid"], c["team"] = "n", "r", "o", "t"
			change(c)
		}
	}
	hd := rule(apiserver.ClaimValidationRule{Claim: "hd", RequiredValue: "example.com"})
	lifetime := rule(apiserver.ClaimValidationRule{
		Expression: "claims.exp - claims.nbf <= 3600", Message: "token lifetime too long",
	})
	noMessage := rule(apiserver.ClaimValidationRule{Expression: `claims.team == "red"`})
	user := func(jwt *apiserver.JWTAuthenticator) {
		jwt.UserValidationRules = []apiserver.UserValidationRule{
			{Expression: "true"},
			{Expression: `!user.username.startsWith("svc-")`, Message: "service users use another issuer"},
		}
	}
	for name, c := range map[string]struct {
		configure func(*apiserver.JWTAuthenticator)
		change    func(map[string]any)
		want      string
		is        error
	}{
		"a rule's message": {lifetime, set("nbf", 1), "claimValidationRules[1]: token lifetime too long", oidc.ErrRule},
		"a rule without a message": {
			noMessage, set("team", canary),
			`claimValidationRules[1]: the expression "claims.team == \"red\"" is false`, oidc.ErrRule,
		},
		"a rule that fails": {
			noMessage, drop("team"), `claimValidationRules[1]: the expression "claims.team == \"red\"" failed: no such key`,
			oidc.ErrRule,
		},
		"a rule about the user": {
			user, set("sub", "svc-"+canary), "userValidationRules[1]: service users use another issuer", oidc.ErrRule,
		},
		"a required claim that is missing": {hd, drop("hd"), "claimValidationRules[1]: hd is missing", oidc.ErrRule},
		"a required claim of another value": {
			hd, set("hd", canary), "claimValidationRules[1]: hd does not have the required value", oidc.ErrRule,
		},
		"a required claim of another type": {
			hd, set("hd", []string{canary}), "claimValidationRules[1]: hd is not a string", oidc.ErrRule,
		},
		"email is not verified": {
			email, func(c map[string]any) { c["email"], c["email_verified"] = canary, false },
			"email_verified is not true", oidc.ErrClaim,
		},
		"email_verified is a text": {
			email, func(c map[string]any) { c["email"], c["email_verified"] = canary, canary },
			"email_verified is not true: it is not a boolean", oidc.ErrClaim,
		},
		"no email":                {email, drop("email"), "email is missing", oidc.ErrUsername},
		"sub is a number":         {nil, set("sub", 7), "sub is not a string", oidc.ErrClaim},
		"sub is a list":           {nil, set("sub", []string{canary}), "sub is not a string", oidc.ErrClaim},
		"sub is missing":          {nil, drop("sub"), "sub is missing", oidc.ErrUsername},
		"a user name is a number": {byName, set("name", 7), "name is not a string", oidc.ErrUsername},
		"no uid":                  {uid, drop("oid"), "oid is missing", oidc.ErrClaim},
		"a uid is a number":       {uid, set("oid", 7), "oid is not a string", oidc.ErrClaim},
		"groups are an object": {
			nil, set("groups", map[string]any{canary: 1}), "groups is not a string or a list", oidc.ErrGroups,
		},
		"no exp":           {nil, drop("exp"), "exp is missing", oidc.ErrClaim},
		"exp is null":      {nil, set("exp", nil), "exp is missing", oidc.ErrClaim},
		"iat is null":      {nil, set("iat", nil), "iat is missing", oidc.ErrClaim},
		"exp is an object": {nil, set("exp", map[string]any{canary: 1}), "exp is not a number", oidc.ErrClaim},
		"exp is zero":      {nil, set("exp", 0), "token expired", oidc.ErrExpired},
		"nbf is a list":    {nil, set("nbf", []string{canary}), "nbf is not a number", oidc.ErrClaim},
		"iat is a text":    {nil, set("iat", canary), "iat is not a number", oidc.ErrClaim},
		"aud is an object": {
			nil, set("aud", map[string]any{canary: 1}), "aud is not a string or a list", oidc.ErrClaim,
		},
		"nonce is a number":   {nil, set("nonce", 7), "nonce is not a string", oidc.ErrClaim},
		"at_hash is a number": {nil, set("at_hash", 7), "at_hash is not a string", oidc.ErrClaim},
		"no tenant":           {nil, drop("org"), "exactly one tenant: org is missing", oidc.ErrTenant},
		"the tenant is a list": {
			nil, set("org", []string{canary}), "exactly one tenant: org is not a string", oidc.ErrTenant,
		},
		"an expression on a missing claim": {
			expressions, whole(drop("name")),
			`claimMappings.username: the expression "claims.name" failed: no such key`, oidc.ErrMapping,
		},
		"an expression on a number": {
			expressions, whole(set("name", 7)),
			`claimMappings.username: the expression "claims.name" gives a value of another type`, oidc.ErrMapping,
		},
		"an expression with an empty result": {
			expressions, whole(set("name", "")), "claimMappings.username.expression gives an empty string",
			oidc.ErrUsername,
		},
		"groups of numbers": {
			expressions, whole(set("roles", []any{canary, 7})),
			`claimMappings.groups: the expression "claims.roles" gives a value of another type`, oidc.ErrMapping,
		},
		"a uid expression on a missing claim": {
			expressions, whole(drop("oid")), `claimMappings.uid: the expression "claims.oid" failed: no such key`,
			oidc.ErrMapping,
		},
		"an extra expression on a number": {
			expressions, whole(set("team", 7)),
			`claimMappings.extra[1]: the expression "claims.team" gives a value of another type`, oidc.ErrMapping,
		},
		"an extra expression on a missing claim": {
			expressions, whole(drop("team")),
			`claimMappings.extra[1]: the expression "claims.team" failed: no such key`, oidc.ErrMapping,
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := authntest.MustKey("ES256")
			issuer := authntest.NewIssuer(key)
			defer issuer.Close()
			a := configured(t, issuer, c.configure)
			token := claims(issuer.URL())
			token["jti"] = canary
			c.change(token)
			_, ok, err := a.AuthenticateToken(t.Context(), key.MustSign(token))
			if ok || err == nil {
				t.Fatal("accepted")
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %v: %s", err, c.is, c.want)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the reason repeats a claim: %v", err)
			}
		})
	}
}

// TestReasonsOfProviders checks that the reason for an invalid discovery document names the
// document and its issuer.
func TestReasonsOfProviders(t *testing.T) {
	key := authntest.MustKey("ES256")
	for name, c := range map[string]struct {
		document any
		want     string
	}{
		"another issuer": {
			map[string]any{"issuer": "https://other.example.com"},
			`/.well-known/openid-configuration names the issuer "https://other.example.com"`,
		},
		"a long issuer": {map[string]any{"issuer": strings.Repeat("x", 1000)}, `xxx..."`},
		"no issuer":     {map[string]any{}, `names the issuer ""`},
		"no https":      {map[string]any{"jwks_uri": "http://x"}, "jwks_uri in the document at https://"},
		"no document":   {"text", "/.well-known/openid-configuration cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			issuer, a, _ := open(t, key)
			issuer.Fail(func(w http.ResponseWriter, _ *http.Request) {
				if d, is := c.document.(map[string]any); is && d["jwks_uri"] != nil {
					d["issuer"] = issuer.URL()
				}
				_ = json.NewEncoder(w).Encode(c.document)
			})
			_, _, err := a.AuthenticateToken(t.Context(), key.MustSign(claims(issuer.URL())))
			if !errors.Is(err, oidc.ErrKeys) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
				t.Errorf("%v; want %s", err, c.want)
			}
		})
	}
}

// TestDistributedClaims checks that a token with distributed claims is accepted without them, as in
// upstream. It is rejected only if upstream would contact a server. No server is contacted.
func TestDistributedClaims(t *testing.T) {
	asked := atomic.Bool{}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	defer elsewhere.Close()
	noGroups := mapped(func(m *apiserver.ClaimMappings) { m.Groups = apiserver.PrefixedClaimOrExpression{} })
	byExpression := mapped(func(m *apiserver.ClaimMappings) {
		m.Groups = apiserver.PrefixedClaimOrExpression{Expression: `has(claims.groups) ? claims.groups : []`}
	})
	names := func(value any) map[string]any {
		return map[string]any{"_claim_names": value, "_claim_sources": map[string]any{
			"s": map[string]any{"endpoint": elsewhere.URL, "access_token": canary},
		}}
	}
	groups := names(map[string]any{"groups": "s"})
	for name, c := range map[string]struct {
		configure func(*apiserver.JWTAuthenticator)
		claims    map[string]any
		groups    bool // the token contains the groups
		want      error
	}{
		"mapped groups":            {nil, groups, false, oidc.ErrDistributed},
		"the token has groups":     {nil, groups, true, nil},
		"no groups are mapped":     {noGroups, groups, false, nil},
		"groups by an expression":  {byExpression, groups, false, nil},
		"another claim":            {nil, names(map[string]any{"roles": "s"}), false, nil},
		"another claim and groups": {nil, names(map[string]any{"roles": "s"}), true, nil},
		"no names":                 {nil, names(map[string]any{}), false, nil},
		"no names and no sources":  {nil, map[string]any{"_claim_names": map[string]any{}}, false, nil},
		"null":                     {nil, names(nil), false, nil},
		"sources alone":            {nil, map[string]any{"_claim_sources": groups["_claim_sources"]}, false, nil},
		"names in another case": {
			nil, map[string]any{"_CLAIM_NAMES": map[string]any{"groups": "s"}}, false, oidc.ErrClaim,
		},
		"names that are a string":      {nil, names(canary), false, oidc.ErrClaim},
		"a source that does not exist": {nil, names(map[string]any{"groups": canary}), false, oidc.ErrClaim},
		"an empty source":              {nil, names(map[string]any{"groups": ""}), false, oidc.ErrClaim},
		"a source that is a number": {
			nil,
			map[string]any{"_claim_names": map[string]any{"groups": "s"}, "_claim_sources": map[string]any{"s": 1}},
			false, oidc.ErrClaim,
		},
		"an aggregated claim": {
			nil, map[string]any{
				"_claim_names":   map[string]any{"groups": "s"},
				"_claim_sources": map[string]any{"s": map[string]any{"JWT": "a.b.c"}},
			}, false, nil,
		},
		"an endpoint that is not a URL": {
			nil, map[string]any{
				"_claim_names":   map[string]any{"groups": "s"},
				"_claim_sources": map[string]any{"s": map[string]any{"endpoint": "%" + canary}},
			}, false, oidc.ErrDistributed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := authntest.MustKey("ES256")
			issuer := authntest.NewIssuer(key)
			defer issuer.Close()
			a := configured(t, issuer, c.configure)
			token := claims(issuer.URL())
			if !c.groups {
				delete(token, "groups")
			}
			for claim, value := range c.claims {
				token[claim] = value
			}
			resp, ok, err := a.AuthenticateToken(t.Context(), key.MustSign(token))
			if ok != (c.want == nil) || !errors.Is(err, c.want) {
				t.Fatalf("%t, %v; want %v", ok, err, c.want)
			}
			if ok && (len(resp.User.GetGroups()) > 0) != c.groups {
				t.Errorf("groups %v", resp.User.GetGroups())
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the reason repeats a claim: %v", err)
			}
		})
	}
	if asked.Load() {
		t.Error("a server that the token names was called")
	}
	if text := oidc.ErrDistributed.Error(); !strings.Contains(text, "groups overage") {
		t.Error(text)
	}
}

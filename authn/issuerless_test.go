// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/keystone"
)

// TestTokensWithoutAnIssuer checks that a JSON Web Token without an issuer goes to the source
// that matches its prefix or its form. It never goes to the source with Rest. A token with an
// issuer never goes to a source that matches a prefix or a form.
func TestTokensWithoutAnIssuer(t *testing.T) {
	header, claims := testKey.Header(), map[string]any{"sub": "u", "openstack_methods": []string{"password"}}
	with := func(name string, value any) string {
		all := map[string]any{name: value}
		for k, v := range claims {
			all[k] = v
		}
		return testKey.MustSign(all)
	}
	none := testKey.MustSign(claims)
	encoded, _, _ := strings.Cut(none, ".")
	unsigned, err := authntest.Unsigned(header, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		token string
		match authn.Match
		want  bool
	}{
		"the prefix of its header": {none, authn.Match{Prefix: "eyJ"}, true},
		"its whole header":         {none, authn.Match{Prefix: encoded + "."}, true},
		"another prefix":           {none, authn.Match{Prefix: "partner-"}, false},
		"a prefix before it":       {"partner-" + none, authn.Match{Prefix: "partner-"}, true},
		"its form":                 {none, authn.Match{Form: keystone.LooksLike}, true},
		"another form":             {unsigned, authn.Match{Form: keystone.LooksLike}, false},
		"the rest":                 {none, authn.Match{Rest: true}, false},
		"an empty issuer":          {none, authn.Match{Issuers: []string{""}}, false},
		"five parts":               {none + ".x.y", authn.Match{Prefix: "eyJ"}, false},

		"an issuer, the prefix":            {with("iss", "https://one"), authn.Match{Prefix: "eyJ"}, false},
		"an issuer, a prefix before it":    {"partner-" + with("iss", "https://one"), authn.Match{Prefix: "partner-"}, false},
		"an issuer, the form":              {with("iss", "https://one"), authn.Match{Form: keystone.LooksLike}, false},
		"an issuer that is empty":          {with("iss", ""), authn.Match{Prefix: "eyJ"}, false},
		"an issuer that is null":           {with("iss", nil), authn.Match{Prefix: "eyJ"}, false},
		"an issuer that is a number":       {with("iss", 7), authn.Match{Prefix: "eyJ"}, false},
		"an issuer in another case":        {with("ISS", "https://one"), authn.Match{Prefix: "eyJ"}, false},
		"an issuer that is null, the form": {with("iss", nil), authn.Match{Form: keystone.LooksLike}, false},
	} {
		t.Run(name, func(t *testing.T) {
			src := &fake{user: alice()}
			chain := authn.New(authn.Chain{
				Sources: []authn.Source{{Rules: identityRules(t, "src", "a"), Token: src, Match: c.match}},
			})
			_, ok, err := chain.AuthenticateRequest(bearing(t.Context(), c.token))
			if ok != c.want || (src.calls > 0) != c.want {
				t.Errorf("accepted %t, called %d times, %v; want %t", ok, src.calls, err, c.want)
			}
		})
	}
}

// TestUnclaimedTokensAreLogged checks that unclaimed tokens without an issuer are logged at a
// limited rate. The log does not contain the token.
func TestUnclaimedTokensAreLogged(t *testing.T) {
	log, end, err := authntest.CaptureLog(0)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	now := time.Unix(1_000_000, 0)
	chain := authn.New(authn.Chain{
		Sources: []authn.Source{{Rules: identityRules(t, "src", "a"), Token: &fake{}, Match: authn.Match{Rest: true}}},
		Now:     func() time.Time { return now },
	})
	const text = "a JSON Web Token without an issuer"
	for _, c := range []struct {
		name, token string
		lines       int
	}{
		{"an issuer", jwt("https://other", map[string]any{"sub": "CANARY"}), 0},
		{"no issuer", testKey.MustSign(map[string]any{"sub": "CANARY"}), 1},
		{"no issuer, at the same time", testKey.MustSign(map[string]any{"sub": "CANARY", "jti": "2"}), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, ok, err := chain.AuthenticateRequest(bearing(t.Context(), c.token)); ok || err != nil {
				t.Errorf("%t, %v", ok, err)
			}
			if n := strings.Count(log.String(), text); n != c.lines {
				t.Errorf("%d lines, want %d: %s", n, c.lines, log)
			}
		})
	}
	now = now.Add(5 * time.Second)
	_, _, _ = chain.AuthenticateRequest(bearing(t.Context(), testKey.MustSign(map[string]any{})))
	if n := strings.Count(log.String(), text); n != 2 || strings.Contains(log.String(), "CANARY") {
		t.Errorf("%d lines after 5 s: %s", n, log)
	}
}

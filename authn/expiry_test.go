// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/internal/validity"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestExpiry checks that the chain stores the expiry of accepted credentials, including cached
// credentials. It stores no expiry for rejected credentials and for credentials without an
// expiry.
func TestExpiry(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	ending := validity.With(alice(), time.Time{}, end)
	certificate := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: ending}, true, nil
	})
	one := authn.Match{Issuers: []string{"https://one"}}
	for what, c := range map[string]struct {
		source authn.Source
		token  string
		want   time.Time
	}{
		"a certificate": {authn.Source{Request: certificate}, "", end},
		"a password":    {authn.Source{Request: identity(alice())}, "", time.Time{}},
		"a JSON Web Token": {
			authn.Source{Token: &fake{user: alice()}, Match: one}, jwt("https://one", map[string]any{"exp": end.Unix()}), end,
		},
		"a JWT without exp": {authn.Source{Token: &fake{user: alice()}, Match: one}, jwt("https://one"), time.Time{}},
		"an opaque token":   {authn.Source{Token: &fake{user: ending}, Match: authn.Match{Rest: true}}, "opaque", end},
		"a token from a file": {
			authn.Source{Token: &fake{user: alice()}, Match: authn.Match{Every: true}}, "line", time.Time{},
		},
		"an unclaimed token": {
			authn.Source{Token: &fake{user: alice()}, Match: one},
			jwt("https://two", map[string]any{"exp": end.Unix()}),
			time.Time{},
		},
	} {
		t.Run(what, func(t *testing.T) {
			c.source.Rules = identityRules(t, "src", "a")
			chain := authn.New(authn.Chain{Sources: []authn.Source{c.source}})
			for _, remembered := range []bool{false, true} {
				var e authn.Expiry
				req := bearing(authn.WithExpiry(t.Context(), &e), c.token)
				if c.token == "" {
					req.Header.Del("Authorization")
				}
				_, _, _ = chain.AuthenticateRequest(req)
				if !e.At.Equal(c.want) {
					t.Errorf("%s, cached %t: %v, want %v", what, remembered, e.At, c.want)
				}
			}
			refusing := authn.New(authn.Chain{
				Sources: []authn.Source{c.source},
				Accepts: func(context.Context, tenant.ID, time.Time) bool { return false },
			})
			var e authn.Expiry
			if _, ok, _ := refusing.AuthenticateRequest(bearing(authn.WithExpiry(t.Context(), &e), c.token)); ok ||
				!e.At.IsZero() {
				t.Errorf("%s, refused: %t, %v", what, ok, e.At)
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc_test

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	upstream "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/oidc"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// chain returns an authenticator that selects the source, verifies the token and validates the
// identity, but does not cache.
func chain(b *testing.B, sources ...*oidc.Authenticator) authenticator.Request {
	tenants, err := tenant.ParseSet([]string{tenant.AnyName})
	if err != nil {
		b.Fatal(err)
	}
	c := authn.Chain{}
	for i, s := range sources {
		c.Sources = append(c.Sources, authn.Source{
			Token:    s,
			Match:    authn.Match{Issuers: s.Issuers()},
			Uncached: true,
			Rules:    authn.IdentityRules{Source: fmt.Sprint("s", i), Tenants: tenants, Remote: true},
		})
	}
	return authn.New(c)
}

// BenchmarkToken measures the verification of an uncached token by upstream's authenticator and
// by our chain. Both map the same extra key.
func BenchmarkToken(b *testing.B) {
	for _, algorithm := range []string{"ES256", "RS256"} {
		key := authntest.MustKey(algorithm)
		issuer := authntest.NewIssuer(key)
		defer issuer.Close()
		clients := &oidc.Clients{}
		jwt := config(issuer.URL(), issuer.CA())
		own := chain(b, oidc.New(b.Context(), oidc.Options{JWT: jwt, Compiler: compiler(), Clients: clients}))
		theirs, err := upstream.New(b.Context(), upstream.Options{
			JWTAuthenticator:     jwt,
			Compiler:             compiler(),
			CAContentProvider:    bundle(issuer.CA()),
			SupportedSigningAlgs: upstream.AllValidSigningAlgorithms(),
		})
		if err != nil {
			b.Fatal(err)
		}
		waittest.Until(b, theirs.HealthCheck)
		token := key.MustSign(claims(issuer.URL()))
		for name, r := range map[string]authenticator.Request{"upstream": bearertoken.New(theirs), "kubetenant": own} {
			b.Run(algorithm+"/"+name, func(b *testing.B) { verify(b, r, token) })
		}
	}
}

type bundle string

func (b bundle) CurrentCABundleContent() []byte { return []byte(b) }

// verify authenticates requests with the tokens repeatedly.
func verify(b *testing.B, r authenticator.Request, tokens ...string) {
	headers := make([][]string, len(tokens))
	for i, token := range tokens {
		headers[i] = []string{"Bearer " + token}
	}
	req := (&http.Request{Header: http.Header{}}).WithContext(b.Context())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req.Header["Authorization"] = headers[i%len(headers)]
		if _, ok, err := r.AuthenticateRequest(req); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIssuers measures the verification of tokens with one configured issuer, and with ten
// thousand issuers.
func BenchmarkIssuers(b *testing.B) {
	key := authntest.MustKey("ES256")
	issuer := authntest.NewIssuer(key)
	defer issuer.Close()
	for _, n := range []int{1, 10_000} {
		clients := &oidc.Clients{}
		sources := make([]*oidc.Authenticator, n)
		for i := range sources {
			url := fmt.Sprintf("%s/tenants/%d", issuer.URL(), i)
			sources[i] = oidc.New(b.Context(),
				oidc.Options{JWT: config(url, issuer.CA()), Compiler: compiler(), Clients: clients})
		}
		r := chain(b, sources...)
		tokens := make([]string, 1000)
		for i := range tokens {
			tokens[i] = key.MustSign(claims(fmt.Sprintf("%s/tenants/%d", issuer.URL(), i*10%n)))
			req := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + tokens[i]}}}).WithContext(b.Context())
			if _, ok, err := r.AuthenticateRequest(req); !ok || err != nil { // the keys are now known
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("issuers=%d", n), func(b *testing.B) { verify(b, r, tokens...) })
	}
}

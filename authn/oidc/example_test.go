// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/oidc"
	"github.com/kubetenant/kubetenant/tenant"
)

// An issuer is configured with kube-apiserver's own type. An additional mapping determines the
// tenant.
func ExampleNew() {
	key := authntest.MustKey("ES256")
	issuer := authntest.NewIssuer(key) // an OpenID provider on the loopback address
	defer issuer.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	prefix := "oidc:"
	people := oidc.New(ctx, oidc.Options{
		JWT: apiserver.JWTAuthenticator{
			Issuer: apiserver.Issuer{URL: issuer.URL(), Audiences: []string{"kubernetes"}, CertificateAuthority: issuer.CA()},
			ClaimMappings: apiserver.ClaimMappings{
				Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix},
				Extra:    []apiserver.ExtraMapping{{Key: tenant.ExtraKey, ValueExpression: "claims.org"}},
			},
		},
		Compiler: oidc.NewCompiler(authenticationcel.NewDefaultCompiler()),
		Clients:  &oidc.Clients{},
	})
	token := key.MustSign(map[string]any{
		"iss": issuer.URL(),
		"aud": "kubernetes",
		"sub": "alice",
		"org": "acme",
		"exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(),
	})
	response, ok, err := people.AuthenticateToken(ctx, token)
	if !ok || err != nil {
		fmt.Println(ok, err)
		return
	}
	fmt.Println(response.User.GetName(), response.User.GetExtra()[tenant.ExtraKey])
	// Output:
	// oidc:alice [acme]
}

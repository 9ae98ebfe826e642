// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/tenant"
)

// greetings returns a custom source. The token hello-<name> authenticates the user <name> of
// tenant id.
func greetings(id tenant.ID) authenticator.Token {
	return authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		name, is := strings.CutPrefix(token, "hello-")
		if !is {
			return nil, false, nil // another source may accept the token
		}
		return &authenticator.Response{User: tenant.Bind(&user.DefaultInfo{Name: name, Groups: []string{"greeters"}}, id)},
			true, nil
	})
}

func with(token string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
}

// A custom source is an authenticator that binds its users to a tenant. The chain validates its
// identities. The source may assert only the listed tenants, and may not use reserved names.
func ExampleSource() {
	acme, _ := tenant.Parse("acme")
	minted, _ := tenant.ParseSet([]string{"acme"})
	source := authn.Source{
		Token: greetings(acme),
		Match: authn.Match{Prefix: "hello-"},
		Rules: authn.IdentityRules{
			Source:         "greetings",
			Tenants:        minted,
			Remote:         true,
			UsernamePrefix: "greeting:",
		},
	}
	chain := authn.New(authn.Chain{Sources: []authn.Source{source}})

	response, ok, err := chain.AuthenticateRequest(with("hello-alice"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ok, response.User.GetName(), response.User.GetGroups())
	fmt.Println(response.User.GetExtra()[tenant.ExtraKey], response.User.GetExtra()[tenant.SourceKey])
	// Output:
	// true greeting:alice [greeters tenant:acme system:authenticated]
	// [acme] [greetings]
}

// New calls sources in order. If a source rejects a credential, the request fails. If a source
// abstains, the next source receives the credential.
func ExampleNew() {
	acme, _ := tenant.Parse("acme")
	anyTenant, _ := tenant.ParseSet([]string{tenant.AnyName})
	onlyGlobex, _ := tenant.ParseSet([]string{"globex"})
	for _, minted := range []tenant.Set{anyTenant, onlyGlobex} {
		chain := authn.New(authn.Chain{
			Sources: []authn.Source{
				{
					Token: greetings(acme),
					Match: authn.Match{Prefix: "hello-"},
					Rules: authn.IdentityRules{Source: "greetings", Tenants: minted},
				},
			},
		})
		for _, token := range []string{"hello-alice", "hello-system:admin", "goodbye"} {
			_, ok, err := chain.AuthenticateRequest(with(token))
			fmt.Println(token, ok, err)
		}
	}
	// Output:
	// hello-alice true <nil>
	// hello-system:admin false source "greetings": reserved user name
	// goodbye false <nil>
	// hello-alice false source "greetings": the source may not assert this tenant
	// hello-system:admin false source "greetings": the source may not assert this tenant
	// goodbye false <nil>
}

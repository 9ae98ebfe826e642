// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tokenfile_test

import (
	"context"
	"fmt"

	"github.com/kubetenant/kubetenant/authn/tokenfile"
	"github.com/kubetenant/kubetenant/tenant"
)

// A record may end with ",,tenant", like "a-secret-of-alice,alice,1,dev,,acme".
func ExampleOpen() {
	tokens, err := tokenfile.Open(context.Background(), "testdata/tokens.csv", tokenfile.Options{
		Check: func(string, []string, tenant.ID) error { return nil },
	}) // in a server, Check is the identity validation of package authn
	if err != nil {
		fmt.Println(err)
		return
	}
	response, ok, err := tokens.AuthenticateToken(context.Background(), "a-secret-of-alice")
	fmt.Println(response.User.GetName(), response.User.GetExtra()[tenant.ExtraKey], ok, err)
	_, ok, err = tokens.AuthenticateToken(context.Background(), "a-guess")
	fmt.Println(ok, err)
	// Output:
	// alice [acme] true <nil>
	// false <nil>
}

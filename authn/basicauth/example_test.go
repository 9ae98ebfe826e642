// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package basicauth_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/tenant"
)

// A record may end with ",,tenant", like "a-secret-of-alice,alice,1,dev,,acme". The password may be
// a bcrypt hash.
func ExampleOpen() {
	passwords, err := basicauth.Open(context.Background(), "testdata/passwords.csv",
		basicauth.Options{Check: func(string, []string, tenant.ID) error { return nil }})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, _ := http.NewRequest(http.MethodGet, "https://kubernetes.default.svc/api", http.NoBody)
	request.SetBasicAuth("alice", "a-secret-of-alice")
	response, ok, err := passwords.AuthenticateRequest(request)
	fmt.Println(response.User.GetName(), response.User.GetExtra()[tenant.ExtraKey], ok, err)
	// Output:
	// alice [acme] true <nil>
}

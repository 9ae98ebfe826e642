// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package abac_test

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/tenant"
)

// A policy line allows callers of one tenant to reach objects of another. Here alice of acme may
// read pods of globex.
func ExamplePolicy_Allows() {
	policy, err := abac.Parse([]byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":` +
		`{"user":"alice","tenant":"acme","space":"globex","resource":"pods","namespace":"*","readonly":true}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	acme, _ := tenant.Parse("acme")
	globex, _ := tenant.Parse("globex")
	for _, verb := range []string{"get", "delete"} {
		fmt.Println(verb, policy.Allows(acme, authz.ObjectOwner{ID: globex}, authorizer.AttributesRecord{
			User:            &user.DefaultInfo{Name: "alice"},
			Verb:            verb,
			Resource:        "pods",
			Namespace:       "globex--shop",
			ResourceRequest: true,
		}))
	}
	// Output:
	// get true
	// delete false
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// An authenticator calls Bind for an identity whose tenant it has determined.
func ExampleBind() {
	acme, _ := tenant.Parse("acme")
	bound := tenant.Bind(&user.DefaultInfo{Name: "alice", Groups: []string{"dev"}}, acme)
	fmt.Println(bound.Name, bound.Groups, bound.Extra)
	// Output:
	// alice [dev] map[kubetenant.dev/tenant:[acme]]
}

func ExampleServiceAccountNamespace() {
	namespace, ok := tenant.ServiceAccountNamespace("system:serviceaccount:acme--web:robot")
	fmt.Println(namespace, ok)
	_, ok = tenant.ServiceAccountNamespace("alice")
	fmt.Println(ok)
	// Output:
	// acme--web true
	// false
}

// ParseIdentity parses the annotation of an object, for a controller that acts for this identity.
func ExampleParseIdentity() {
	identity, err := tenant.ParseIdentity(`{"user":"alice","tenant":"acme","groups":["dev"]}`)
	fmt.Println(identity.User, identity.Tenant, identity.Groups, err)
	// Output:
	// alice acme [dev] <nil>
}

func ExampleParseSet() {
	set, err := tenant.ParseSet([]string{"acme", "globex"})
	acme, _ := tenant.Parse("acme")
	initech, _ := tenant.Parse("initech")
	fmt.Println(set.Has(acme), set.Has(initech), err)
	// Output:
	// true false <nil>
}

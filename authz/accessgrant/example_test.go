// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
)

// A grant lets callers of one tenant make one kind of request in a namespace of another tenant. The
// grant ends when it expires or its owner deletes it.
func ExampleGrants() {
	acme, _ := tenant.Parse("acme")
	globex, _ := tenant.Parse("globex")
	indexed := &accessgrant.Grant{
		Namespace: "globex--shop",
		Name:      "orders",
		Owner:     globex,
		Tenant:    acme,
		Users:     []string{"alice"},
		Rules:     []accessgrant.Rule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}},
	}
	index := accessgrant.NewIndex()
	index.Set(indexed)
	stored := indexed // the stored grant, which package cluster/accessgrant reads from the server
	grants := &accessgrant.Grants{
		Index: index,
		Now:   time.Now,
		Live:  func(context.Context, tenant.ID, string, string) (*accessgrant.Grant, error) { return stored, nil },
	}
	alice := &user.DefaultInfo{Name: "alice"}
	request := &authz.CrossTenantRequest{
		Caller: acme,
		User:   alice,
		Owner:  authz.ObjectOwner{ID: globex},
		Attributes: &authorizer.AttributesRecord{
			User:            alice,
			Verb:            "get",
			APIVersion:      "v1",
			Resource:        "configmaps",
			Namespace:       "globex--shop",
			Name:            "orders",
			ResourceRequest: true,
		},
	}
	allowed, _ := grants.Allows(context.Background(), request)
	fmt.Println(allowed)
	stored = nil // deleted, but the index is not updated yet
	allowed, _ = grants.Allows(context.Background(), request)
	fmt.Println(allowed)
	// Output:
	// true
	// false
}

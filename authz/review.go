// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A review is about a request that nobody made: its attributes are what a client says. kubectl auth
// can-i says the namespace of its context whatever it asks about, and asks for one object of no
// name where it means any.

// asRequested changes the attributes of a review to those that the request itself would have: what
// is in no namespace is asked for in none. A request on its way has such attributes only where
// nothing is served (its path is another's), so in the webhook shape, where reviews cannot be told
// from requests, it changes no request.
func (b *Boundary) asRequested(attrs *requestAttributes) {
	switch {
	case !attrs.isResource || attrs.namespace == "":
		return
	case isVirtualSubject(attrs):
	case attrs.resource == namespaces && attrs.name != attrs.namespace:
		if attrs.name == "" && attrs.verb != "create" && !isCollection(attrs.verb) {
			return
		}
		attrs.moveTo(attrs.name) // a Namespace is in itself
		return
	case attrs.resource != namespaces && b.scopeOf(attrs) == ScopeCluster:
	default:
		return
	}
	attrs.moveTo("")
}

// isVirtualSubject reports whether attrs ask for somebody to impersonate who is in no namespace,
// which only impersonation knows as a resource.
func isVirtualSubject(attrs *requestAttributes) bool {
	if !attrs.isImpersonation() {
		return false
	}
	if on, ok := underlyingVerb(attrs.verb); !ok || on != attrs.verb {
		return false
	}
	if group := attrs.resource.Group; group != "" && group != "authentication.k8s.io" {
		return false
	}
	switch attrs.resource.Resource {
	case "users", "groups", "uids", "userextras":
		return true
	}
	return false
}

// moveTo puts another namespace into attributes, and into those that go on.
func (attrs *requestAttributes) moveTo(namespace string) {
	attrs.namespace = namespace
	attrs.Attributes = &movedAttributes{attrs.Attributes, namespace}
}

type movedAttributes struct {
	authorizer.Attributes
	namespace string
}

func (a *movedAttributes) GetNamespace() string { return a.namespace }

// isOfAny reports whether attrs are those of a self review that asks about any object in all
// namespaces, which for a tenant's caller are its own: no request is like that.
func isOfAny(ctx context.Context, state *requestState, attrs *requestAttributes) bool {
	return state == nil && attrs.name == "" && isForSelfReview(ctx)
}

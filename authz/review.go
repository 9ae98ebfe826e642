// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A review is about a request that was not made, so a client chooses its attributes. kubectl auth
// can-i always sends the namespace of its context. For a review about any object, it sends a verb
// such as get but no object name.

// normalizeReview changes the attributes of a review to those that the reviewed request would have.
// It removes the namespace for a cluster-scoped resource. A real request for such a resource has a
// namespace only if its path is not served. The webhook service, in which reviews and requests look
// the same, can therefore call the function for both.
func (b *Boundary) normalizeReview(attrs *requestAttributes) {
	if !attrs.isResource || attrs.namespace == "" {
		return
	}
	if isVirtualSubject(attrs) || attrs.resource != namespaces && b.scopeOf(attrs) == ScopeCluster {
		attrs.setNamespace("")
		return
	}
	if attrs.resource != namespaces || attrs.name == attrs.namespace {
		return
	}
	if attrs.name != "" || attrs.verb == "create" || isCollection(attrs.verb) {
		attrs.setNamespace(attrs.name) // as in RequestInfo, which sets both to the name
	}
}

// isVirtualSubject reports whether attrs is an impersonation check for a subject that is in no
// namespace. Such subjects are resources only in impersonation checks.
func isVirtualSubject(attrs *requestAttributes) bool {
	if !attrs.isImpersonation() {
		return false
	}
	if underlying, ok := underlyingVerb(attrs.verb); !ok || underlying != attrs.verb {
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

// setNamespace changes the namespace in attrs and in the attributes for the delegate.
func (attrs *requestAttributes) setNamespace(namespace string) {
	attrs.namespace = namespace
	attrs.Attributes = &namespacedAttributes{attrs.Attributes, namespace}
}

type namespacedAttributes struct {
	authorizer.Attributes
	namespace string
}

func (a *namespacedAttributes) GetNamespace() string { return a.namespace }

// isSelfReviewOfAnyObject reports whether attrs is a SelfSubjectAccessReview about any object in
// all namespaces. For a tenant's caller, all namespaces means those of its tenant. No real request
// has these attributes.
func isSelfReviewOfAnyObject(ctx context.Context, state *requestState, attrs *requestAttributes) bool {
	return state == nil && attrs.name == "" && isForSelfReview(ctx)
}

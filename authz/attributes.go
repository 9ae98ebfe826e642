// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// requestAttributes are what the authorizer is asked: the attributes, each read once.
type requestAttributes struct {
	authorizer.Attributes
	user       user.Info
	verb       string
	isResource bool
	path       string // of a request that is about no resource
	// The rest is about a resource.
	resource                              schema.GroupResource
	version, namespace, name, subresource string

	looked *lookup // up the owner of a namespace
	scope  Scope   // of the resource
	scoped bool    // somebody has asked for it
}

// lookup is what one came to: a namespace is looked up once for a request.
type lookup struct {
	namespace string
	found     found
}

func readAttributes(a authorizer.Attributes) requestAttributes {
	if r, ok := a.(*authorizer.AttributesRecord); ok {
		// What a server's requests are. Its methods have value receivers: each call through the
		// interface would copy all of it.
		if !r.ResourceRequest {
			return requestAttributes{
				Attributes: a,
				user:       r.User,
				verb:       r.Verb,
				path:       r.Path,
			}
		}
		return requestAttributes{
			Attributes:  a,
			user:        r.User,
			verb:        r.Verb,
			isResource:  true,
			resource:    schema.GroupResource{Group: r.APIGroup, Resource: r.Resource},
			version:     r.APIVersion,
			namespace:   r.Namespace,
			name:        r.Name,
			subresource: r.Subresource,
		}
	}
	attrs := requestAttributes{
		Attributes: a,
		user:       a.GetUser(),
		verb:       a.GetVerb(),
		isResource: a.IsResourceRequest(),
	}
	if !attrs.isResource {
		attrs.path = a.GetPath()
		return attrs
	}
	attrs.resource = schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
	attrs.version, attrs.namespace = a.GetAPIVersion(), a.GetNamespace()
	attrs.name, attrs.subresource = a.GetName(), a.GetSubresource()
	return attrs
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// isPlainRead reports whether attrs reads what the server itself holds: a get that connects to
// something behind it may do anything there.
func (attrs *requestAttributes) isPlainRead() bool {
	return isRead(attrs.verb) && !attrs.connects()
}

// connects reports whether attrs is about a subresource by which something behind
// the server is talked to.
func (attrs *requestAttributes) connects() bool { return connects(attrs.subresource) }

func connects(subresource string) bool {
	switch subresource {
	case "proxy", "exec", "attach", "portforward":
		return true
	}
	return false
}

// isImpersonation reports whether attrs asks if somebody may be impersonated, not about the request
// itself. The verb of a request for a path is its HTTP method, which cannot hold a colon (RFC 9110,
// section 5.6.2).
func (attrs *requestAttributes) isImpersonation() bool {
	if !attrs.isResource {
		return strings.HasPrefix(attrs.verb, "impersonate-on:")
	}
	return strings.HasPrefix(attrs.verb, "impersonate")
}

// hasDotSegment reports whether a part of a resource's path is a dot segment. RequestInfo takes it
// for a name; an aggregated server, to which the path is passed on as it came, might follow it.
func (attrs *requestAttributes) hasDotSegment() bool {
	return isDots(attrs.resource.Group) || isDots(attrs.version) || isDots(attrs.namespace) ||
		isDots(attrs.resource.Resource) || isDots(attrs.name) || isDots(attrs.subresource)
}

func isDots(s string) bool { return s == "." || s == ".." }

// isReview reports whether attrs asks about others: whether a token or a name is known, whose a
// namespace is.
func (attrs *requestAttributes) isReview() bool { return isReview(attrs.resource) }

func isReview(r schema.GroupResource) bool {
	switch r.Group {
	case "authentication.k8s.io":
		return r.Resource == "tokenreviews"
	case "authorization.k8s.io":
		return r.Resource == "subjectaccessreviews" || r.Resource == "localsubjectaccessreviews"
	}
	return false
}

// isSelfReview reports whether a resource tells the caller about itself alone.
func isSelfReview(r schema.GroupResource) bool {
	switch r.Group {
	case "authentication.k8s.io":
		return r.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		return r.Resource == "selfsubjectaccessreviews" || r.Resource == "selfsubjectrulesreviews"
	}
	return false
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// requestAttributes are the attributes of a request. Each attribute is read only once.
type requestAttributes struct {
	authorizer.Attributes
	user       user.Info
	verb       string
	isResource bool
	path       string // set for non-resource requests only
	// The other fields are set for resource requests only.
	resource                              schema.GroupResource
	version, namespace, name, subresource string

	lastLookup *lookup // the last lookup of a namespace
	scope      Scope   // scope of the resource
	scopeKnown bool    // scope is set
}

// lookup is the result of a namespace lookup, for reuse within one request.
type lookup struct {
	namespace string
	result    lookupResult
}

func readAttributes(a authorizer.Attributes) requestAttributes {
	if r, ok := a.(*authorizer.AttributesRecord); ok {
		// Kubernetes servers pass this type. Its methods have value receivers, so each call
		// through the interface would copy the whole struct.
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

// isPlainRead reports whether attrs only reads data from the API server. A get request that
// connects to a backend may have any effect there.
func (attrs *requestAttributes) isPlainRead() bool {
	return isRead(attrs.verb) && !attrs.connects()
}

// connects reports whether the subresource of attrs connects the client to a backend.
func (attrs *requestAttributes) connects() bool { return connects(attrs.subresource) }

func connects(subresource string) bool {
	switch subresource {
	case "proxy", "exec", "attach", "portforward":
		return true
	}
	return false
}

// isImpersonation reports whether attrs is an impersonation check instead of the request itself.
// The verb of a non-resource request is its HTTP method. A method (RFC 9110, section 5.6.2) contains
// no colon. A client therefore cannot send a method that looks like an impersonation check.
func (attrs *requestAttributes) isImpersonation() bool {
	if !attrs.isResource {
		return strings.HasPrefix(attrs.verb, "impersonate-on:")
	}
	return strings.HasPrefix(attrs.verb, "impersonate")
}

// hasDotSegment reports whether a part of a resource's path is a dot segment ("." or "..").
// RequestInfo treats a dot segment as a name. An aggregated server receives the path unchanged
// and might resolve the dot segment.
func (attrs *requestAttributes) hasDotSegment() bool {
	return isDots(attrs.resource.Group) || isDots(attrs.version) || isDots(attrs.namespace) ||
		isDots(attrs.resource.Resource) || isDots(attrs.name) || isDots(attrs.subresource)
}

func isDots(s string) bool { return s == "." || s == ".." }

// isReview reports whether attrs is a TokenReview, SubjectAccessReview or
// LocalSubjectAccessReview. The response may reveal whether a token or name exists, or which
// tenant owns a namespace.
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

// isSelfReview reports whether the resource is a review that is only about the caller.
func isSelfReview(r schema.GroupResource) bool {
	switch r.Group {
	case "authentication.k8s.io":
		return r.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		return r.Resource == "selfsubjectaccessreviews" || r.Resource == "selfsubjectrulesreviews"
	}
	return false
}

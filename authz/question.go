package authz

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// question is what the authorizer is asked: the attributes, each read once.
type question struct {
	authorizer.Attributes
	user       user.Info
	verb       string
	isResource bool
	path       string // of a request that is about no resource
	// The rest is about a resource.
	resource                              schema.GroupResource
	version, namespace, name, subresource string

	looked *lookup // up the owner of a namespace
}

// lookup is what one came to: a question for one namespace is asked once.
type lookup struct {
	namespace string
	owner     tenant.ID
	err       error
}

func questionOf(a authorizer.Attributes) question {
	if r, ok := a.(*authorizer.AttributesRecord); ok {
		// What a server's requests are. Its methods have value receivers: each call through the
		// interface would copy all of it.
		if !r.ResourceRequest {
			return question{Attributes: a, user: r.User, verb: r.Verb, path: r.Path}
		}
		return question{Attributes: a, user: r.User, verb: r.Verb, isResource: true,
			resource: schema.GroupResource{Group: r.APIGroup, Resource: r.Resource},
			version:  r.APIVersion, namespace: r.Namespace, name: r.Name, subresource: r.Subresource}
	}
	q := question{Attributes: a, user: a.GetUser(), verb: a.GetVerb(), isResource: a.IsResourceRequest()}
	if !q.isResource {
		q.path = a.GetPath()
		return q
	}
	q.resource = schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
	q.version, q.namespace, q.name, q.subresource = a.GetAPIVersion(), a.GetNamespace(), a.GetName(), a.GetSubresource()
	return q
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// isPlainRead reports whether q reads what the server itself holds: a get that connects to something
// behind it may do anything there.
func (q *question) isPlainRead() bool {
	switch q.subresource {
	case "proxy", "exec", "attach", "portforward":
		return false
	}
	return isRead(q.verb)
}

// isImpersonation reports whether q asks if somebody may be impersonated, not about the request
// itself. The verb of a request for a path is its HTTP method, which cannot hold a colon (RFC 9110,
// section 5.6.2).
func (q *question) isImpersonation() bool {
	if !q.isResource {
		return strings.HasPrefix(q.verb, "impersonate-on:")
	}
	return strings.HasPrefix(q.verb, "impersonate")
}

// hasDotSegment reports whether a part of a resource's path is a dot segment. RequestInfo takes it
// for a name; an aggregated server, to which the path is passed on as it came, might follow it.
func (q *question) hasDotSegment() bool {
	return isDots(q.resource.Group) || isDots(q.version) || isDots(q.namespace) || isDots(q.resource.Resource) ||
		isDots(q.name) || isDots(q.subresource)
}

func isDots(s string) bool { return s == "." || s == ".." }

// isReview reports whether q asks about others: whether a token or a name is known, whose a
// namespace is.
func (q *question) isReview() bool { return isReview(q.resource) }

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

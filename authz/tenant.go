package authz

import (
	"context"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// decideTenant is what a caller of tenant id, which is not the system tenant, may ask for.
func (b *Boundary) decideTenant(ctx context.Context, c *call, id tenant.ID, a authorizer.Attributes) verdict {
	verb, ok := underlyingVerb(a.GetVerb())
	switch {
	case !ok:
		return verdict{reason: ReasonImpersonation}
	case isImpersonation(a) && verb == a.GetVerb():
		return b.decideImpersonation(ctx, id, a)
	case !a.IsResourceRequest():
		return b.decidePath(a.GetPath())
	case verb == "" || verb == "*" || a.GetAPIGroup() == "*" || a.GetResource() == "*" || a.GetResource() == "":
		return verdict{reason: ReasonWildcard}
	case hasDotSegment(a):
		return verdict{reason: ReasonPath}
	case reviews[resourceOf(a)]:
		return verdict{reason: ReasonReview}
	case resourceOf(a) == namespaces:
		return b.decideNamespace(ctx, c, id, verb, a)
	case a.GetNamespace() != "":
		return b.decideNamespaced(ctx, id, verb, a)
	}
	return b.decideCluster(verb, a)
}

// reviews tell about others: whether a name is known, whose a namespace is.
var reviews = map[schema.GroupResource]bool{
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
}

// hasDotSegment reports whether a part of a resource's path is a dot segment. RequestInfo takes it
// for a name; an aggregated server, to which the path is passed on as it came, might follow it.
func hasDotSegment(a authorizer.Attributes) bool {
	for _, part := range [...]string{a.GetAPIGroup(), a.GetAPIVersion(), a.GetNamespace(), a.GetResource(), a.GetName(), a.GetSubresource()} {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// underlyingVerb returns the verb that is asked for "on" an impersonation: of
// impersonate-on:<mode>:<verb>, which constrained impersonation asks with the attributes of the
// request itself (KEP-5284), that verb; of any other verb itself. Nodes are nobody's to
// impersonate for a tenant, so their modes, and ones not known, are refused.
func underlyingVerb(verb string) (string, bool) {
	rest, found := strings.CutPrefix(verb, "impersonate-on:")
	if !found {
		return verb, true
	}
	mode, verb, found := strings.Cut(rest, ":")
	known := mode == "user-info" || mode == "serviceaccount"
	return verb, found && known && !strings.HasPrefix(verb, "impersonate")
}

// decidePath leaves discovery and the schemas to the delegate, and what is open to everybody.
func (b *Boundary) decidePath(p string) verdict {
	if slices.Contains(b.UnboundPaths, p) {
		return verdict{}
	}
	// A path that is not in its shortest form might be read as another one further on.
	short := strings.TrimSuffix(p, "/")
	if path.Clean(short) == short {
		for _, open := range []string{"/api", "/apis", "/openapi"} {
			if rest, found := strings.CutPrefix(short, open); found && (rest == "" || rest[0] == '/') {
				return verdict{}
			}
		}
	}
	return verdict{reason: ReasonPath}
}

// decideNamespace is about Namespace objects themselves.
func (b *Boundary) decideNamespace(ctx context.Context, c *call, id tenant.ID, verb string, a authorizer.Attributes) verdict {
	name := a.GetName()
	if ns := a.GetNamespace(); name == "" {
		name = ns
	} else if ns != "" && ns != name {
		return verdict{reason: ReasonNotOwned}
	}
	if a.GetSubresource() != "" {
		return verdict{reason: ReasonNamespaceVerb}
	}
	switch verb {
	case "get", "update", "patch", "delete":
		return b.ownedBy(ctx, id, name)
	case "create": // admission gives it its owner
		return verdict{}
	case "list", "watch":
		if a.GetNamespace() != "" && a.GetName() != "" { // the old watch path of one object, which ignores selectors
			return verdict{reason: ReasonNotPinned}
		}
		return b.pin(ctx, c, id, a)
	}
	return verdict{reason: ReasonNamespaceVerb}
}

// decideNamespaced is about objects in a namespace.
func (b *Boundary) decideNamespaced(ctx context.Context, id tenant.ID, verb string, a authorizer.Attributes) verdict {
	if b.Scopes.Of(resourceOf(a)) == ScopeCluster {
		return verdict{reason: ReasonCluster}
	}
	if verb == "finalize" {
		return verdict{reason: ReasonNamespaceVerb}
	}
	return b.ownedBy(ctx, id, a.GetNamespace())
}

// ownedBy delegates what is in a namespace of tenant id. A namespace of another and one that does
// not exist get the same answer.
func (b *Boundary) ownedBy(ctx context.Context, id tenant.ID, namespace string) verdict {
	owner, err := b.Owners.of(ctx, id, namespace)
	switch {
	case err != nil:
		return verdict{reason: ReasonOwnerUnknown, err: err}
	case owner != id:
		return verdict{reason: ReasonNotOwned, owner: owner}
	}
	return verdict{owner: owner}
}

// selfReviews are about the caller alone.
var selfReviews = map[schema.GroupResource]bool{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:      true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}: true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:  true,
}

// decideCluster is about what is asked for outside any namespace. Lists over all namespaces are
// denied even where a selector is given, since not every object carries the tenant's label.
func (b *Boundary) decideCluster(verb string, a authorizer.Attributes) verdict {
	resource := resourceOf(a)
	switch {
	case selfReviews[resource] && verb == "create" && a.GetSubresource() == "":
		return verdict{}
	case isRead(verb) && a.GetSubresource() == "" && b.isShared(resource):
		return verdict{}
	case b.Scopes.Of(resource) == ScopeNamespaced:
		return verdict{reason: ReasonNotPinned}
	}
	return verdict{reason: ReasonCluster}
}

// isShared reports whether every tenant may read the resource: never a namespaced one.
func (b *Boundary) isShared(resource schema.GroupResource) bool {
	return slices.Contains(b.Shared, resource) && b.Scopes.Of(resource) != ScopeNamespaced
}

// decideImpersonation is about whom a caller of tenant id may become: itself nobody of another
// tenant, nobody of the system's. What the impersonated user may do is decided when it asks.
func (b *Boundary) decideImpersonation(ctx context.Context, id tenant.ID, a authorizer.Attributes) verdict {
	name, names := a.GetName(), b.Subjects.Names
	ok := false
	switch group := a.GetAPIGroup(); {
	case group != "" && group != "authentication.k8s.io", strings.HasSuffix(a.GetVerb(), "-node"):
	case a.GetResource() == "serviceaccounts" && name != "" && name != "*" && a.GetNamespace() != "":
		return b.ownedBy(ctx, id, a.GetNamespace())
	case a.GetNamespace() != "": // nobody but a service account is in one
	case a.GetResource() == "users":
		ok = name != "" && name != "*" && !names.ReservedUser(name)
	case a.GetResource() == "groups":
		ok = name != "" && name != "*" && !names.ReservedGroup(name)
	case a.GetResource() == "userextras":
		key := a.GetSubresource()
		ok = key == tenant.ExtraKey && name == id.String() ||
			key != "" && key != "*" && !tenant.IsReservedExtraKey(key)
	case a.GetResource() == "uids":
		ok = true
	}
	if !ok {
		return verdict{reason: ReasonImpersonation}
	}
	return verdict{}
}

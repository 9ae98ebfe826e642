package authz

import (
	"context"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/tenant"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// decideTenant is what a caller of tenant id, which is not the system tenant, may ask for.
func (b *Boundary) decideTenant(ctx context.Context, c *call, id tenant.ID, q *question) verdict {
	verb, ok := underlyingVerb(q.verb)
	switch {
	case !ok:
		return verdict{reason: ReasonImpersonation}
	case q.isImpersonation() && verb == q.verb:
		return b.decideImpersonation(ctx, id, q)
	case !q.isResource:
		return b.decidePath(q.path)
	case verb == "" || verb == "*" || q.resource.Group == "*" || q.resource.Resource == "*" || q.resource.Resource == "":
		return verdict{reason: ReasonWildcard}
	case q.hasDotSegment():
		return verdict{reason: ReasonPath}
	case q.isReview():
		return verdict{reason: ReasonReview}
	case q.resource == namespaces:
		return b.decideNamespace(ctx, c, id, verb, q)
	case q.namespace != "":
		return b.decideNamespaced(ctx, id, verb, q)
	}
	return b.decideCluster(verb, q)
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
		return verdict{delegate: true}
	}
	// A path that is not in its shortest form might be read as another one further on.
	short := strings.TrimSuffix(p, "/")
	if path.Clean(short) == short {
		for _, open := range []string{"/api", "/apis", "/openapi"} {
			if rest, found := strings.CutPrefix(short, open); found && (rest == "" || rest[0] == '/') {
				return verdict{delegate: true}
			}
		}
	}
	return verdict{reason: ReasonPath}
}

// decideNamespace is about Namespace objects themselves.
func (b *Boundary) decideNamespace(ctx context.Context, c *call, id tenant.ID, verb string, q *question) verdict {
	name := q.name
	if ns := q.namespace; name == "" {
		name = ns
	} else if ns != "" && ns != name {
		return verdict{reason: ReasonNotOwned}
	}
	if q.subresource != "" {
		return verdict{reason: ReasonNamespaceVerb}
	}
	switch verb {
	case "get", "update", "patch", "delete":
		return b.ownedBy(ctx, id, name)
	case "create": // admission gives it its owner
		return verdict{delegate: true}
	case "list", "watch":
		if q.namespace != "" && q.name != "" { // the old watch path of one object, which ignores selectors
			return verdict{reason: ReasonNotPinned}
		}
		return b.pin(ctx, c, id, q)
	}
	return verdict{reason: ReasonNamespaceVerb}
}

// decideNamespaced is about objects in a namespace.
func (b *Boundary) decideNamespaced(ctx context.Context, id tenant.ID, verb string, q *question) verdict {
	if b.Scopes.Of(q.resource) == ScopeCluster {
		return verdict{reason: ReasonCluster}
	}
	if verb == "finalize" {
		return verdict{reason: ReasonNamespaceVerb}
	}
	return b.ownedBy(ctx, id, q.namespace)
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
	return verdict{delegate: true, owner: owner}
}

// decideCluster is about what is asked for outside any namespace. Lists over all namespaces are
// denied even where a selector is given, since not every object carries the tenant's label.
func (b *Boundary) decideCluster(verb string, q *question) verdict {
	resource := q.resource
	switch {
	case isSelfReview(resource) && verb == "create" && q.subresource == "":
		return verdict{delegate: true}
	case isRead(verb) && q.subresource == "" && b.isShared(resource):
		return verdict{delegate: true}
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
func (b *Boundary) decideImpersonation(ctx context.Context, id tenant.ID, q *question) verdict {
	name, names := q.name, b.Subjects.Names
	ok := false
	switch group := q.resource.Group; {
	case group != "" && group != "authentication.k8s.io", strings.HasSuffix(q.verb, "-node"):
	case q.resource.Resource == "serviceaccounts" && name != "" && name != "*" && q.namespace != "":
		return b.ownedBy(ctx, id, q.namespace)
	case q.namespace != "": // nobody but a service account is in one
	case q.resource.Resource == "users":
		ok = name != "" && name != "*" && !names.ReservedUser(name)
	case q.resource.Resource == "groups":
		ok = name != "" && name != "*" && !names.ReservedGroup(name)
	case q.resource.Resource == "userextras":
		key := q.subresource
		ok = key == tenant.ExtraKey && name == id.String() ||
			key != "" && key != "*" && !tenant.IsReservedExtraKey(key)
	case q.resource.Resource == "uids":
		ok = true
	}
	if !ok {
		return verdict{reason: ReasonImpersonation}
	}
	return verdict{delegate: true}
}

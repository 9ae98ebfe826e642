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
	}
	if reason := b.unfit(verb, q); reason != "" {
		return verdict{reason: reason}
	}
	switch {
	case q.resource == namespaces:
		return b.decideNamespace(ctx, c, id, verb, q)
	case q.namespace != "":
		return b.decideNamespaced(ctx, id, verb, q)
	}
	return b.decideCluster(ctx, c, id, verb, q)
}

// unfit returns why a question about a resource is none that a tenant's caller may have answered,
// wherever it is about.
func (b *Boundary) unfit(verb string, q *question) Reason {
	switch {
	case !q.isResource:
		return ""
	case verb == "" || verb == "*" || q.resource.Group == "*" || q.resource.Resource == "*" || q.resource.Resource == "":
		return ReasonWildcard
	case q.hasDotSegment():
		return ReasonPath
	case q.isReview():
		return ReasonReview
	case q.namespace != "" && q.resource != namespaces && b.Scopes.Of(q.resource) == ScopeCluster:
		return ReasonCluster
	}
	return ""
}

// ownerFor returns the owner of a namespace that q is about, looked up once.
func (b *Boundary) ownerFor(ctx context.Context, asker tenant.ID, q *question, namespace string) (tenant.ID, error) {
	if q.looked == nil || q.looked.namespace != namespace {
		owner, err := b.Owners.of(ctx, asker, namespace)
		if len(b.Exceptions) == 0 { // nobody asks again
			return owner, err
		}
		q.looked = &lookup{namespace, owner, err}
	}
	return q.looked.owner, q.looked.err
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
		return verdict{delegate: true, row: RowPath}
	}
	// A path that is not in its shortest form might be read as another one further on.
	short := strings.TrimSuffix(p, "/")
	if path.Clean(short) == short {
		for _, open := range []string{"/api", "/apis", "/openapi"} {
			if rest, found := strings.CutPrefix(short, open); found && (rest == "" || rest[0] == '/') {
				return verdict{delegate: true, row: RowPath}
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
		return b.ownedBy(ctx, id, q, name)
	case "create": // admission gives it its owner
		return verdict{delegate: true, row: RowCreateNamespace}
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
	if verb == "finalize" {
		return verdict{reason: ReasonNamespaceVerb}
	}
	return b.ownedBy(ctx, id, q, q.namespace)
}

// ownedBy delegates what is in a namespace of tenant id. A namespace of another and one that does
// not exist get the same answer.
func (b *Boundary) ownedBy(ctx context.Context, id tenant.ID, q *question, namespace string) verdict {
	owner, err := b.ownerFor(ctx, id, q, namespace)
	switch {
	case err != nil:
		return verdict{reason: ReasonOwnerUnknown, err: err}
	case owner != id:
		return verdict{reason: ReasonNotOwned, owner: owner}
	}
	return verdict{delegate: true, row: RowOwn, owner: owner}
}

// decideCluster is about what is asked for outside any namespace.
func (b *Boundary) decideCluster(ctx context.Context, c *call, id tenant.ID, verb string, q *question) verdict {
	resource := q.resource
	switch scope := b.Scopes.Of(resource); {
	case isSelfReview(resource) && verb == "create" && q.subresource == "":
		if b.RulesElsewhere && resource.Resource == "selfsubjectrulesreviews" {
			return verdict{reason: ReasonReview}
		}
		return verdict{delegate: true, row: RowSelfReview}
	case isRead(verb) && q.subresource == "" && b.isShared(resource):
		return verdict{delegate: true, row: RowShared}
	case verb == "get" && q.subresource == "" && q.name != "" && b.About != nil && b.About(resource, q.name) == id:
		return verdict{delegate: true, row: RowAbout, owner: id}
	case scope == ScopeNamespaced:
		return b.decideAcross(ctx, c, id, verb, q)
	case scope == ScopeUnknown && slices.Contains(b.Selectable, resource):
		return b.decideAcross(ctx, c, id, verb, q)
	}
	return verdict{reason: ReasonCluster}
}

// decideAcross is about the objects of all namespaces: those of the own ones, which carry the
// tenant's label.
func (b *Boundary) decideAcross(ctx context.Context, c *call, id tenant.ID, verb string, q *question) verdict {
	if !isCollection(verb) || q.subresource != "" {
		return verdict{reason: ReasonNotPinned}
	}
	v := b.pin(ctx, c, id, q)
	if v.delegate && !b.isPinnable(q.resource, id) {
		return verdict{reason: ReasonNotLabelled}
	}
	return v
}

func isCollection(verb string) bool {
	return verb == "list" || verb == "watch" || verb == "deletecollection"
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
		return b.ownedBy(ctx, id, q, q.namespace)
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
	return verdict{delegate: true, row: RowImpersonation}
}

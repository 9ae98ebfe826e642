// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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

// decide applies the rules of the boundary to a request that no exception allows.
func (b *Boundary) decide(ctx context.Context, state *requestState, c *caller, attrs *requestAttributes) verdict {
	id := c.tenant
	switch {
	case attrs.isImpersonation() && !impersonatesWellFormed(attrs):
		return verdict{reason: ReasonImpersonation}
	case id.IsZero():
		return b.decideUnbound(attrs)
	case state != nil && state.path != (tenantPath{}) && !attrs.isImpersonation():
		return b.decideOnTenantPath(ctx, state, id, attrs)
	case id.IsSystem():
		return verdict{delegate: true, rule: RuleSystem}
	}
	return b.decideTenant(ctx, state, id, attrs)
}

// impersonatesWellFormed reports whether the name to impersonate is well-formed
// ([tenant.IsWellFormed]). The check applies to every impersonator. An aggregated server trims
// white space from header values (RFC 9110, section 5.5) and would otherwise read a different
// name.
func impersonatesWellFormed(attrs *requestAttributes) bool {
	if attrs.resource.Resource == "userextras" {
		return tenant.IsWellFormedValue(attrs.name) && tenant.IsWellFormed(attrs.subresource)
	}
	return tenant.IsWellFormed(attrs.name)
}

func (b *Boundary) decideUnbound(attrs *requestAttributes) verdict {
	allowed := slices.Contains(b.options.UnboundPaths, attrs.path)
	if attrs.isResource {
		allowed = attrs.subresource == "" &&
			slices.Contains(b.options.UnboundObjects, ObjectVerb{attrs.verb, attrs.namespace, attrs.name, attrs.resource})
	}
	if !allowed {
		return verdict{reason: ReasonNoTenant}
	}
	return verdict{delegate: true, rule: RuleUnbound}
}

// decideOnTenantPath limits a request to the tenant in its path.
func (b *Boundary) decideOnTenantPath(
	ctx context.Context, state *requestState, id tenant.ID, attrs *requestAttributes,
) verdict {
	switch {
	case state.path.all && (!id.IsSystem() || !attrs.isPlainRead()):
		return verdict{reason: ReasonTenantPathAll}
	case state.path.all, id.IsSystem() && state.path.id.IsSystem():
		return verdict{delegate: true, rule: RuleSystem}
	case !id.IsSystem() && state.path.id != id:
		return verdict{reason: ReasonTenantPath}
	case id.IsSystem() && b.isClusterRead(attrs):
		return verdict{delegate: true, rule: RuleClusterRead}
	case id.IsSystem() && attrs.isReview(): // the answer would be about all tenants
		return verdict{reason: ReasonReview}
	case id.IsSystem() && attrs.verb == "create" && attrs.resource == namespaces:
		return verdict{reason: ReasonCluster} // admission could not determine the owner of the namespace
	}
	v := b.decideTenant(ctx, state, state.path.id, attrs)
	if v.reason == ReasonNotOwned {
		v.reason = ReasonTenantPathOnly
	}
	return v
}

// isClusterRead reports whether attrs only reads a path or a cluster-scoped resource other than
// namespaces. A caller of the system tenant may make such a request on any tenant path.
func (b *Boundary) isClusterRead(attrs *requestAttributes) bool {
	return attrs.isPlainRead() && (!attrs.isResource || attrs.resource != namespaces && b.scopeOf(attrs) == ScopeCluster)
}

// decideTenant decides about a request that is limited to tenant id, which is not the system
// tenant.
func (b *Boundary) decideTenant(
	ctx context.Context, state *requestState, id tenant.ID, attrs *requestAttributes,
) verdict {
	verb, ok := underlyingVerb(attrs.verb)
	switch {
	case !ok:
		return verdict{reason: ReasonImpersonation}
	case attrs.isImpersonation() && verb == attrs.verb:
		return b.decideImpersonation(ctx, id, attrs)
	case !attrs.isResource:
		return b.decidePath(attrs.path)
	}
	if reason := b.invalidReason(verb, attrs); reason != ReasonNone {
		return verdict{reason: reason}
	}
	switch {
	case attrs.resource == namespaces:
		return b.decideNamespace(ctx, state, id, verb, attrs)
	case attrs.namespace != "":
		return b.decideNamespaced(ctx, id, verb, attrs)
	}
	return b.decideCluster(ctx, state, id, verb, attrs)
}

// invalidReason returns why a tenant may not make this request in any namespace, or [ReasonNone] if
// it may.
func (b *Boundary) invalidReason(verb string, attrs *requestAttributes) Reason {
	switch {
	case !attrs.isResource:
		return ReasonNone
	case verb == "" || verb == "*" || attrs.resource.Group == "*" || attrs.resource.Resource == "*" ||
		attrs.resource.Resource == "":
		return ReasonWildcard
	case attrs.hasDotSegment():
		return ReasonPath
	case attrs.isReview() && (!b.options.Reviews || verb != "create" || attrs.subresource != ""):
		return ReasonReview
	case attrs.namespace != "" && attrs.resource != namespaces && b.scopeOf(attrs) == ScopeCluster:
		return ReasonCluster
	}
	return ReasonNone
}

// find looks up a namespace. It reuses the last lookup stored in attrs if that lookup was for the
// same namespace.
func (b *Boundary) find(ctx context.Context, id tenant.ID, attrs *requestAttributes, namespace string) lookupResult {
	if attrs.lastLookup == nil || attrs.lastLookup.namespace != namespace {
		ns := b.options.Owners.find(ctx, requester{id: id}, namespace)
		if len(b.options.Exceptions) == 0 && !ns.missing() { // the result is not used again
			return ns
		}
		attrs.lastLookup = &lookup{namespace, ns}
	}
	return attrs.lastLookup.result
}

// underlyingVerb returns the verb of the request itself. Constrained impersonation (KEP-5284)
// checks the verb impersonate-on:<mode>:<verb> with the attributes of the request. Any other verb
// is returned unchanged. The second result is false for an unknown mode, for a missing verb, and
// for an impersonation verb after the mode. It is also false for the modes of nodes, because a
// tenant may not impersonate a node.
func underlyingVerb(verb string) (string, bool) {
	rest, found := strings.CutPrefix(verb, "impersonate-on:")
	if !found {
		return verb, true
	}
	mode, verb, found := strings.Cut(rest, ":")
	known := mode == "user-info" || mode == "serviceaccount"
	return verb, found && known && !strings.HasPrefix(verb, "impersonate")
}

// decidePath delegates requests for discovery, for the API schemas, and for the paths that every
// caller may read. It also delegates requests for [FairUsePath] and [AuditPath].
func (b *Boundary) decidePath(p string) verdict {
	if p == FairUsePath || p == AuditPath || slices.Contains(b.options.UnboundPaths, p) {
		return verdict{delegate: true, rule: RulePath}
	}
	// Another server might resolve a path that is not in its shortest form to a different path.
	short := strings.TrimSuffix(p, "/")
	if path.Clean(short) == short {
		for _, prefix := range []string{"/api", "/apis", "/openapi"} {
			if rest, found := strings.CutPrefix(short, prefix); found && (rest == "" || rest[0] == '/') {
				return verdict{delegate: true, rule: RulePath}
			}
		}
	}
	return verdict{reason: ReasonPath}
}

// decideNamespace decides about requests for Namespace objects.
func (b *Boundary) decideNamespace(
	ctx context.Context, state *requestState, id tenant.ID, verb string, attrs *requestAttributes,
) verdict {
	name := attrs.name
	if ns := attrs.namespace; name == "" {
		name = ns
	} else if ns != "" && ns != name {
		return verdict{reason: ReasonNotOwned}
	}
	if attrs.subresource != "" {
		return verdict{reason: ReasonNamespaceVerb}
	}
	switch verb {
	case "get", "update", "patch", "delete":
		return b.decideOwnedOrMissing(ctx, id, verb, attrs, name)
	case "create": // admission assigns the owner
		return verdict{delegate: true, rule: RuleCreateNamespace}
	case "list", "watch":
		if attrs.namespace != "" && attrs.name != "" { // the deprecated watch path of one object ignores selectors
			return verdict{reason: ReasonNotLimited}
		}
		return b.decideLimitedList(ctx, state, id, attrs)
	}
	return verdict{reason: ReasonNamespaceVerb}
}

// decideNamespaced decides about requests for objects in a namespace.
func (b *Boundary) decideNamespaced(ctx context.Context, id tenant.ID, verb string, attrs *requestAttributes) verdict {
	if verb == "finalize" {
		return verdict{reason: ReasonNamespaceVerb}
	}
	return b.decideOwnedOrMissing(ctx, id, verb, attrs, attrs.namespace)
}

// decideOwnedOrMissing calls decideOwned. It also delegates some requests in a missing namespace
// whose name only the tenant can use. The server then answers with 404 or an empty list. kubectl
// apply and delete depend on the 404 response, and Helm depends on the list. A watch is not
// delegated, because it would continue if a namespace with this name were created later.
func (b *Boundary) decideOwnedOrMissing(
	ctx context.Context, id tenant.ID, verb string, attrs *requestAttributes, namespace string,
) verdict {
	v := b.decideOwned(ctx, id, attrs, namespace)
	if v.reason == ReasonNotOwned && b.options.PrefixesReserved && strings.HasPrefix(namespace, id.String()) &&
		b.isFiniteRequest(verb, attrs) && tenant.PrefixOwner(namespace) == id && b.find(ctx, id, attrs, namespace).missing() {
		return verdict{delegate: true, rule: RuleMissing}
	}
	return v
}

// isFiniteRequest reports whether attrs requests one object or a list from the API server itself,
// and whether the response ends without an action of the client.
func (b *Boundary) isFiniteRequest(verb string, attrs *requestAttributes) bool {
	switch verb {
	case "get", "update", "patch", "delete":
		if attrs.name == "" && attrs.resource != namespaces {
			return false
		}
	case "create", "list":
	default:
		return false
	}
	return attrs.subresource != "log" && !attrs.connects() &&
		(attrs.resource == namespaces || b.scopeOf(attrs) == ScopeNamespaced)
}

// decideOwned delegates a request in a namespace of tenant id. The reason for a denial is the
// same for another tenant's namespace and for a missing namespace, so that it does not reveal
// which exist.
func (b *Boundary) decideOwned(ctx context.Context, id tenant.ID, attrs *requestAttributes, namespace string) verdict {
	owner, err := b.find(ctx, id, attrs, namespace).owner()
	switch {
	case err != nil:
		return verdict{reason: ReasonOwnerUnknown, err: err}
	case owner != id:
		return verdict{reason: ReasonNotOwned, owner: owner}
	}
	return verdict{delegate: true, rule: RuleOwn, owner: owner}
}

// decideCluster decides about requests whose attributes contain no namespace.
func (b *Boundary) decideCluster(
	ctx context.Context, state *requestState, id tenant.ID, verb string, attrs *requestAttributes,
) verdict {
	resource := attrs.resource
	switch scope := b.options.Scopes.Of(resource); {
	case isSelfReview(resource) && verb == "create" && attrs.subresource == "":
		if b.options.RulesReviewsBypassBoundary && resource.Resource == "selfsubjectrulesreviews" {
			return verdict{reason: ReasonRules}
		}
		return verdict{delegate: true, rule: RuleSelfReview}
	case attrs.isReview() && scope == ScopeCluster: // invalidReason denies it unless [Options.Reviews] is set
		return verdict{delegate: true, rule: RuleReview}
	case isRead(verb) && attrs.subresource == "" && b.isShared(resource):
		return verdict{delegate: true, rule: RuleShared}
	case verb == "get" && attrs.subresource == "" && attrs.name != "" && b.describesTenant(resource, attrs.name, id):
		return verdict{delegate: true, rule: RuleOwnObject, owner: id}
	case attrs.subresource == "" && scope != ScopeNamespaced && slices.Contains(b.options.TenantWritable, resource) &&
		b.writesOwnObject(verb, attrs, id):
		return verdict{delegate: true, rule: RuleOwnObject, owner: id}
	case (verb == "list" || verb == "watch") && attrs.subresource == "" && scope != ScopeNamespaced &&
		b.options.ObjectField != nil && !slices.Contains(b.options.Selectable, resource):
		return b.decideOwnObjectList(ctx, state, id, verb, attrs)
	case scope == ScopeNamespaced:
		return b.decideAllNamespaces(ctx, state, id, verb, attrs)
	case scope == ScopeUnknown && slices.Contains(b.options.Selectable, resource):
		return b.decideAllNamespaces(ctx, state, id, verb, attrs)
	}
	return verdict{reason: ReasonCluster}
}

// writesOwnObject reports whether a request writes the object that describes tenant id, or creates
// an object whose name is not known yet. The attributes of a creation by PATCH or PUT contain the
// name.
func (b *Boundary) writesOwnObject(verb string, attrs *requestAttributes, id tenant.ID) bool {
	switch verb {
	case "create":
		return attrs.name == "" || b.describesTenant(attrs.resource, attrs.name, id)
	case "update", "patch", "delete":
		return attrs.name != "" && b.describesTenant(attrs.resource, attrs.name, id)
	}
	return false
}

// describesTenant calls [Options.DescribesTenant], or returns false if the option is nil.
func (b *Boundary) describesTenant(resource schema.GroupResource, name string, id tenant.ID) bool {
	return b.options.DescribesTenant != nil && b.options.DescribesTenant(resource, name, id)
}

// decideAllNamespaces decides about requests over all namespaces. The tenant's label limits them to
// the tenant's objects.
func (b *Boundary) decideAllNamespaces(
	ctx context.Context, state *requestState, id tenant.ID, verb string, attrs *requestAttributes,
) verdict {
	if !isCollection(verb) || attrs.subresource != "" {
		if verb != "finalize" && isSelfReviewOfAnyObject(ctx, state, attrs) {
			return verdict{delegate: true, rule: RuleLimited}
		}
		return verdict{reason: ReasonNotLimited}
	}
	v := b.decideLimitedList(ctx, state, id, attrs)
	if v.delegate && !b.isSelectable(attrs.resource, id) {
		return verdict{reason: ReasonNotLabeled}
	}
	return v
}

func isCollection(verb string) bool {
	return verb == "list" || verb == "watch" || verb == "deletecollection"
}

// isShared reports whether every tenant may read the resource. A namespaced resource is never
// shared.
func (b *Boundary) isShared(resource schema.GroupResource) bool {
	return slices.Contains(b.options.Shared, resource) && b.options.Scopes.Of(resource) != ScopeNamespaced
}

// isQualified reports whether a caller of tenant id may have the given user or group name.
func (b *Boundary) isQualified(id tenant.ID, name string) bool {
	return !b.options.QualifiedNames || strings.HasPrefix(name, id.String()+":")
}

// decideImpersonation decides whether a caller of tenant id may impersonate an identity. It
// denies nodes, reserved or unqualified names, and service accounts in other tenants' namespaces.
// It also denies reserved extra keys, except the extra that names the caller's own tenant. A
// later check decides about the requests of the impersonated user.
func (b *Boundary) decideImpersonation(ctx context.Context, id tenant.ID, attrs *requestAttributes) verdict {
	denied := verdict{reason: ReasonImpersonation}
	group, resource := attrs.resource.Group, attrs.resource.Resource
	if group != "" && group != "authentication.k8s.io" || strings.HasSuffix(attrs.verb, "-node") {
		return denied
	}
	name, names := attrs.name, b.options.Subjects.Names
	if resource == "serviceaccounts" && name != "" && name != "*" && attrs.namespace != "" {
		return b.decideOwned(ctx, id, attrs, attrs.namespace)
	}
	if attrs.namespace != "" { // only service accounts have a namespace
		return denied
	}
	ok := false
	switch resource {
	case "users":
		ok = name != "" && name != "*" && !names.ReservedUser(name) && b.isQualified(id, name)
	case "groups":
		ok = name == id.Group() || name != "" && name != "*" && !names.ReservedGroup(name) && b.isQualified(id, name)
	case "userextras":
		key := attrs.subresource
		ok = key == tenant.ExtraKey && name == id.String() ||
			key != "" && key != "*" && !tenant.IsReservedExtraKey(key)
	case "uids":
		ok = true
	}
	if !ok {
		return denied
	}
	return verdict{delegate: true, rule: RuleImpersonation}
}

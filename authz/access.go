// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"slices"

	"github.com/kubetenant/kubetenant/tenant"
)

// Access is the access level of a tenant's callers. It applies in addition to the rules of the
// boundary and the delegate. The zero value is [AccessUnknown].
type Access int

// The access levels, from the strictest to the least strict.
const (
	// AccessUnknown denies every request, because the level is not known yet. In shadow mode, it
	// denies nothing.
	AccessUnknown Access = iota
	// AccessRetired means that the tenant was deleted. Its callers are treated as callers without a
	// tenant, even if the server requires no Tenant objects.
	AccessRetired
	// AccessNone means that the tenant does not exist. Its callers are treated as callers without a
	// tenant.
	AccessNone
	// AccessClosed allows only self reviews, such as SelfSubjectAccessReview.
	AccessClosed
	// AccessReadOnly allows get, head, list, watch and delete, and self reviews. Among
	// subresources, only status, scale and log may be read. It also allows impersonation checks,
	// because the level also limits the requests of the impersonated user.
	AccessReadOnly
	// AccessOpen adds no limit.
	AccessOpen
)

// accessOf returns the access level of a tenant's callers. It is [AccessOpen] for the system
// tenant and for callers without a tenant.
func (b *Boundary) accessOf(id tenant.ID) Access {
	if b.options.Access == nil || id.IsSystem() || id.IsZero() {
		return AccessOpen
	}
	return b.options.Access(id)
}

// denialReason returns why the access level denies a request, or [ReasonNone] if the level does
// not deny the request.
func (level Access) denialReason(attrs *requestAttributes) Reason {
	if level == AccessOpen { // the usual case
		return ReasonNone
	}
	verb, known := underlyingVerb(attrs.verb)
	switch {
	case level == AccessUnknown:
		return ReasonStale
	case level == AccessRetired:
		return ReasonRetired
	case level == AccessNone:
		return ReasonNoTenantObject
	case attrs.isResource && verb == "create" && attrs.subresource == "" && attrs.verb == verb &&
		isSelfReview(attrs.resource):
		return ReasonNone
	case level == AccessReadOnly:
		if attrs.isImpersonation() && verb == attrs.verb || known && allowedReadOnly(verb, attrs.subresource) {
			return ReasonNone
		}
		return ReasonReadOnly
	}
	return ReasonClosed
}

// allowedReadOnly reports whether [AccessReadOnly] allows a verb on a subresource, or on the
// object if the subresource is empty. It excludes most subresources, because a get of some of
// them connects to a backend.
func allowedReadOnly(verb, subresource string) bool {
	switch verb {
	case "get", "list", "watch", "head":
		return slices.Contains([]string{"", "status", "scale", "log"}, subresource)
	case "delete":
		return subresource == ""
	}
	return false
}

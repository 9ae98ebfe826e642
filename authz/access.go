// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"slices"

	"github.com/kubetenant/kubetenant/tenant"
)

// Access is the access level of a tenant's callers. It applies whatever the namespaces and the
// delegate allow. The zero value is [AccessUnknown].
type Access int

// The access levels, from the strictest to the least strict.
const (
	// AccessUnknown denies every request, because the level is not known yet.
	AccessUnknown Access = iota
	// AccessRetired means that the tenant was deleted. Its callers have no tenant, even if tenants
	// need not exist as objects.
	AccessRetired
	// AccessNone means that the tenant does not exist. Its callers have no tenant.
	AccessNone
	// AccessClosed allows only reviews of the caller itself.
	AccessClosed
	// AccessReadOnly allows get, list, watch and delete. The subresources status, scale and log may be
	// read, and no others.
	AccessReadOnly
	// AccessOpen does not limit the callers.
	AccessOpen
)

// accessOf returns the access level of a tenant's callers.
func (b *Boundary) accessOf(id tenant.ID) Access {
	if b.Access == nil || id.IsSystem() || id.IsZero() {
		return AccessOpen
	}
	return b.Access(id)
}

// denialReason returns why the access denies a request, or [ReasonNone] if it does not. It allows an
// impersonation of the tenant's own callers, because the same access applies to them.
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

// allowedReadOnly reports whether [AccessReadOnly] allows a verb. Callers may also delete objects.
// Only subresources that are known to be read from the object are allowed, because a get of another
// one may connect to a backend.
func allowedReadOnly(verb, subresource string) bool {
	switch verb {
	case "get", "list", "watch", "head":
		return slices.Contains([]string{"", "status", "scale", "log"}, subresource)
	case "delete":
		return subresource == ""
	}
	return false
}

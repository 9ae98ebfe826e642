// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"slices"

	"github.com/kubetenant/kubetenant/tenant"
)

// Access is how far the callers of a tenant may go, whatever the namespaces and the delegate say.
// The zero value is not known, and lets nobody do anything.
type Access int

// The accesses, from the strictest to the one that takes nothing away.
const (
	// AccessUnknown: it is not known yet. Callers are denied.
	AccessUnknown Access = iota
	// AccessRetired: the tenant was deleted. Its callers have no tenant,
	// whether or not one must exist.
	AccessRetired
	// AccessNone: the tenant does not exist. Its callers have no tenant.
	AccessNone
	// AccessClosed leaves nothing but reviews of oneself.
	AccessClosed
	// AccessReadOnly leaves get, list, watch and delete; of subresources,
	// reading status, scale and log.
	AccessReadOnly
	// AccessOpen takes nothing away.
	AccessOpen
)

// accessOf returns how far callers of a tenant may go.
func (b *Boundary) accessOf(id tenant.ID) Access {
	if b.Access == nil || id.IsSystem() || id.IsZero() {
		return AccessOpen
	}
	return b.Access(id)
}

// exceededBy returns why the access denies a request, or [ReasonNone] if it does not. It allows an
// impersonation of the tenant's own callers, because the same access applies to them.
func (access Access) exceededBy(attrs *requestAttributes) Reason {
	if access == AccessOpen { // as nearly always
		return ReasonNone
	}
	verb, known := underlyingVerb(attrs.verb)
	switch {
	case access == AccessUnknown:
		return ReasonStale
	case access == AccessRetired:
		return ReasonRetired
	case access == AccessNone:
		return ReasonNoTenantObject
	case attrs.isResource && verb == "create" && attrs.subresource == "" && attrs.verb == verb &&
		isSelfReview(attrs.resource):
		return ReasonNone
	case access == AccessReadOnly:
		if attrs.isImpersonation() && verb == attrs.verb || known && survivesReadOnly(verb, attrs.subresource) {
			return ReasonNone
		}
		return ReasonReadOnly
	}
	return ReasonClosed
}

// survivesReadOnly reports whether a verb is left to the callers of a tenant that may only read:
// they may give back what they have, too. Of subresources those are left that are known to be read
// where the object is: a get of others may connect.
func survivesReadOnly(verb, subresource string) bool {
	switch verb {
	case "get", "list", "watch", "head":
		return slices.Contains([]string{"", "status", "scale", "log"}, subresource)
	case "delete":
		return subresource == ""
	}
	return false
}

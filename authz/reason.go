// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

// A Reason specifies why the boundary denied or allowed a request. It has a code for programs and a
// text for people. It contains no user input and no name of an object or of another tenant. A
// string cannot be converted to a new Reason. The zero value is [ReasonNone]. docs/reasons.md lists
// the reasons for operators.
//
// Reason is an int32 because go vet rejects the conversion of an int32 to a string.
type Reason int32

// The reasons. Their numbers are not part of the API and may change.
const (
	// ReasonNone is the reason of a delegated request. Its code and its text are empty.
	ReasonNone Reason = iota
	ReasonNoTenant
	ReasonBadTenant
	ReasonSystemGroup
	ReasonMalformed
	ReasonRevoked
	ReasonNoTenantObject
	ReasonRetired
	ReasonUndated
	ReasonImpersonation
	ReasonNotOwned
	ReasonNotLimited
	ReasonNotNamed
	ReasonNotLabeled
	ReasonCluster
	ReasonNamespaceVerb
	ReasonWildcard
	ReasonReview
	ReasonRules
	ReasonPath
	ReasonTenantPath
	ReasonTenantPathAll
	ReasonTenantPathOnly
	ReasonOwnerUnknown
	ReasonStale
	ReasonClosed
	ReasonReadOnly
	ReasonGrant
	ReasonAnnounced
	ReasonABAC
	// ReasonException is for the exceptions of a program that uses this package.
	ReasonException
)

// Code returns the identifier of the reason, such as NamespaceNotOwned. Metrics use it as the
// value of a label. It never changes. The code of a value without a constant is empty.
func (r Reason) Code() string {
	code, _ := r.describe()
	return code
}

// String returns the text of the reason, in the form "area: fact". The body of a 403 response and
// the audit event contain it. A release may reword it. The text of a value without a constant is
// empty.
func (r Reason) String() string {
	_, text := r.describe()
	return text
}

// describe returns the code and the text of a reason.
func (r Reason) describe() (code, text string) {
	switch r {
	case ReasonNoTenant:
		return "NoTenant", "tenant subject: the caller has no tenant"
	case ReasonBadTenant:
		return "AmbiguousTenant", "tenant subject: the caller's tenant is unknown or ambiguous"
	case ReasonSystemGroup:
		return "SystemGroup", "tenant subject: a tenant's caller must not be in a system group"
	case ReasonMalformed:
		return "MalformedIdentity", "tenant subject: the caller's identity is malformed or too large"
	case ReasonRevoked:
		return "CallerRevoked", "tenant subject: the caller is revoked"
	case ReasonNoTenantObject:
		return "TenantNotFound", "tenant subject: the caller's tenant does not exist"
	case ReasonRetired:
		return "TenantDeleted", "tenant subject: the caller's tenant was deleted"
	case ReasonUndated:
		return "CredentialUndated", "tenant subject: the credential may belong to a deleted tenant of the same name"
	case ReasonImpersonation:
		return "ImpersonationOutsideTenant", "tenant boundary: the impersonated identity is outside the caller's tenant"
	case ReasonNotOwned:
		return "NamespaceNotOwned", "tenant boundary: the namespace is not owned by the caller's tenant"
	case ReasonNotLimited:
		return "NotLimitedToTenant", "tenant boundary: the request is not limited to the caller's tenant: " +
			"add the label selector kubetenant.dev/tenant=TENANT or a namespace"
	case ReasonNotNamed:
		return "NotLimitedToOwnObject", "tenant boundary: the request is not limited to the caller's own object: " +
			"add the field selector metadata.name=TENANT, or spec.tenant=TENANT for tenantquotas"
	case ReasonNotLabeled:
		return "ObjectsNotLabeled", "tenant boundary: older objects of this resource do not have the tenant label yet"
	case ReasonCluster:
		return "ClusterScopedResource", "tenant boundary: the resource is cluster-scoped or unknown"
	case ReasonNamespaceVerb:
		return "NamespaceRequest", "tenant boundary: tenants may not make this request on a namespace"
	case ReasonWildcard:
		return "Wildcard", "tenant boundary: tenants may not request wildcards"
	case ReasonReview:
		return "ReviewOfOthers", "tenant boundary: tenants may not review the access of other callers"
	case ReasonRules:
		return "RulesReview", "tenant boundary: this server cannot limit the list of rules to the caller's tenant"
	case ReasonPath:
		return "Path", "tenant boundary: tenants may not access this path"
	case ReasonTenantPath:
		return "OtherTenantPath", "tenant path: the path names another tenant"
	case ReasonTenantPathAll:
		return "AllTenantsPath", "tenant path: only the system tenant may read across all tenants"
	case ReasonTenantPathOnly:
		return "NotOwnedByPathTenant", "tenant path: the namespace is not owned by the tenant in the path; " +
			"grants and the policy file apply only to paths without a tenant"
	case ReasonOwnerUnknown:
		return "OwnerUnknown", "tenant owner: the owner of the namespace is unknown"
	case ReasonStale:
		return "StateOutdated", "tenant state: the state of the cluster is unknown or outdated"
	case ReasonClosed:
		return "TenantClosed", "tenant access: the caller's tenant is closed"
	case ReasonReadOnly:
		return "TenantReadOnly", "tenant access: the caller's tenant may only read and delete"
	case ReasonGrant:
		return "AccessGrant", "tenant grant: an access grant of the namespace allows the request"
	case ReasonAnnounced:
		return "AnnouncedGrants", "tenant grant: the caller may list the access grants announced to its tenant"
	case ReasonABAC:
		return "PolicyFile", "tenant abac: a rule of the policy file allows the request"
	case ReasonException:
		return "Exception", "tenant exception: an exception of the server allows the request"
	}
	return "", ""
}

// ReasonOf returns the reason that has the given text, such as the text in a response from a
// server. It returns false if no reason has exactly this text.
func ReasonOf(text string) (Reason, bool) {
	for _, r := range Reasons() {
		if r.String() == text {
			return r, true
		}
	}
	return ReasonNone, false
}

// deniesInShadowMode reports whether the boundary denies for this reason in shadow mode too. These
// are the reasons for which an administrator has revoked the caller, or has deleted or restricted
// its tenant.
func (r Reason) deniesInShadowMode() bool {
	return r == ReasonRevoked || r == ReasonRetired || r == ReasonUndated || r == ReasonClosed || r == ReasonReadOnly
}

// Reasons returns all reasons except [ReasonNone], in the order of their declaration.
func Reasons() []Reason {
	var all []Reason
	for r := ReasonNone + 1; r.Code() != ""; r++ {
		all = append(all, r)
	}
	return all
}

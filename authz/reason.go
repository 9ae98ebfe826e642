package authz

// A Reason says why the boundary denied, or what excepted a request from it. It stands in the body
// of a 403 and in audit events, so it is a constant: no user input, no name of an object or of
// another tenant. docs/reasons.md lists them for operators.
type Reason string

// The reasons, by the part of the boundary that gives them.
const (
	ReasonNoTenant       Reason = "tenant subject: the caller has no tenant"
	ReasonBadTenant      Reason = "tenant subject: the caller's tenant cannot be told"
	ReasonSystemGroup    Reason = "tenant subject: a tenant's caller may not be in a system group"
	ReasonRevoked        Reason = "tenant subject: the caller is revoked"
	ReasonImpersonation  Reason = "tenant boundary: impersonation would leave the caller's tenant"
	ReasonNotOwned       Reason = "tenant boundary: not in a namespace of the caller's tenant"
	ReasonNotLimited     Reason = "tenant boundary: not limited to the caller's tenant"
	ReasonNotLabelled    Reason = "tenant boundary: older objects of this resource carry no tenant label yet"
	ReasonCluster        Reason = "tenant boundary: cluster-scoped or unknown resource"
	ReasonNamespaceVerb  Reason = "tenant boundary: not open to tenants on a namespace"
	ReasonWildcard       Reason = "tenant boundary: wildcards are not open to tenants"
	ReasonReview         Reason = "tenant boundary: reviews of others are not open to tenants"
	ReasonRules          Reason = "tenant boundary: this server lists rules without looking at tenants"
	ReasonPath           Reason = "tenant boundary: path is not open to tenants"
	ReasonTenantPath     Reason = "tenant path: names another tenant"
	ReasonTenantPathAll  Reason = "tenant path: all tenants are open to reads of the system tenant only"
	ReasonTenantPathOnly Reason = "tenant path: not in a namespace of the tenant that the path names; " +
		"grants and the policy file count at the server's own address"
	ReasonOwnerUnknown   Reason = "tenant owner: the namespace could not be looked up"
	ReasonStale          Reason = "tenant state: what belongs to whom is not known yet, or not any more"
	ReasonGrant          Reason = "tenant grant: an access grant of the namespace allows it"
	ReasonAnnounced      Reason = "tenant grant: the access grants that are announced to the caller's tenant"
	ReasonNoTenantObject Reason = "tenant subject: the caller's tenant does not exist"
	ReasonRetired        Reason = "tenant subject: the caller's tenant was deleted"
	ReasonUndated        Reason = "tenant subject: " +
		"the credential may be one of the deleted tenant that had the name before"
	ReasonClosed   Reason = "tenant access: the caller's tenant is closed"
	ReasonReadOnly Reason = "tenant access: the caller's tenant may only read and delete"
	ReasonABAC     Reason = "tenant abac: a line of the policy file allows it"
)

// isFirm reports whether a shadow denies for a reason too: somebody says so of the caller or its
// tenant. Of who is revoked elsewhere authentication says it.
func (r Reason) isFirm() bool {
	return r == ReasonRevoked || r == ReasonRetired || r == ReasonUndated || r == ReasonClosed || r == ReasonReadOnly
}

// Reasons returns all reasons, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNoTenant, ReasonBadTenant, ReasonSystemGroup, ReasonRevoked, ReasonImpersonation, ReasonNotOwned,
		ReasonNotLimited, ReasonNotLabelled, ReasonCluster, ReasonNamespaceVerb, ReasonWildcard, ReasonReview,
		ReasonRules, ReasonPath,
		ReasonTenantPath, ReasonTenantPathAll, ReasonTenantPathOnly, ReasonOwnerUnknown, ReasonStale, ReasonGrant,
		ReasonAnnounced, ReasonNoTenantObject, ReasonRetired, ReasonUndated, ReasonClosed, ReasonReadOnly, ReasonABAC,
	}
}

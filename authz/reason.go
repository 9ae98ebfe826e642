package authz

// A Reason says why the boundary denied or allowed a request. The body of a 403 and audit events
// have it, so it is a constant without user input and without the name of an object or of another
// tenant. docs/reasons.md lists the reasons for operators.
type Reason string

// The reasons, by the part of the boundary.
const (
	ReasonNoTenant       Reason = "tenant subject: the caller has no tenant"
	ReasonBadTenant      Reason = "tenant subject: the caller's tenant is unknown or ambiguous"
	ReasonSystemGroup    Reason = "tenant subject: a tenant's caller must not be in a system group"
	ReasonRevoked        Reason = "tenant subject: the caller is revoked"
	ReasonImpersonation  Reason = "tenant boundary: the impersonated identity is outside the caller's tenant"
	ReasonNotOwned       Reason = "tenant boundary: the namespace is not owned by the caller's tenant"
	ReasonNotLimited     Reason = "tenant boundary: the request is not limited to the caller's tenant"
	ReasonNotLabelled    Reason = "tenant boundary: older objects of this resource do not have the tenant label yet"
	ReasonCluster        Reason = "tenant boundary: the resource is cluster-scoped or unknown"
	ReasonNamespaceVerb  Reason = "tenant boundary: tenants may not make this request on a namespace"
	ReasonWildcard       Reason = "tenant boundary: tenants may not request wildcards"
	ReasonReview         Reason = "tenant boundary: tenants may not review the access of other callers"
	ReasonRules          Reason = "tenant boundary: this server cannot limit the list of rules to the caller's tenant"
	ReasonPath           Reason = "tenant boundary: tenants may not access this path"
	ReasonTenantPath     Reason = "tenant path: the path names another tenant"
	ReasonTenantPathAll  Reason = "tenant path: only the system tenant may read across all tenants"
	ReasonTenantPathOnly Reason = "tenant path: the namespace is not owned by the tenant in the path; " +
		"grants and the policy file apply only to paths without a tenant"
	ReasonOwnerUnknown   Reason = "tenant owner: the owner of the namespace is unknown"
	ReasonStale          Reason = "tenant state: the state of the cluster is unknown or outdated"
	ReasonGrant          Reason = "tenant grant: an access grant of the namespace allows the request"
	ReasonAnnounced      Reason = "tenant grant: the caller may list the access grants announced to its tenant"
	ReasonNoTenantObject Reason = "tenant subject: the caller's tenant does not exist"
	ReasonRetired        Reason = "tenant subject: the caller's tenant was deleted"
	ReasonUndated        Reason = "tenant subject: the credential may belong to a deleted tenant of the same name"
	ReasonClosed         Reason = "tenant access: the caller's tenant is closed"
	ReasonReadOnly       Reason = "tenant access: the caller's tenant may only read and delete"
	ReasonABAC           Reason = "tenant abac: a rule of the policy file allows the request"
)

// isFirm reports whether the boundary denies for this reason in shadow mode too. An administrator has
// revoked the caller or restricted its tenant.
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

package tenant

// The names under which a tenant is written down. Every key of the project is declared here and
// nowhere else.
const (
	// Domain is the API group of the project's kinds and the domain of its keys.
	Domain = "kubetenant.dev"

	// ExtraKey is the key in user.Info's Extra that carries the caller's tenant, exactly one value.
	// It survives TokenReview, SubjectAccessReview, admission, audit and front proxies. It is
	// lower case, as user.Info demands for impersonation (k8s.io/apiserver
	// pkg/authentication/user, v0.37.1).
	ExtraKey = Domain + "/tenant"

	// SourceKey is the key in user.Info's Extra that names the configured source that
	// authenticated the caller.
	SourceKey = Domain + "/source"

	// KeystoneDomainKey, KeystoneProjectKey and KeystoneRolesKey are the keys in user.Info's
	// Extra that carry the IDs of the user's domain, of the project and, sorted, of the
	// roles of a Keystone token.
	KeystoneDomainKey  = Domain + "/keystone-domain-id"
	KeystoneProjectKey = Domain + "/keystone-project-id"
	KeystoneRolesKey   = Domain + "/keystone-role-ids"

	// Label says on a Namespace whose it is, and on every object in a tenant's namespace the same.
	Label = Domain + "/tenant"

	// ScopeAnnotation limits the rules of a ClusterRoleBinding: "Tenanted" to the caller's own
	// tenant's space, a comma-separated list to those tenants' spaces.
	ScopeAnnotation = Domain + "/scope"
	// ExpiresAnnotation of a RoleBinding or ClusterRoleBinding is when it ceases to count (RFC 3339).
	ExpiresAnnotation = Domain + "/expires"

	// WorkloadUserAnnotation names the user of a pod to schedulers that account by user (Apache
	// YuniKorn, admission controller, 1.7).
	WorkloadUserAnnotation = "yunikorn.apache.org/user.info"

	// CreatorAnnotation says who created an object: compact JSON, written by the server alone.
	CreatorAnnotation = Domain + "/creator"

	// OnBehalfOfAnnotation says of what a controller made for whom it did: the creator of the object
	// that the controller made it from.
	OnBehalfOfAnnotation = Domain + "/on-behalf-of"

	// IdentityAnnotation says with whose rights a controller acts on an object, see [Identity].
	IdentityAnnotation = Domain + "/identity"

	// TakeIdentityAnnotation set to "true" by a caller of the system tenant makes its own identity the
	// object's, with that write: what stood there before asks for nothing.
	TakeIdentityAnnotation = Domain + "/take-identity"

	// ManagedLabel stands on objects that the server keeps as they are, in tenants' namespaces and on
	// their quotas, and names what they come from: "tenant" for a Tenant, "template" for a
	// NamespaceTemplate. Nobody but [ManagerUser] writes such an object.
	ManagedLabel = Domain + "/managed"
	// PreparedAnnotation stands on a Namespace that has all that its tenant's are given: a hash of
	// that and of the Namespace's UID. Nobody but [ManagerUser] writes it.
	PreparedAnnotation = Domain + "/prepared"
	// HeldAnnotation stands on a Namespace that was never prepared, and in which there are to be no
	// Pods before it is. Nobody but [ManagerUser] takes it off.
	HeldAnnotation = Domain + "/held"
	// ReleasingAnnotation names the tenant from which kubectl tenant release is taking a Namespace.
	// Until the release is complete, no caller may give the Namespace to another tenant. Only
	// [ManagerUser] may write it.
	ReleasingAnnotation = Domain + "/releasing"
	// TemplateAnnotation of an object with [ManagedLabel] names its NamespaceTemplate, and behind a
	// slash a hash of what was written.
	TemplateAnnotation = Domain + "/template"
	// OfTenantLabel stands on cluster-scoped objects that were made for a tenant and go with it: the
	// tenant's own label stands in its namespaces alone.
	OfTenantLabel = Domain + "/of-tenant"
	// Finalizer keeps a Tenant that is deleted until all that was its tenant's has gone. Nobody but
	// [ManagerUser] takes it off.
	Finalizer = Domain + "/tenant"
	// TakeBackAnnotation set to "true" on a Tenant that is deleted takes its deletion back while
	// spec.deletionDelay is not over.
	TakeBackAnnotation = Domain + "/take-back"
	// ManagerUser is the user name by which the server keeps what bears [ManagedLabel]:
	// always the system tenant's.
	ManagerUser = "system:kubetenant:tenants"

	// GroupPrefix begins the group that holds all callers of one tenant, see [ID.Group].
	GroupPrefix = "tenant:"
)

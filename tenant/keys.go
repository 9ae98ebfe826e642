// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

// The keys and names that the project writes. A key that several packages use is declared here.
// The page docs/reference/labels-and-annotations.md is generated from these comments.
const (
	// Domain is the API group of the project's kinds and the domain of its keys.
	Domain = "kubetenant.dev"

	// ExtraKey specifies the tenant of the caller and has exactly one value. It is used in
	// TokenReviews, SubjectAccessReviews, admission reviews, audit events and the headers of
	// front proxies. It is lower case because impersonation requires this (k8s.io/apiserver
	// pkg/authentication/user, v0.37.1).
	ExtraKey = Domain + "/tenant"

	// SourceKey specifies the name of the configured source that authenticated the caller.
	SourceKey = Domain + "/source"

	// KeystoneDomainKey specifies the ID of the domain of a Keystone user.
	KeystoneDomainKey = Domain + "/keystone-domain-id"
	// KeystoneProjectKey specifies the ID of the project of a Keystone token.
	KeystoneProjectKey = Domain + "/keystone-project-id"
	// KeystoneRolesKey specifies the sorted IDs of the roles of a Keystone token.
	KeystoneRolesKey = Domain + "/keystone-role-ids"

	// Label specifies the tenant that owns a Namespace. The server adds the same label with the same
	// value to the objects in a tenant's namespace.
	Label = Domain + "/tenant"

	// ScopeAnnotation limits the rules of a ClusterRoleBinding to namespaces. "Tenanted" allows
	// the namespaces of the caller's own tenant. A comma-separated list of tenants allows the
	// namespaces of these tenants.
	ScopeAnnotation = Domain + "/scope"
	// ExpiresAnnotation specifies the time (RFC 3339) at which a RoleBinding or a ClusterRoleBinding
	// expires.
	ExpiresAnnotation = Domain + "/expires"

	// WorkloadUserAnnotation specifies the user of a Pod for schedulers that record usage by
	// user, such as Apache YuniKorn (admission controller, 1.7).
	WorkloadUserAnnotation = "yunikorn.apache.org/user.info"

	// CreatorAnnotation specifies the creator of an object as compact JSON. Only the server writes it.
	CreatorAnnotation = Domain + "/creator"

	// OnBehalfOfAnnotation specifies the user for whom a controller created an object. This user
	// is the creator of the object from which the controller created the annotated object.
	OnBehalfOfAnnotation = Domain + "/on-behalf-of"

	// IdentityAnnotation specifies the identity whose permissions a controller uses for an object, see
	// [Identity].
	IdentityAnnotation = Domain + "/identity"

	// TakeIdentityAnnotation assigns the identity of the writer, a caller of the system tenant,
	// to an object. The value is "true". It applies only to the write that sets it.
	TakeIdentityAnnotation = Domain + "/take-identity"

	// ManagedLabel specifies the source of an object that the server maintains in a tenant's
	// namespaces or for its quota. "tenant" means a Tenant, "template" means a
	// NamespaceTemplate, and "publication" means a Publication. Only [ManagerUser] may write
	// these objects. "fair-use" means a FlowSchema or PriorityLevelConfiguration that the
	// controller maintains, which administrators may also change.
	ManagedLabel = Domain + "/managed"
	// PreparedAnnotation confirms that a Namespace has all objects that its Tenant specifies. The
	// value is a hash of these objects and of the UID of the Namespace. Only [ManagerUser] may write
	// it.
	PreparedAnnotation = Domain + "/prepared"
	// GivenLabelsAnnotation specifies, as a JSON object, the labels that the Tenant set on a
	// Namespace, and the value that each label had before. When the Tenant no longer specifies a
	// label, the server restores this value, or removes the label if the value is null. Only the
	// server writes it.
	GivenLabelsAnnotation = Domain + "/given-labels"
	// HeldAnnotation denies Pods in a Namespace that was never prepared. The server removes it when
	// the Namespace is prepared. Only [ManagerUser] may remove it.
	HeldAnnotation = Domain + "/held"
	// KeystoneAnnotation specifies, as a JSON object, the Keystone project of a Namespace or the
	// Keystone domain of a Tenant. It also contains the roles that the server binds because of
	// the project or the domain. Only [ManagerUser] may write it. An administrator may set it to
	// "" on a Tenant, so that the server records another domain.
	KeystoneAnnotation = Domain + "/keystone"
	// ReleasingAnnotation specifies the tenant from which kubectl tenant release is taking a
	// Namespace. Until the release is complete, no caller may assign the Namespace to another tenant.
	// Only [ManagerUser] may write it.
	ReleasingAnnotation = Domain + "/releasing"
	// TemplateAnnotation specifies the NamespaceTemplate of an object with [ManagedLabel]. The
	// value is the name of the template, a slash, and a hash of the written content.
	TemplateAnnotation = Domain + "/template"
	// PublishAnnotation publishes an object of the system tenant to tenants. "*" means all
	// tenants. Otherwise, the value is a comma-separated list of tenant IDs. The server creates
	// the Publication.
	PublishAnnotation = Domain + "/publish"
	// PublicationLabel specifies the Publication of a copy. Only [ManagerUser] may write it.
	PublicationLabel = Domain + "/publication"
	// PublishedAnnotation specifies a hash of published content. On a Publication and on its
	// source, it is the hash of the content whose author the server checked. On a copy, it is
	// the hash of the written content. Only the server writes it.
	PublishedAnnotation = Domain + "/published"
	// PruneAnnotation confirms on a Publication that its source was deleted and that all copies are to
	// be deleted too. The value is "true".
	PruneAnnotation = Domain + "/prune"
	// PublicationFinalizer retains a deleted Publication until all its copies are deleted. Only
	// [ManagerUser] may remove it.
	PublicationFinalizer = Domain + "/publication"
	// AllowFieldRemovalAnnotation lets a release replace a CustomResourceDefinition of the
	// project with a definition that has fewer fields, if it is set to "true". Objects then lose
	// the removed fields.
	AllowFieldRemovalAnnotation = Domain + "/allow-field-removal"
	// OfTenantLabel specifies the tenant for which a cluster-scoped object was created. The
	// object is deleted with the tenant.
	OfTenantLabel = Domain + "/of-tenant"
	// Finalizer retains a deleted Tenant until its deletion policy has been applied. Only
	// [ManagerUser] may remove it.
	Finalizer = Domain + "/tenant"
	// TakeBackAnnotation cancels the deletion of a tenant's namespaces and objects if it is set to
	// "true" on the Tenant before spec.deletionDelay has passed. The Tenant itself is deleted.
	TakeBackAnnotation = Domain + "/take-back"
	// TenantUIDAnnotation specifies the UID of the Tenant for which TenantMembers were written.
	// If the tenant's name was used before, TenantMembers with another UID or without a UID have
	// no effect. Only the server writes it.
	TenantUIDAnnotation = Domain + "/tenant-uid"
	// ManagerUser is the user name with which the server writes objects with [ManagedLabel]. It always
	// belongs to the system tenant.
	ManagerUser = "system:kubetenant:tenants"

	// GroupPrefix is the prefix of the group of all callers of a tenant, see [ID.Group].
	GroupPrefix = "tenant:"
	// LevelGroupPrefix is the prefix of the group that determines the priority level of a tenant's
	// requests. Only API Priority and Fairness sees this group.
	LevelGroupPrefix = "kubetenant:level:"
)

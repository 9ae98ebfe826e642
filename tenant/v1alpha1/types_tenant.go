// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindTenant is the kind of [Tenant].
const KindTenant = "Tenant"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=tn,categories=kubetenant
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.id`
// +kubebuilder:printcolumn:name="Access",type=string,JSONPath=`.spec.access`
// +kubebuilder:printcolumn:name="Suspension",type=string,JSONPath=`.spec.suspension`,description="The stricter of suspension and access applies."
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces.total`
// +kubebuilder:printcolumn:name="Prepared",type=string,JSONPath=`.status.conditions[?(@.type=="Prepared")].status`,description="Whether the server has prepared every namespace."
// +kubebuilder:printcolumn:name="Deleting",type=string,JSONPath=`.status.conditions[?(@.type=="Deleting")].reason`,priority=1,description="The current step of the deletion."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec.id.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') ? self.metadata.name == self.spec.id : self.metadata.name.matches('[.][0-9a-f]{8}$') && self.metadata.name.size() == self.spec.id.size() + 9 && self.metadata.name.startsWith(self.spec.id.lowerAscii().replace('_', '-').replace('.', '-') + '.')",message="metadata.name must be this ID, or the name that kubectl tenant create-tenant generates if the ID is not a DNS label",fieldPath=".spec.id"

// Tenant specifies a tenant of the cluster, the access of its callers, and the content of its
// namespaces. The owner of a namespace is specified only by the label kubetenant.dev/tenant of the
// namespace. The name of a Tenant is derived from its ID, so each ID has at most one Tenant.
type Tenant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the tenant, the access of its callers, and the content of its namespaces.
	// +required
	Spec TenantSpec `json:"spec"`
	// status reports the observed state of the tenant. The server writes it.
	// +optional
	Status TenantStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// TenantList is a list of Tenants.
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Tenant `json:"items"`
}

// +kubebuilder:validation:XValidation:rule="!(has(self.quota) && 'count/namespaces' in self.quota && has(self.namespaces) && has(self.namespaces.max))",message="must not have the key count/namespaces if spec.namespaces.max is set",fieldPath=".quota"
// +kubebuilder:validation:XValidation:rule="!has(self.namespaces) || !has(self.namespaces.prefix) || self.id.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && !self.id.contains('--')",message="must not be set if spec.id is not a lower-case DNS label or contains --",fieldPath=".namespaces.prefix"
// +kubebuilder:validation:XValidation:rule="(has(self.replaces) ? self.replaces : '') == (has(oldSelf.replaces) ? oldSelf.replaces : '')",message="field is immutable",fieldPath=".replaces"

// TenantSpec specifies a tenant, the access of its callers, and the content of its namespaces.
type TenantSpec struct {
	// id specifies the ID of the tenant, as in credentials and in the label of namespaces; immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['system', 'all', 'tenant'])",message="is reserved"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	ID string `json:"id"`
	// access specifies the access of the tenant's callers, including its service accounts; defaults to
	// Open. Open has no restrictions. ReadOnly allows get, list, watch and delete, and reading the
	// subresources status, scale and log. Closed allows only self reviews, such as kubectl auth
	// whoami. A change to a stricter value ends the active connections that the new value does not
	// allow.
	// +kubebuilder:validation:Enum=Open;ReadOnly;Closed
	// +kubebuilder:default=Open
	// +optional
	Access TenantAccess `json:"access,omitempty"`
	// suspension specifies the access of the tenant's callers while the tenant is suspended: ReadOnly
	// or Closed. The stricter of suspension and access applies. kubectl tenant suspend and kubectl
	// tenant resume write this field. If the Tenant is stored in Git, omit the field in Git.
	// +kubebuilder:validation:Enum="";ReadOnly;Closed
	// +optional
	Suspension TenantAccess `json:"suspension,omitempty"`
	// admins specifies the subjects that have the ClusterRole admin in every namespace of the tenant.
	// If kubetenant evaluates RBAC in the server, the subjects also have the ClusterRole
	// kubetenant:tenant-admin, which allows creating namespaces of the tenant. The writer of an admin
	// must be allowed to bind both roles in the whole cluster. The list is atomic.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	Admins []Subject `json:"admins,omitempty"`
	// bindings specifies the ClusterRoles that the server binds in every existing and future namespace
	// of the tenant. The writer of a binding must be allowed to bind the role in the whole cluster.
	// The list is atomic.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(b, self.exists_one(c, c.clusterRole == b.clusterRole))",message="must not contain two bindings with the same ClusterRole"
	// +listType=atomic
	// +optional
	Bindings []TenantBinding `json:"bindings,omitempty"`
	// memberRoles specifies the ClusterRoles that the tenant itself may bind with its TenantMembers.
	// The writer of a role must be allowed to bind it in the whole cluster. The list is atomic.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	MemberRoles []string `json:"memberRoles,omitempty"`
	// namespaces specifies the labels, names, number and templates of the tenant's namespaces.
	// +optional
	Namespaces TenantNamespacesSpec `json:"namespaces,omitempty"`
	// quota specifies the limits of the tenant in all of its namespaces together. The keys are
	// the resource names of a ResourceQuota, such as pods, requests.cpu and
	// count/deployments.apps. The server creates a TenantQuota with these limits. If empty, an
	// administrator may create a TenantQuota for the tenant.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == int || !self[k].startsWith('-'))",message="a limit must not be negative"
	// +optional
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// fairUse specifies the limits and the priority level of the requests from the tenant's
	// callers. Unset fields default to fairUse in the configuration.
	// +optional
	FairUse FairUse `json:"fairUse,omitzero"`
	// deletionPolicy specifies the effect of deleting the Tenant; defaults to Protect. Protect
	// rejects the deletion. Delete deletes the tenant's namespaces and all objects in them.
	// Orphan retains the namespaces and their label. Delete and Orphan both delete the tenant's
	// bindings and quota, and retire its ID.
	// +kubebuilder:validation:Enum=Protect;Delete;Orphan
	// +kubebuilder:default=Protect
	// +optional
	DeletionPolicy TenantDeletionPolicy `json:"deletionPolicy,omitempty"`
	// deletionDelay specifies the time between the deletion of the Tenant and the first deletion of an
	// object, such as 30m or 1h; at most 168h; defaults to 0s. During this time, the tenant's callers
	// may only read and delete. The annotation kubetenant.dev/take-back: "true", set during this time, cancels
	// the deletion of the tenant's objects. Only the Tenant and the bindings that it specifies are
	// then deleted.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('168h')",message="must be at most 168h"
	// +optional
	DeletionDelay *metav1.Duration `json:"deletionDelay,omitempty"`
	// replaces specifies the UID of the deleted Tenant that had the ID before; immutable. The command
	// kubectl tenant retired prints this UID. If unset, the ID of a deleted tenant remains retired.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Replaces string `json:"replaces,omitempty"`
	// acceptUndated specifies whether the server accepts credentials without an issue time for a
	// tenant that replaces a deleted tenant; defaults to false. Entries of token and password files,
	// opaque tokens, and identities from front proxies have no issue time. With an unmodified
	// kube-apiserver, client certificates have no issue time either.
	// +optional
	AcceptUndated bool `json:"acceptUndated,omitempty"`
}

// TenantDeletionPolicy specifies the effect of deleting a Tenant.
type TenantDeletionPolicy string

// The deletion policies.
const (
	// TenantDeletionProtect rejects the deletion.
	TenantDeletionProtect TenantDeletionPolicy = "Protect"
	// TenantDeletionDelete deletes the tenant's namespaces and all objects in them.
	TenantDeletionDelete TenantDeletionPolicy = "Delete"
	// TenantDeletionOrphan retains the namespaces with their labels and objects. The server deletes
	// the bindings, quotas and TenantMembers that it created for the Tenant.
	TenantDeletionOrphan TenantDeletionPolicy = "Orphan"
)

// TenantNamespacesSpec specifies the labels, names, number and templates of a tenant's namespaces.
type TenantNamespacesSpec struct {
	// labels specifies the labels of each namespace. The server sets them at creation and overwrites
	// the values of the creator. The tenant cannot change them. If a label is removed from this field,
	// the server restores the value that the namespace had before, or removes the label from the
	// namespace if it had none.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)$'))",message="keys must be valid label keys"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('kubetenant.dev/') && k != 'kubernetes.io/metadata.name' && k != 'pod-security.kubernetes.io/enforce')",message="keys must not begin with kubetenant.dev/, and must not be kubernetes.io/metadata.name or pod-security.kubernetes.io/enforce (use podSecurity)"
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`
	// podSecurity specifies the level that PodSecurity admission enforces in each namespace. The
	// tenant may set a stricter level. In namespaces that the tenant creates, the level defaults to
	// admission.namespace.podSecurity of the configuration. If the field is removed, the server
	// restores the earlier level of each namespace.
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	// +optional
	PodSecurity string `json:"podSecurity,omitempty"`
	// prefix specifies whether the names of the namespaces must begin with "<id>--". Required rejects
	// other names for new namespaces and reserves this prefix for the tenant. It applies even if
	// admission.namespace.namespacePrefix of the configuration is None. Existing namespaces are not
	// affected.
	// +kubebuilder:validation:Enum=Required
	// +optional
	Prefix NamespacePrefix `json:"prefix,omitempty"`
	// max specifies the maximum number of namespaces of the tenant, including namespaces that are
	// being deleted. It is the limit count/namespaces of the tenant's TenantQuota. Existing namespaces
	// above the limit are not deleted.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Max *int32 `json:"max,omitempty"`
	// templates specifies the names of NamespaceTemplates. The server creates their objects in every
	// existing and future namespace. While a named template does not exist, the server retains its
	// objects, and the status reports no namespace as prepared. The list is atomic.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u == t))",message="must not contain duplicates"
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +listType=atomic
	// +optional
	Templates []string `json:"templates,omitempty"`
}

// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`

// LabelValue is the value of a label.
type LabelValue string

// TenantBinding specifies a ClusterRole that is bound in every namespace of a tenant.
type TenantBinding struct {
	// clusterRole specifies the name of the ClusterRole. No two bindings may have the same
	// ClusterRole.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!(self in ['.', '..']) && !self.contains('/') && !self.contains('%')",message="must be a valid ClusterRole name"
	// +required
	ClusterRole string `json:"clusterRole"`
	// subjects specifies the subjects that have the ClusterRole. The list is atomic.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +required
	Subjects []Subject `json:"subjects"`
}

// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == (has(self.__namespace__) && self.__namespace__ != '')",message="must be set for a ServiceAccount and empty for a User or Group",fieldPath=".namespace"
// +kubebuilder:validation:XValidation:rule="self.kind != 'ServiceAccount' || self.name.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="must be a valid ServiceAccount name",fieldPath=".name"
// +kubebuilder:validation:XValidation:rule="!has(self.apiGroup) || self.apiGroup == '' || self.kind != 'ServiceAccount'",message="must be empty for a ServiceAccount",fieldPath=".apiGroup"

// Subject specifies a user, a group, or a service account in one of the tenant's namespaces.
type Subject struct {
	// kind specifies the kind of the subject: User, Group or ServiceAccount.
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	// +required
	Kind string `json:"kind"`
	// apiGroup specifies the API group of the subject; defaults to rbac.authorization.k8s.io for a
	// user or a group. Must be empty for a service account.
	// +kubebuilder:validation:Enum="";rbac.authorization.k8s.io
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// name specifies the name of the subject, as in RBAC. Must not be a reserved name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// namespace specifies the namespace of a service account. The tenant must own the namespace. Must
	// be empty for a user or a group.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

const (
	// AdminRole is the ClusterRole of a tenant's admins in its namespaces.
	AdminRole = "admin"
	// NamespacesRole is the ClusterRole that allows a tenant's admins to create, label and delete
	// namespaces and to write TenantMembers.
	NamespacesRole = "kubetenant:tenant-admin"
	// MemberRole is the ClusterRole that allows every caller of a tenant to read its namespaces,
	// Tenant and quota.
	MemberRole = "kubetenant:tenant-member"
)

// The conditions of a Tenant.
const (
	// ConditionPrepared reports whether every namespace has the specified content.
	ConditionPrepared = "Prepared"
	// ConditionReady reports whether the Tenant is prepared and needs no action from an
	// administrator.
	ConditionReady = "Ready"
	// ConditionSuspended reports whether the access of the tenant's callers is restricted.
	ConditionSuspended = "Suspended"
	// ConditionKeystone reports whether the tenant's namespaces follow the projects of its Keystone
	// domain. Only tenants that have or had a Keystone domain have this condition.
	ConditionKeystone = "KeystoneSynced"
)

// The reasons of [ConditionKeystone].
const (
	ReasonSynced          = "Synced"
	ReasonDomainMissing   = "DomainMissing"   // no domain maps to the tenant
	ReasonDomainAmbiguous = "DomainAmbiguous" // several domains map to the tenant
	ReasonDomainChanged   = "DomainChanged"   // another domain maps to the tenant
	ReasonDomainDisabled  = "DomainDisabled"
	ReasonProjectsMissing = "ProjectsMissing" // many projects are missing, so that the server removes nothing
	ReasonRolesMissing    = "RolesMissing"    // many roles are missing, and the bindings remain for 24 hours
	ReasonProjectsSkipped = "ProjectsSkipped" // some projects have no namespace
	ReasonKeystoneNotRead = "NotRead"         // Keystone cannot be read
	ReasonKeystoneFailed  = "WriteFailed"     // a write to the cluster failed
)

// The reasons of [ConditionReady] and [ConditionSuspended]. If a Tenant is suspended, the reason
// of ConditionSuspended is its access.
const (
	ReasonReady          = "Ready"
	ReasonManyNamespaces = "TooManyNamespaces"
	ReasonOtherNames     = "OtherNames" // namespaces without the required prefix
	ReasonOpen           = "Open"
)

// The reasons of [ConditionPrepared].
const (
	ReasonPrepared  = "Prepared"
	ReasonPreparing = "Preparing"
	ReasonFailed    = "Failed"
	ReasonSubject   = "SubjectRefused"
	ReasonQuota     = "QuotaTaken"
	ReasonTemplate  = "TemplateRefused"
)

// The reasons that report the state of the project's CustomResourceDefinitions.
const (
	ReasonDefinition       = "DefinitionMissing"   // a definition is missing, outdated or not established
	ReasonDefinitionUsable = "DefinitionInstalled" // the reason of an event
)

// The conditions of a Tenant that is being deleted.
const (
	// ConditionDeleting reports the current step of the deletion.
	ConditionDeleting = "Deleting"
	// ConditionNamespacesGone reports whether the tenant has no namespace left.
	ConditionNamespacesGone = "NamespacesGone"
	// ConditionDeletionHeld reports why the deletion waits.
	ConditionDeletionHeld = "DeletionHeld"
)

// The reasons of [ConditionDeleting], [ConditionNamespacesGone] and [ConditionDeletionHeld].
const (
	ReasonNamespaces = "Namespaces" // namespaces are being deleted, or all are deleted
	ReasonStuck      = "Stuck"      // the deletion waits for namespaces, other objects or finalizers
	ReasonSettling   = "Settling"   // before the second check for namespaces
	ReasonRetiring   = "Retiring"   // the other objects are being deleted
	ReasonProtected  = "Protected"
	ReasonTooMany    = "TooMany"
	ReasonDelayed    = "Delayed"   // spec.deletionDelay has not passed
	ReasonTakenBack  = "TakenBack" // the reason of an event after a canceled deletion
	ReasonReleased   = "Released"  // the deletion no longer waits
)

// TenantStatus reports the observed state of a tenant.
type TenantStatus struct {
	// observedGeneration is the generation of the Tenant to which the rest of the status applies.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// namespaces reports the number of the tenant's namespaces that are not being deleted.
	// +optional
	Namespaces TenantNamespacesStatus `json:"namespaces,omitempty"`
	// quota is the name of the TenantQuota that the server created from spec.quota.
	// +optional
	Quota string `json:"quota,omitempty"`
	// conditions contains Ready, Prepared and Suspended. Ready reports whether the Tenant is
	// prepared and needs no action from an administrator. Prepared reports whether every
	// namespace has the specified content. Suspended reports whether the access of the tenant's
	// callers is restricted. While the Tenant is being deleted, Deleting reports the current
	// step, NamespacesGone reports whether the tenant has no namespace left, and DeletionHeld
	// reports why the deletion waits. KeystoneSynced reports whether the namespaces follow the
	// projects of a Keystone domain.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantNamespacesStatus reports the number of a tenant's namespaces that are not being deleted.
type TenantNamespacesStatus struct {
	// total is the number of all namespaces that are not being deleted.
	// +optional
	Total int32 `json:"total"`
	// prepared is the number of namespaces that have the specified content.
	// +optional
	Prepared int32 `json:"prepared"`
	// failed is the number of namespaces that the server failed to prepare in its last attempt.
	// +optional
	Failed int32 `json:"failed"`
}

// TenantAccess specifies the access of a tenant's callers.
type TenantAccess string

// The values of TenantAccess.
const (
	// TenantAccessOpen does not restrict the callers.
	TenantAccessOpen TenantAccess = "Open"
	// TenantAccessReadOnly allows get, list, watch and delete, and reading the subresources status,
	// scale and log.
	TenantAccessReadOnly TenantAccess = "ReadOnly"
	// TenantAccessClosed allows only self reviews.
	TenantAccessClosed TenantAccess = "Closed"
)

// NamespacePrefix specifies whether the names of a tenant's namespaces have a prefix.
type NamespacePrefix string

const (
	// NamespacePrefixRequired requires the prefix "<tenant>--" and reserves it for the tenant. The
	// reservation applies to every caller.
	NamespacePrefixRequired NamespacePrefix = "Required"
	// NamespacePrefixNone requires no prefix. A tenant then cannot use a name that another tenant
	// already uses. The conflict reveals that the name is in use.
	NamespacePrefixNone NamespacePrefix = "None"
)

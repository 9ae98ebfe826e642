// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindAccessGrant is the kind of [AccessGrant].
const KindAccessGrant = "AccessGrant"

// ConditionAccepted is the condition of an AccessGrant that reports whether its grantor still
// has the granted rights. The server ignores a grant if this condition is false.
const ConditionAccepted = "Accepted"

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=grant,categories=kubetenant
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.from.tenant`
// +kubebuilder:selectablefield:JSONPath=`.spec.announce`
// +kubebuilder:selectablefield:JSONPath=`.status.announcedTo`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.from.tenant`,description="The tenant of the callers."
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Expired",type=boolean,JSONPath=`.status.expired`
// +kubebuilder:printcolumn:name="Expires",type=string,format=date-time,JSONPath=`.spec.expires`
// +kubebuilder:printcolumn:name="Last used",type=date,JSONPath=`.status.lastUsed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Grantor",type=string,JSONPath=`.spec.grantor.user`,priority=1

// AccessGrant allows callers of another tenant to access resources in the namespace of the grant.
type AccessGrant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the callers, and the requests that the grant allows.
	// +required
	Spec AccessGrantSpec `json:"spec"`
	// status reports whether the grant is valid. Only callers of the system tenant may write it.
	// +optional
	Status AccessGrantStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// AccessGrantList is a list of AccessGrants.
type AccessGrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AccessGrant `json:"items"`
}

// AccessGrantSpec specifies the callers of a grant, and the requests that the grant allows.
type AccessGrantSpec struct {
	// from specifies the callers that may use the grant. They belong to one tenant, which is not the
	// owner of the namespace.
	// +required
	From AccessGrantFrom `json:"from"`
	// to specifies the allowed requests in the namespace of the grant. Must not contain wildcards.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +required
	To []AccessGrantRule `json:"to"`
	// expires specifies the time at which the grant expires. If unset, the grant does not
	// expire.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// announce specifies whether all callers of the tenant in spec.from.tenant may list and watch this
	// grant. These callers see the whole grant, including its grantor. The announcement takes effect
	// when the server sets status.announcedTo. Defaults to false.
	// +optional
	Announce bool `json:"announce,omitempty"`
	// grantor records the writer of this spec. The server sets this field and overwrites values
	// from clients.
	// +optional
	Grantor *AccessGrantor `json:"grantor,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="(has(self.users) && size(self.users) > 0) || (has(self.groups) && size(self.groups) > 0) || (has(self.serviceAccounts) && size(self.serviceAccounts) > 0)",message="must specify at least one of users, groups and serviceAccounts"

// AccessGrantFrom specifies callers of one tenant. A caller that matches any of the lists may use
// the grant.
type AccessGrantFrom struct {
	// tenant specifies the ID of the callers' tenant. Must be neither the owner of the namespace nor
	// the system tenant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['system', 'all', 'tenant'])",message="is reserved"
	// +required
	Tenant string `json:"tenant"`
	// users specifies the names of users. Must not contain "*".
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^*]*$`
	// +listType=set
	// +optional
	Users []string `json:"users,omitempty"`
	// groups specifies the names of groups. The group "tenant:<id>" contains all callers of the
	// tenant. Must not contain "*".
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^*]*$`
	// +listType=set
	// +optional
	Groups []string `json:"groups,omitempty"`
	// serviceAccounts specifies service accounts that belong to the tenant.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	ServiceAccounts []ServiceAccountName `json:"serviceAccounts,omitempty"`
}

// ServiceAccountName specifies a service account.
type ServiceAccountName struct {
	// namespace specifies the namespace of the service account.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
	// name specifies the name of the service account.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// AccessGrantRule specifies verbs on resources in the namespace of the grant.
type AccessGrantRule struct {
	// apiGroups specifies the API groups of the resources. The empty string is the core group.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^*]*$`
	// +required
	APIGroups []string `json:"apiGroups"`
	// resources specifies the lower-case plural names of resources, such as pods, and of subresources,
	// such as pods/log. Must not contain namespaces or wildcards.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^*]*$`
	// +kubebuilder:validation:items:XValidation:rule="self != 'namespaces' && !self.startsWith('namespaces/')",message="must not be namespaces or a subresource of namespaces"
	// +required
	Resources []string `json:"resources"`
	// resourceNames specifies the names of the objects to which the rule applies. If empty, the rule
	// applies to all objects. If set, the rule does not apply to list, watch and create, because these
	// requests do not name an object.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^*]*$`
	// +optional
	ResourceNames []string `json:"resourceNames,omitempty"`
	// verbs specifies the allowed verbs, as in RBAC. Must not contain wildcards, or verbs that begin
	// with "impersonate".
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[^*]*$`
	// +kubebuilder:validation:items:XValidation:rule="!self.lowerAscii().startsWith('impersonate')",message="impersonation verbs are not allowed"
	// +required
	Verbs []string `json:"verbs"`
}

// AccessGrantor records the writer of a grant, and the owner of the namespace at the time of the
// write.
type AccessGrantor struct {
	// owner records the ID of the tenant that owned the namespace at the time of the write. The grant
	// is valid only while this tenant owns the namespace.
	// +required
	Owner string `json:"owner"`
	// tenant records the ID of the grantor's tenant.
	// +required
	Tenant string `json:"tenant"`
	// user records the user name of the grantor.
	// +required
	User string `json:"user"`
	// uid records the UID of the grantor. It is empty if the grantor has no UID.
	// +optional
	UID string `json:"uid,omitempty"`
	// groups records the groups of the grantor.
	// +optional
	Groups []string `json:"groups,omitempty"`
	// grantee records a digest of the Tenant object that spec.from.tenant named. If this Tenant is
	// deleted, a later tenant with the same ID cannot use the grant.
	// +optional
	Grantee string `json:"grantee,omitempty"`
}

// AccessGrantStatus reports whether a grant is valid.
type AccessGrantStatus struct {
	// conditions contains the condition Accepted. It reports whether the grantor still has the
	// granted rights. A grant without this condition is valid, because the server checked the
	// grant at admission.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// announcedTo reports the ID of the tenant whose callers may list this grant. It is empty if the
	// grant is not announced, or if the grant was written for an earlier tenant with the same ID.
	// +optional
	AnnouncedTo string `json:"announcedTo,omitempty"`
	// expired reports whether the grant has expired.
	// +optional
	Expired bool `json:"expired,omitempty"`
	// lastUsed reports when the grant last allowed a request, accurate to about a minute.
	// +optional
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

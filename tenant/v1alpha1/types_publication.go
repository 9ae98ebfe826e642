// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindPublication is the kind of [Publication].
const KindPublication = "Publication"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pub,categories=kubetenant
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.from.kind`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.from.namespace`
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.from.name`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desired`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.current`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether every selected namespace has the current copy."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters"

// Publication copies an object of the system tenant to namespaces of tenants. The server copies the
// object to each existing and future namespace that the Publication selects. It restores copies
// that differ. It deletes the copies if the Publication or the object is deleted. No tenant can
// change a copy.
type Publication struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the object and the namespaces that get a copy.
	// +required
	Spec PublicationSpec `json:"spec"`
	// status reports how many namespaces have a copy. The server writes it.
	// +optional
	Status PublicationStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// PublicationList is a list of Publications.
type PublicationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Publication `json:"items"`
}

// PublicationSpec specifies an object and the namespaces that get a copy.
type PublicationSpec struct {
	// from specifies the object to copy. The object must be in a namespace of the system tenant. The
	// writer of the Publication must be allowed to get the object, and to create and update objects of
	// its kind in every namespace.
	// +required
	From PublicationSource `json:"from"`
	// tenants specifies the tenants whose namespaces get a copy.
	// +required
	Tenants PublicationTenants `json:"tenants"`
	// namespaceSelector specifies which namespaces of these tenants get a copy; defaults to all of
	// them. It can use only the label kubernetes.io/metadata.name and the labels in
	// spec.namespaces.labels of the Tenant. Tenants cannot change these labels.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// onConflict specifies how the server handles another object of this kind and name that
	// already exists in a namespace: Report or Replace; defaults to Report. To set Replace, the
	// writer must be allowed to delete objects of this kind in every namespace.
	// +kubebuilder:validation:Enum=Report;Replace
	// +optional
	OnConflict PublicationConflict `json:"onConflict,omitempty"`
	// hold specifies whether the server rejects Pods in a new namespace until the namespace has its
	// copy; defaults to false. The server does not reject Pods in a namespace that has been prepared
	// before.
	// +optional
	Hold bool `json:"hold,omitempty"`
}

// PublicationSource specifies the object to copy. In the values of a copy, the server replaces
// "${tenant}" and "${namespace}" with the names of the tenant and the namespace.
type PublicationSource struct {
	// apiVersion specifies the API group and version of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +required
	APIVersion string `json:"apiVersion"`
	// kind specifies the kind of the object: ConfigMap, LimitRange, NetworkPolicy, ResourceQuota,
	// Role, RoleBinding, Secret, or a kind in admission.publication.kinds of the configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`
	// namespace specifies the namespace of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
	// name specifies the name of the object and of its copies.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// PublicationTenants specifies tenants. Exactly one of its fields must be set.
// +kubebuilder:validation:XValidation:rule="(has(self.all) && self.all ? 1 : 0) + (has(self.ids) && size(self.ids) > 0 ? 1 : 0) + (has(self.selector) ? 1 : 0) == 1",message="must set exactly one of all, ids and selector"
type PublicationTenants struct {
	// all specifies whether all tenants are selected, including tenants without a Tenant object;
	// defaults to false.
	// +optional
	All bool `json:"all,omitempty"`
	// ids specifies the IDs of the selected tenants.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	IDs []string `json:"ids,omitempty"`
	// selector selects tenants by the labels of their Tenant objects. An empty selector selects every
	// tenant that has a Tenant object.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// PublicationConflict specifies how the server handles an existing object of the same kind and
// name.
type PublicationConflict string

const (
	// PublicationReport retains the existing object and reports it in the status.
	PublicationReport PublicationConflict = "Report"
	// PublicationReplace replaces the existing object with the copy.
	PublicationReplace PublicationConflict = "Replace"
)

// The reasons of [ConditionReady] of a Publication, in addition to [ReasonFailed].
const (
	ReasonPublished        = "Published"
	ReasonPublishing       = "Publishing"
	ReasonSourceMissing    = "SourceMissing"
	ReasonSourceRefused    = "SourceRefused"    // the kind, type or namespace of the source is not allowed
	ReasonAuthorNotChecked = "AuthorNotChecked" // the author was not checked, or may not publish the source
	ReasonTooLarge         = "TooLarge"         // all copies together are too large
	ReasonConflict         = "Conflict"         // another object has the kind and name
	ReasonInvalid          = "Invalid"          // the source does not decode, or a field is invalid
)

// PublicationStatus reports how many namespaces have a copy.
type PublicationStatus struct {
	// observedGeneration is the generation of the Publication to which the rest of the status applies.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// desired is the number of namespaces that the Publication selects.
	// +optional
	Desired int32 `json:"desired"`
	// current is the number of namespaces that have the current copy.
	// +optional
	Current int32 `json:"current"`
	// failed is the number of namespaces in which the last attempt failed. Namespaces with a conflict
	// are not included.
	// +optional
	Failed int32 `json:"failed"`
	// conflicts is the number of namespaces that have another object with the kind and name of the
	// copy.
	// +optional
	Conflicts int32 `json:"conflicts"`
	// examples contains namespaces in which the last attempt failed, at most 20.
	// +listType=atomic
	// +optional
	Examples []PublicationExample `json:"examples,omitempty"`
	// conditions contains the condition Ready. It reports whether every selected namespace has the
	// current copy.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PublicationExample reports a namespace in which the last attempt failed.
type PublicationExample struct {
	// namespace is the name of the namespace.
	Namespace string `json:"namespace"`
	// message is the error from the last attempt.
	Message string `json:"message"`
}

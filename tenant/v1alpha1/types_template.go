// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// KindNamespaceTemplate is the kind of [NamespaceTemplate].
const KindNamespaceTemplate = "NamespaceTemplate"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nst,categories=kubetenant
// +kubebuilder:printcolumn:name="Kinds",type=string,JSONPath=`.spec.objects[*].kind`
// +kubebuilder:printcolumn:name="Hold",type=boolean,JSONPath=`.spec.hold`,description="Whether Pods in a new namespace wait until the namespace is prepared."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// NamespaceTemplate specifies objects that the server creates in each existing and future namespace
// of a tenant. A Tenant names its templates in spec.namespaces.templates. The server restores
// objects that differ from the template, and deletes objects that have been removed from the
// template.
type NamespaceTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the objects.
	// +required
	Spec NamespaceTemplateSpec `json:"spec"`
}

// +kubebuilder:object:root=true

// NamespaceTemplateList is a list of NamespaceTemplates.
type NamespaceTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceTemplate `json:"items"`
}

// NamespaceTemplateSpec specifies the objects of a template.
type NamespaceTemplateSpec struct {
	// objects specifies the objects in each namespace: ConfigMaps, LimitRanges and
	// ResourceQuotas of v1, and NetworkPolicies of networking.k8s.io/v1. Only the name, labels
	// and annotations of the metadata may be set. In values, the server replaces "${tenant}" and
	// "${namespace}" with the names of the tenant and the namespace. Keys are not changed. The
	// writer of an object must be allowed to create and update objects of its kind in every
	// namespace. The list is atomic.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +required
	Objects []NamespaceTemplateObject `json:"objects"`
	// hold specifies whether the server rejects Pods in a new namespace until the namespace is
	// prepared; defaults to false. If true, no Pod starts before its NetworkPolicy exists, and
	// controllers retry. The server does not reject Pods in a namespace that has been prepared before.
	// +optional
	Hold bool `json:"hold,omitempty"`
}

// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.apiVersion == 'v1' && self.kind in ['ConfigMap', 'LimitRange', 'ResourceQuota'] || self.apiVersion == 'networking.k8s.io/v1' && self.kind == 'NetworkPolicy'",message="must be ConfigMap, LimitRange or ResourceQuota of v1, or NetworkPolicy of networking.k8s.io/v1",fieldPath=".kind"

// NamespaceTemplateObject specifies an object without a namespace. Its other fields depend on its
// kind.
type NamespaceTemplateObject struct {
	// apiVersion specifies the API group and version of the object: v1 or networking.k8s.io/v1.
	// +kubebuilder:validation:MaxLength=100
	// +required
	APIVersion string `json:"apiVersion"`
	// kind specifies the kind of the object: ConfigMap, LimitRange, NetworkPolicy or ResourceQuota.
	// +kubebuilder:validation:MaxLength=100
	// +required
	Kind string `json:"kind"`
	// metadata specifies the name, the labels and the annotations of the object.
	// +required
	Metadata runtime.RawExtension `json:"metadata"`

	// Content is the JSON of the whole object, including the fields above. Decoding sets Content and
	// these fields. Encoding writes only Content.
	Content runtime.RawExtension `json:"-"`
}

// MarshalJSON encodes the content of the object.
func (o NamespaceTemplateObject) MarshalJSON() ([]byte, error) { return o.Content.MarshalJSON() }

// UnmarshalJSON decodes the object and retains all of its fields.
func (o *NamespaceTemplateObject) UnmarshalJSON(data []byte) error {
	var known struct {
		APIVersion string               `json:"apiVersion"`
		Kind       string               `json:"kind"`
		Metadata   runtime.RawExtension `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &known); err != nil {
		return err
	}
	o.APIVersion, o.Kind, o.Metadata = known.APIVersion, known.Kind, known.Metadata
	o.Content = runtime.RawExtension{Raw: bytes.Clone(data)}
	return nil
}

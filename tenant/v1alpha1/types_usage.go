// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindTenantUsage is the kind of [TenantUsage].
const KindTenantUsage = "TenantUsage"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=tu,categories=kubetenant
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.tenant`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.stored.objects`
// +kubebuilder:printcolumn:name="Measured",type=date,JSONPath=`.stored.measuredAt`

// TenantUsage records the resources that the callers and the objects of a tenant used during the
// last 48 hours. Its name is the name of the Tenant. The servers write the object, and no decision
// depends on it. If it is deleted, the servers create it again, but the usage before their last
// restart and the measurement of the objects are lost.
type TenantUsage struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// tenant is the ID of the tenant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Tenant string `json:"tenant"`
	// uid is the UID of the Tenant object. It is empty if the tenant has no Tenant object. The
	// usage of a deleted Tenant with the same name is not included in this TenantUsage.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	UID string `json:"uid,omitempty"`
	// servers contains the usage at each server that handled requests of the tenant. A
	// kubetenant-gateway has no entry, because it belongs to several clusters. An entry is removed if
	// all of its hours are more than 49 hours old. If there are 100 entries, another server reports an
	// error instead of adding an entry.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Servers []ServerUsage `json:"servers,omitempty"`
	// stored reports the objects of the tenant. It is empty until the first measurement.
	// +optional
	Stored *StoredUsage `json:"stored,omitempty"`
}

// +kubebuilder:object:root=true

// TenantUsageList is a list of TenantUsages.
type TenantUsageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantUsage `json:"items"`
}

// ServerUsage reports the usage of a tenant's callers at one server.
type ServerUsage struct {
	// name identifies the server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// started is the start time of the process that wrote the entry last. Another process with the
	// same server name then stops writing the entry.
	// +optional
	Started *metav1.MicroTime `json:"started,omitempty"`
	// hours contains the hours in which the tenant made requests, in chronological order. It contains
	// at most the current hour and the 48 hours before it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=49
	// +optional
	Hours []HourUsage `json:"hours,omitempty"`
}

// HourUsage reports the usage of a tenant's callers at one server in one hour. It is the sum over
// all processes of the server that ran in this hour.
type HourUsage struct {
	// hour is the beginning of the hour.
	// +required
	Hour metav1.Time `json:"hour"`
	// requests is the number of requests and reviews that the tenant boundary checked.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Requests int64 `json:"requests,omitempty"`
	// denied is the number of these requests that the tenant boundary denied. It includes the requests
	// that Shadow mode allowed and Enforce mode would have denied.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Denied int64 `json:"denied,omitempty"`
	// limited is the number of requests that got status 429 because of a limit of the tenant.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Limited int64 `json:"limited,omitempty"`
	// watches is the largest number of watches and other streams that were active at the same time.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Watches int64 `json:"watches,omitempty"`
	// seatMilliseconds is how long the requests occupied seats of API Priority and Fairness, in
	// milliseconds. Only a kube-apiserver with kubetenant records it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	SeatMilliseconds int64 `json:"seatMilliseconds,omitempty"`
}

// StoredUsage reports the objects in the namespaces of a tenant at one time.
type StoredUsage struct {
	// measuredAt is the time at which the measurement ended.
	// +required
	MeasuredAt metav1.Time `json:"measuredAt"`
	// namespaces is the number of the tenant's namespaces.
	// +optional
	Namespaces int64 `json:"namespaces,omitempty"`
	// objects is the number of objects in these namespaces.
	// +optional
	Objects int64 `json:"objects,omitempty"`
	// bytes is the size of the objects as JSON, in bytes. It is larger than the size of the objects in
	// etcd.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// requested reports the resources that the objects request. The keys are the resource names
	// of a ResourceQuota, such as requests.cpu, requests.memory, requests.storage and
	// services.loadbalancers.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
	// incomplete contains the resources whose objects could not be read, such as deployments.apps.
	// These objects are not included in the other fields. It is empty if all objects were read.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Incomplete []string `json:"incomplete,omitempty"`
}

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

// TenantUsage records what the callers and the objects of a tenant used during the last 48 hours. It has the
// name of the Tenant. The servers write it. No decision depends on it. If it is deleted, the servers create it
// again, but the hours before their last restart and the measurement of the objects are lost.
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
	// uid is the UID of the Tenant. It is empty if the tenant has no Tenant. The usage of a deleted Tenant
	// with the same name is not part of this object.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	UID string `json:"uid,omitempty"`
	// servers contains the use of each server that handled requests of the tenant. A kubetenant-gateway has
	// no entry, because it belongs to several clusters. An entry is removed if its hours are older than 49
	// hours. If there are 100 entries, another server reports an error instead of writing its entry.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Servers []ServerUsage `json:"servers,omitempty"`
	// stored specifies the objects of the tenant. It is empty until the first measurement.
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

// ServerUsage is what the callers of a tenant used at one server.
type ServerUsage struct {
	// name identifies the server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// started is when the process started that wrote the entry last. Another process with the same name then
	// stops to write it.
	// +optional
	Started *metav1.MicroTime `json:"started,omitempty"`
	// hours contains the hours with requests in order, at most the present one and the 48 before.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=49
	// +optional
	Hours []HourUsage `json:"hours,omitempty"`
}

// HourUsage is what the callers of a tenant used at one server in one hour. The totals of processes of the
// server that ran in the same hour are added.
type HourUsage struct {
	// hour is the beginning of the hour.
	// +required
	Hour metav1.Time `json:"hour"`
	// requests is the number of requests and reviews that the tenant boundary decided.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Requests int64 `json:"requests,omitempty"`
	// denied is the number of these requests that the tenant boundary denied, or would have denied without
	// Shadow mode.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Denied int64 `json:"denied,omitempty"`
	// limited is the number of requests that were refused with status 429 because of a limit of the tenant.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Limited int64 `json:"limited,omitempty"`
	// watches is the largest number of watches and other streams that were open at the same time.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Watches int64 `json:"watches,omitempty"`
	// seatMilliseconds is how long the requests occupied seats of API Priority and Fairness. Only a
	// kube-apiserver with tenants compiled in records it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	SeatMilliseconds int64 `json:"seatMilliseconds,omitempty"`
}

// StoredUsage specifies the objects in the namespaces of a tenant at one time.
type StoredUsage struct {
	// measuredAt is the time at which the measurement ended.
	// +required
	MeasuredAt metav1.Time `json:"measuredAt"`
	// namespaces is the number of namespaces.
	// +optional
	Namespaces int64 `json:"namespaces,omitempty"`
	// objects is the number of objects.
	// +optional
	Objects int64 `json:"objects,omitempty"`
	// bytes is the size of the objects as JSON. It is larger than their size in etcd.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// requested specifies the resources that the objects request, by the names of a ResourceQuota, such as
	// requests.cpu, requests.memory, requests.storage and services.loadbalancers.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
	// incomplete contains the resources whose objects could not be read, such as deployments.apps. The other
	// numbers are too small by their objects. It is empty if all objects were read.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Incomplete []string `json:"incomplete,omitempty"`
}

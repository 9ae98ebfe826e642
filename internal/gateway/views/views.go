// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package views contains the read-only resources in the group gateway.kubetenant.dev that a gateway
// serves itself. They have their own root path and discovery, so that kubectl reads them like any
// API. The gateway stores no data for them.
//
//   - [Handler] serves the view of the clusters, from the configuration.
//   - [Objects] serves namespaced views of cluster-scoped objects of one cluster.
package views

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Path is the root path of the views. The server URL in a kubeconfig for the views ends with this
// path.
const Path = "/gateway"

// ClustersPath is the prefix of a gateway's paths that name a cluster.
const ClustersPath = "/clusters/"

// MalformedClusterPath is the message of the 400 response to every malformed cluster part of a
// path. It contains no text of the path. "kubectl tenant" recognizes a gateway by this message.
const MalformedClusterPath = "malformed cluster part in the path"

// Resource and Kind are the names of the view of the clusters.
const (
	Resource = "clusters"
	Kind     = "Cluster"
)

const group, version = "gateway.kubetenant.dev", "v1alpha1"

// GroupVersion is the group and version of the views.
var GroupVersion = schema.GroupVersion{Group: group, Version: version}

// Cluster is a cluster that the caller may use. Paths contain its name: /clusters/<name>/...
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            ClusterStatus `json:"status"`
}

// ClusterStatus is the state of a cluster, as observed by the gateway that responds.
type ClusterStatus struct {
	// Reachable reports whether the gateway's data about the cluster is current. If it is not, the
	// gateway denies tenants' requests to the cluster.
	Reachable bool `json:"reachable"`
	// Version is the last version that the cluster's kube-apiserver reported. It is empty before
	// the first report.
	Version string `json:"version,omitempty"`
}

// ClusterList is a list of clusters.
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Cluster `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (c *Cluster) DeepCopyObject() runtime.Object {
	out := *c
	out.ObjectMeta = *c.DeepCopy()
	return &out
}

// DeepCopyObject implements [runtime.Object].
func (l *ClusterList) DeepCopyObject() runtime.Object {
	out := &ClusterList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy(), Items: make([]Cluster, len(l.Items))}
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Cluster)
	}
	return out
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package views contains the read-only resources that a gateway serves itself, in the group
// gateway.kubetenant.dev. They have a root and a discovery of their own, so that kubectl reads them
// like any API. The gateway stores nothing for them.
//
//   - [Handler] serves the view of the clusters, from the configuration.
//   - [Objects] serves namespaced views of cluster-scoped objects of one cluster.
package views

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Path is the root of the views: a kubeconfig's server ends in it.
const Path = "/gateway"

// ClustersPath is the prefix of the paths of a gateway that name one of its clusters.
const ClustersPath = "/clusters/"

// MalformedClusterPath is the message of the 400 response to every malformed cluster part of a
// path. It repeats nothing of the path. "kubectl tenant" recognizes a gateway by it.
const MalformedClusterPath = "malformed cluster part in the path"

// Resource and Kind name the view of clusters.
const (
	Resource = "clusters"
	Kind     = "Cluster"
)

const group, version = "gateway.kubetenant.dev", "v1alpha1"

// GroupVersion is that of the views.
var GroupVersion = schema.GroupVersion{Group: group, Version: version}

// Cluster is a cluster that the caller may use. Its name stands in paths, /clusters/<name>/...
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            ClusterStatus `json:"status"`
}

// ClusterStatus is what the gateway that answers sees of a cluster.
type ClusterStatus struct {
	// Reachable says that what is followed of the cluster is known as it is now: else its
	// tenants' callers are denied.
	Reachable bool `json:"reachable"`
	// Version of its kube-apiserver, as it last said; empty until it did.
	Version string `json:"version,omitempty"`
}

// ClusterList is a list of them.
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

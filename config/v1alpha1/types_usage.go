// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Usage specifies how a server records the resources that each tenant uses. A change takes effect
// when the server restarts.
type Usage struct {
	// server specifies the name of this server in TenantUsages and in usage records. Must be different
	// for each server of a cluster. Must have at most 100 bytes. Defaults to the name of the host.
	// +optional
	Server string `json:"server,omitempty"`
	// cluster specifies the name of the cluster in usage records. Must have at most 253 bytes.
	// Defaults to no name.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// directory specifies the path of the directory in which the server retains usage records until
	// they are acknowledged. No other process may use the directory. The server writes and syncs about
	// 0.4 KB for each tenant every 10 seconds, so do not use the disk of etcd. Required if file or
	// endpoint is set.
	// +optional
	Directory string `json:"directory,omitempty"`
	// file specifies the file to which the server writes usage records. At most one of file and
	// endpoint may be set. If neither is set, the server writes no usage records.
	// +optional
	File *UsageFile `json:"file,omitempty"`
	// endpoint specifies the HTTP endpoint to which the server sends usage records. At most one of
	// file and endpoint may be set.
	// +optional
	Endpoint *UsageEndpoint `json:"endpoint,omitempty"`
}

// UsageFile specifies the file to which a server writes usage records, one JSON object in each
// line.
type UsageFile struct {
	// path specifies the path of the file. Required.
	// +required
	Path string `json:"path"`
	// maxSizeMegabytes specifies the size, in megabytes, at which the server renames the file and
	// begins a new one. Must be between 1 and 1048576. Defaults to 100.
	// +optional
	MaxSizeMegabytes *int `json:"maxSizeMegabytes,omitempty"`
	// maxBackups specifies how many renamed files the server retains. The server deletes the oldest
	// files first. Must not be negative; 0 retains all files. Defaults to 10.
	// +optional
	MaxBackups *int `json:"maxBackups,omitempty"`
}

// UsageEndpoint specifies the HTTP endpoint to which a server sends usage records. The server sends
// the records with POST as application/x-ndjson. A response with a status from 200 to 299
// acknowledges the records, unless the response is an HTML page. The server repeats a request until
// its records are acknowledged, for at most seven days. A request has at most 512 KiB.
type UsageEndpoint struct {
	// url specifies the URL of the endpoint. Must begin with https, unless its host is localhost or a
	// loopback address. Must contain neither user information nor a query. Required.
	// +required
	URL string `json:"url"`
	// caFile specifies the path of a PEM file with the certificate authorities of the endpoint. Must
	// be unset if url begins with http. Defaults to the certificate authorities of the operating
	// system.
	// +optional
	CAFile string `json:"caFile,omitempty"`
	// tokenFile specifies the path of a file with a bearer token. The server reads the file again for
	// each request. Defaults to no token.
	// +optional
	TokenFile string `json:"tokenFile,omitempty"`
	// timeout specifies the maximum duration of a request. Must be between 1s and 5m. Defaults to 30s.
	// +optional
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

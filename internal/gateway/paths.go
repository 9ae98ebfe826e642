// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/internal/gateway/views"
)

// clustersPath is the prefix of paths that name a cluster.
const clustersPath = views.ClustersPath

// errClusterPath is the 400 response to every path with a malformed cluster part. It repeats no
// text of the path.
var errClusterPath = errors.New(views.MalformedClusterPath)

// cutCluster removes the cluster part from the path of a request. It returns the name of the
// cluster, or "" if the path has no cluster part. If nothing follows the cluster part, the rest is
// the root path.
func cutCluster(r *http.Request) (cluster string, rest *http.Request, err error) {
	after, found := strings.CutPrefix(r.URL.Path, clustersPath)
	if !found {
		return "", r, nil
	}
	cluster, path, _ := strings.Cut(after, "/")
	// Reject a nested cluster part, and a name that no cluster can have.
	if first, _, _ := strings.Cut(path, "/"); first == "clusters" || len(validation.IsDNS1123Label(cluster)) > 0 {
		return "", nil, errClusterPath
	}
	prefix := clustersPath + cluster
	if r.URL.RawPath != "" && !strings.HasPrefix(r.URL.RawPath+"/", prefix+"/") { // the prefix contains an escape
		return "", nil, errClusterPath
	}
	return cluster, trimPathPrefix(r, prefix), nil
}

// cutView removes the root of the views from the path of a request. It returns false if the path is
// not below that root.
func cutView(r *http.Request) (rest *http.Request, found bool) {
	if path := r.URL.EscapedPath(); path != views.Path && !strings.HasPrefix(path, views.Path+"/") {
		return nil, false
	}
	return trimPathPrefix(r, views.Path), true
}

// trimPathPrefix returns a copy of a request without the prefix of its path. The request's
// escaped path MUST begin with the prefix.
func trimPathPrefix(r *http.Request, prefix string) *http.Request {
	out := r.Clone(r.Context())
	out.URL.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, prefix), "/")
	if out.URL.RawPath != "" {
		out.URL.RawPath = "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.RawPath, prefix), "/")
	}
	out.RequestURI = out.URL.RequestURI()
	return out
}

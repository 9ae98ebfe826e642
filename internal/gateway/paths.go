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

// clustersPath begins the paths that name a cluster.
const clustersPath = views.ClustersPath

// errClusterPath is the 400 answer to every malformed cluster part: it repeats nothing of it.
var errClusterPath = errors.New(views.MalformedClusterPath)

// cutCluster takes the cluster part off the path of a request, and returns the cluster that it
// names, empty for none. A path that names a cluster and nothing of it is its root.
func cutCluster(r *http.Request) (cluster string, rest *http.Request, err error) {
	after, found := strings.CutPrefix(r.URL.Path, clustersPath)
	if !found {
		return "", r, nil
	}
	cluster, path, _ := strings.Cut(after, "/")
	// as none is called
	if first, _, _ := strings.Cut(path, "/"); first == "clusters" || len(validation.IsDNS1123Label(cluster)) > 0 {
		return "", nil, errClusterPath
	}
	prefix := clustersPath + cluster
	if r.URL.RawPath != "" && !strings.HasPrefix(r.URL.RawPath+"/", prefix+"/") { // an escape in it
		return "", nil, errClusterPath
	}
	return cluster, without(r, prefix), nil
}

// cutView takes the root of the views off the path of a request; false where it is below another.
func cutView(r *http.Request) (rest *http.Request, found bool) {
	if path := r.URL.EscapedPath(); path != views.Path && !strings.HasPrefix(path, views.Path+"/") {
		return nil, false
	}
	return without(r, views.Path), true
}

// without returns a request whose path, as it came, begins with a prefix, without that.
func without(r *http.Request, prefix string) *http.Request {
	out := r.Clone(r.Context())
	out.URL.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, prefix), "/")
	if out.URL.RawPath != "" {
		out.URL.RawPath = "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.RawPath, prefix), "/")
	}
	out.RequestURI = out.URL.RequestURI()
	return out
}

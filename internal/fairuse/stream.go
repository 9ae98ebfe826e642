// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package fairuse

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"
)

// IsUpgrade reports whether a client requests an upgrade of its connection to another protocol.
func IsUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" && httpstream.IsUpgradeRequest(r)
}

// auditPath equals authz.AuditPath, so that this package does not import package authz.
const auditPath = "/kubetenant/audit"

// IsStream reports whether a request is counted as a stream, because the duration of its response
// is not limited. Streams are the long-running requests of kube-apiserver (k8s.io/apiserver
// pkg/server/filters BasicLongRunningRequestCheck, and pkg/server/config.go, v0.37.1), requests
// that follow an audit stream, and all upgrades. info may be nil.
func IsStream(r *http.Request, info *request.RequestInfo) bool {
	if IsUpgrade(r) {
		return true
	}
	if info == nil {
		return false
	}
	if !info.IsResourceRequest {
		return info.Path == auditPath && follows(r) || strings.HasPrefix(info.Path, "/debug/pprof/")
	}
	return info.Verb == "watch" || info.Verb == "proxy" ||
		slices.Contains([]string{"attach", "exec", "proxy", "log", "portforward"}, info.Subresource)
}

// follows reports whether the query parameter follow of a request is true.
func follows(r *http.Request) bool {
	follow, err := strconv.ParseBool(r.URL.Query().Get("follow"))
	return err == nil && follow
}

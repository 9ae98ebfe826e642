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

// IsUpgrade reports whether the client wants another protocol for the connection of a request.
func IsUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" && httpstream.IsUpgradeRequest(r)
}

// auditPath equals authz.AuditPath.
const auditPath = "/kubetenant/audit"

// IsStream reports whether a request is counted as a stream, because its response can last for any
// time. This applies to the long-running requests of kube-apiserver (k8s.io/apiserver
// pkg/server/filters BasicLongRunningRequestCheck, and pkg/server/config.go, v0.37.1), to audit
// streams that the client follows, and to all upgrades. info may be nil.
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

// follows reports whether the parameter follow of a request for an audit stream is true.
func follows(r *http.Request) bool {
	follow, err := strconv.ParseBool(r.URL.Query().Get("follow"))
	return err == nil && follow
}

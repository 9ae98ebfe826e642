// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The responses to requests that two parsers could interpret differently. They contain no text of
// the request.
var (
	errQuery   = errors.New("malformed query")
	errTarget  = errors.New("malformed request target: its scheme must be https or http")
	errTimeout = errors.New("malformed timeout: it must be a duration, for example 30s")
	errPath    = errors.New("malformed path: it has empty segments, dot segments or ambiguous percent-encoding")
	errUpgrade = errors.New("malformed upgrade request: the Upgrade header must specify websocket or SPDY/3.1 " +
		"exactly once, and the request must have no body")
)

// checkRaw returns the response to a request that the gateway rejects, or nil. It rejects
// requests that the gateway and the cluster could interpret differently, and the methods CONNECT
// and TRACE.
func checkRaw(r *http.Request) *apierrors.StatusError {
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return apierrors.NewGenericServerResponse(
			http.StatusMethodNotAllowed, "", schemaNone, "", "method not allowed", 0, false)
	}
	if r.URL.IsAbs() && r.URL.Scheme != "https" && r.URL.Scheme != "http" {
		return apierrors.NewBadRequest(errTarget.Error())
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return apierrors.NewBadRequest(errQuery.Error())
	}
	if !isPlainPath(r.URL.EscapedPath()) {
		return apierrors.NewBadRequest(errPath.Error())
	}
	if !isPlainUpgrade(r) {
		return apierrors.NewBadRequest(errUpgrade.Error())
	}
	return nil
}

// isPlainPath reports whether an escaped path begins with "/" and contains none of the parts that
// parsers interpret differently. These are empty segments, dot segments, backslashes, and the
// escapes of "/", "\", "." and NUL.
func isPlainPath(escaped string) bool {
	if !strings.HasPrefix(escaped, "/") || strings.Contains(escaped, "//") {
		return false
	}
	for segment := range strings.SplitSeq(escaped, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	lower := strings.ToLower(escaped)
	for _, escape := range []string{"%2f", "%5c", "%00", "%2e", `\`} {
		if strings.Contains(lower, escape) {
			return false
		}
	}
	return true
}

// isPlainTimeout reports whether the timeout parameter of a request is missing or a valid duration.
func isPlainTimeout(r *http.Request) bool {
	timeout := r.URL.Query().Get("timeout")
	if timeout == "" {
		return true
	}
	_, err := time.ParseDuration(timeout)
	return err == nil
}

// isPlainUpgrade reports whether a request contains no upgrade, or a single one that
// kube-apiserver supports, without a body.
func isPlainUpgrade(r *http.Request) bool {
	protocols := r.Header["Upgrade"]
	if len(protocols) == 0 {
		return true
	}
	known := strings.EqualFold(protocols[0], "websocket") || strings.EqualFold(protocols[0], "SPDY/3.1")
	return len(protocols) == 1 && known && r.ContentLength == 0 && len(r.TransferEncoding) == 0
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// proxiedResponseHeaders are the headers in the response of a Pod, Service or node that the gateway
// passes to the caller. It also passes headers that begin with one of proxiedResponsePrefixes, but
// not with one of proxyInstructionPrefixes. All responses share the gateway's origin, so headers
// that apply to a whole origin are not in the list. Examples are Clear-Site-Data,
// Strict-Transport-Security, Alt-Svc, Set-Cookie, Service-Worker-Allowed, WWW-Authenticate,
// Access-Control-*.
var proxiedResponseHeaders = []string{
	"Accept-Patch", "Accept-Post", "Accept-Ranges", "Age", "Allow", "Cache-Control", "Connection",
	"Cross-Origin-Embedder-Policy",
	"Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Date", "Etag", "Expires", "Last-Modified", "Link",
	"Location",
	"Permissions-Policy", "Pragma", "Referrer-Policy", "Retry-After", "Server", "Server-Timing", "Sourcemap", "Trailer",
	"Transfer-Encoding", "Upgrade", "Vary", "Via", "Warning",
}

var proxiedResponsePrefixes = []string{"Content-", "Docker-", "Grpc-", "Sec-Websocket-", "X-"}

// proxyInstructionPrefixes are prefixes of response headers that instruct a proxy in front of the
// gateway.
var proxyInstructionPrefixes = []string{
	"X-Accel-",
	"X-Forwarded-",
	"X-Lighttpd-",
	"X-Litespeed-",
	"X-Remote-",
	"X-Sendfile",
}

// removeUnsafeHeaders deletes the headers in the response of a Pod, Service or node that the caller
// must not receive.
func removeUnsafeHeaders(h http.Header) {
	for name := range h {
		canonical := http.CanonicalHeaderKey(name)
		begins := func(prefix string) bool { return strings.HasPrefix(canonical, prefix) }
		allowed := slices.Contains(proxiedResponseHeaders, canonical) || slices.ContainsFunc(proxiedResponsePrefixes, begins)
		if !allowed || strings.Contains(name, "_") || slices.ContainsFunc(proxyInstructionPrefixes, begins) {
			delete(h, name)
		}
	}
}

// finalWriter drops informational responses (RFC 9110, section 15.2). Their headers would bypass
// [removeUnsafeHeaders], and the audit log would contain their status instead of the final status.
type finalWriter struct{ http.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *finalWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is used by [http.ResponseController].
func (w *finalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// callerBody is the body of a caller's request. It records whether the body was malformed or
// incomplete. It is safe for concurrent use.
type callerBody struct {
	io.ReadCloser
	malformed atomic.Bool
}

// Read implements [io.Reader].
func (b *callerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var tooLarge *http.MaxBytesError
	var late net.Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &tooLarge) || errors.As(err, &late) && late.Timeout() {
		return n, err
	}
	if errors.Is(err, http.ErrBodyReadAfterClose) {
		return n, err // the cluster has already responded
	}
	b.malformed.Store(true)
	return n, err
}

// isMalformed reports whether the caller sent a body that cannot be read.
func (b *callerBody) isMalformed() bool { return b != nil && b.malformed.Load() }

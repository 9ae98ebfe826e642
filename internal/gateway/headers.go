// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net"
	"net/http"
	"slices"
	"strings"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// allowedHeaders are the headers of a caller that are forwarded to kube-apiserver, in addition to
// headers that begin with one of allowedPrefixes.
var allowedHeaders = []string{
	"Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "User-Agent", "Traceparent", "X-Stream-Protocol-Version",
}

var allowedPrefixes = []string{"Kubectl-", "Sec-Websocket-"}

// identityHeaders are the headers that are not forwarded to a Pod, Service or node. They identify
// the caller or a proxy in front of the gateway.
var identityHeaders = []string{"Authorization", "Proxy-Authorization", "Forwarded", "X-Real-Ip", "Cookie2"}

var identityPrefixes = []string{"Impersonate-", "X-Remote-", "X-Forwarded-", "Proxy-"}

// ignoredHeaders are the headers of a caller that the gateway ignores. The gateway itself assigns
// the audit ID of a request, and uses the connection's address as the client's address. Otherwise,
// the audit log and the spans would contain values that callers choose.
var ignoredHeaders = []string{auditapi.HeaderAuditID, "X-Forwarded-For", "X-Real-Ip", "Forwarded"}

// readHeaders are the headers that the gateway itself reads, in addition to headers that begin with
// one of identityPrefixes.
var readHeaders = []string{
	"Authorization", "Connection", "Upgrade", "Origin", "Sec-Fetch-Site", "Expect", "Content-Length", "Accept-Language",
	"Transfer-Encoding", "Host", "Te", "Trailer",
}

// removeUnreadHeaders removes the headers that the gateway neither reads nor forwards. It runs
// first, because headers stay in memory as long as the request. A request that may be proxied to a
// Pod, Service or node retains all headers except cookies, which are never forwarded.
func removeUnreadHeaders(r *http.Request) {
	delete(r.Header, "Cookie")
	if strings.Contains(r.URL.Path, "/proxy") {
		return
	}
	for name := range r.Header {
		canonical := http.CanonicalHeaderKey(name)
		if !isForwarded(canonical, false) && !slices.Contains(readHeaders, canonical) &&
			!hasAnyPrefix(canonical, identityPrefixes) {
			delete(r.Header, name)
		}
	}
}

// hasAnyPrefix reports whether a header's name begins with one of the prefixes, ignoring case.
func hasAnyPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return len(name) >= len(p) && strings.EqualFold(name[:len(p)], p)
	})
}

// hopByHop are the headers that apply to one connection (RFC 9110, section 7.6.1). The connection
// to the cluster has its own headers of this kind.
var hopByHop = []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// tokenProtocol is the prefix of the websocket subprotocol that contains a token (k8s.io/apiserver
// pkg/authentication/request/websocket, v0.37.1).
const tokenProtocol = "base64url.bearer.authorization.k8s.io." // #nosec G101 -- the beginning of a name

// forwardedHeaders returns the headers of a request that are forwarded. Headers with an underscore
// in their name are never forwarded, because some servers treat an underscore as a hyphen.
func forwardedHeaders(r *http.Request) http.Header {
	info, _ := request.RequestInfoFrom(r.Context())
	proxied := info != nil && info.Subresource == "proxy"
	out := http.Header{}
	for name, values := range r.Header {
		if name = http.CanonicalHeaderKey(name); isForwarded(name, proxied) {
			out[name] = append(out[name], values...)
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	removeTokens(out)
	if id := audit.GetAuditIDTruncated(r.Context()); id != "" {
		out.Set(auditapi.HeaderAuditID, id)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		out.Set("X-Forwarded-For", host)
	}
	return out
}

func isForwarded(name string, proxied bool) bool {
	switch {
	case strings.Contains(name, "_"):
		return false
	case proxied:
		return !slices.Contains(identityHeaders, name) && !hasAnyPrefix(name, identityPrefixes) &&
			name != http.CanonicalHeaderKey(auditapi.HeaderAuditID) && name != "Cookie"
	}
	return slices.Contains(allowedHeaders, name) || hasAnyPrefix(name, allowedPrefixes)
}

// removeTokens removes tokens from the websocket subprotocols in the headers.
func removeTokens(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	var protocols []string
	for _, line := range h[name] {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, tokenProtocol) {
				protocols = append(protocols, protocol)
			}
		}
	}
	if delete(h, name); len(protocols) > 0 {
		h.Set(name, strings.Join(protocols, ", "))
	}
}

// isFromPage reports whether a web page in a browser sent a request, or the request has an Origin
// header. It includes pages of the gateway's own origin, because proxied pages have the same
// origin.
func isFromPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") != "" || site != "" && site != "none"
}

// hasBearerHeader reports whether the Authorization header of a request has the scheme Bearer.
func hasBearerHeader(r *http.Request) bool {
	scheme, _, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	return strings.EqualFold(scheme, "Bearer")
}

// hasToken reports whether a request contains a token in its Authorization header or its websocket
// subprotocols.
func hasToken(r *http.Request) bool {
	return hasBearerHeader(r) || strings.Contains(strings.Join(r.Header["Sec-Websocket-Protocol"], ","), tokenProtocol)
}

// withoutBrowserCredentials returns a request without the credentials that a browser adds to the
// requests of a page. These are the client certificates of the connection, and an Authorization
// header that contains no bearer token.
func withoutBrowserCredentials(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	if !hasBearerHeader(r) {
		out.Header.Del("Authorization")
	}
	if r.TLS != nil {
		connection := *r.TLS
		connection.PeerCertificates, connection.VerifiedChains = nil, nil
		out.TLS = &connection
	}
	return out
}

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

// passed are the headers of a caller that go on to kube-apiserver, beside those that begin
// with one of passedPrefixes.
var passed = []string{
	"Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "User-Agent", "Traceparent", "X-Stream-Protocol-Version",
}

var passedPrefixes = []string{"Kubectl-", "Sec-Websocket-"}

// kept are the headers that do not go on to what is proxied: they speak for the
// caller, or for who forwards.
var kept = []string{"Authorization", "Proxy-Authorization", "Forwarded", "X-Real-Ip", "Cookie2"}

var keptPrefixes = []string{"Impersonate-", "X-Remote-", "X-Forwarded-", "Proxy-"}

// forged are the headers of a caller that nobody here reads as his: the names of requests are ours,
// and where one comes from the connection says. The audit log and spans would believe them.
var forged = []string{auditapi.HeaderAuditID, "X-Forwarded-For", "X-Real-Ip", "Forwarded"}

// read are the headers that the gateway reads and does not forward, beside those that begin with one
// of keptPrefixes.
var read = []string{
	"Authorization", "Connection", "Upgrade", "Origin", "Sec-Fetch-Site", "Expect", "Content-Length", "Accept-Language",
	"Transfer-Encoding", "Host", "Te", "Trailer",
}

// withoutUnread removes the headers that the gateway neither reads nor forwards, before anything else
// is done: they would be held as long as the request. Only a request that may be proxied to a Pod, a
// Service or a node retains others, except cookies, which are never forwarded.
func withoutUnread(r *http.Request) {
	delete(r.Header, "Cookie")
	if strings.Contains(r.URL.Path, "/proxy") {
		return
	}
	for name := range r.Header {
		canonical := http.CanonicalHeaderKey(name)
		if !goesOn(canonical, false) && !slices.Contains(read, canonical) && !beginsWith(canonical, keptPrefixes) {
			delete(r.Header, name)
		}
	}
}

// beginsWith reports whether a header's name begins with one of some prefixes, in any case.
func beginsWith(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return len(name) >= len(p) && strings.EqualFold(name[:len(p)], p)
	})
}

// hopByHop are the headers of one connection (RFC 9110, section 7.6.1): those
// of the next are its own.
var hopByHop = []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// tokenProtocol begins the websocket subprotocol that bears a token (k8s.io/apiserver
// pkg/authentication/request/websocket, v0.37.1).
const tokenProtocol = "base64url.bearer.authorization.k8s.io." // #nosec G101 -- the beginning of a name

// sent returns the headers of a request that go on. Names with an underscore are read as others by
// some servers, and never do.
func sent(r *http.Request) http.Header {
	info, _ := request.RequestInfoFrom(r.Context())
	proxied := info != nil && info.Subresource == "proxy"
	out := http.Header{}
	for name, values := range r.Header {
		if name = http.CanonicalHeaderKey(name); goesOn(name, proxied) {
			out[name] = append(out[name], values...)
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	withoutTokens(out)
	if id := audit.GetAuditIDTruncated(r.Context()); id != "" {
		out.Set(auditapi.HeaderAuditID, id)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		out.Set("X-Forwarded-For", host)
	}
	return out
}

func goesOn(name string, proxied bool) bool {
	switch {
	case strings.Contains(name, "_"):
		return false
	case proxied:
		return !slices.Contains(kept, name) && !beginsWith(name, keptPrefixes) &&
			name != http.CanonicalHeaderKey(auditapi.HeaderAuditID) && name != "Cookie"
	}
	return slices.Contains(passed, name) || beginsWith(name, passedPrefixes)
}

// withoutTokens takes tokens out of the websocket's subprotocols.
func withoutTokens(h http.Header) {
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

// isOfPage reports whether a page in a browser sends a request: pages that are proxied
// share the gateway's origin.
func isOfPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") != "" || site != "" && site != "none"
}

// isBearer reports whether a request bears a token in its header.
func isBearer(r *http.Request) bool {
	scheme, _, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	return strings.EqualFold(scheme, "Bearer")
}

// bearsToken reports whether a request itself says whose it is.
func bearsToken(r *http.Request) bool {
	return isBearer(r) || strings.Contains(strings.Join(r.Header["Sec-Websocket-Protocol"], ","), tokenProtocol)
}

// ofPage returns a request with nothing that a browser sends by itself with each page: neither the
// certificates of its connection nor a password.
func ofPage(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	if !isBearer(r) {
		out.Header.Del("Authorization")
	}
	if r.TLS != nil {
		connection := *r.TLS
		connection.PeerCertificates, connection.VerifiedChains = nil, nil
		out.TLS = &connection
	}
	return out
}

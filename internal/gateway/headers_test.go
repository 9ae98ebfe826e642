// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestForwardedHeaders checks that only listed headers of a caller are forwarded to kube-apiserver.
// Other headers are forwarded only to proxied servers, and only if they identify neither the caller
// nor a forwarder.
func TestForwardedHeaders(t *testing.T) {
	allowed := []string{
		"Accept", "Content-Type", "User-Agent", "Kubectl-Command", "Sec-Websocket-Key", "X-Stream-Protocol-Version",
		"Traceparent", "If-None-Match",
	}
	ofApps := []string{"X-Csrf-Token", "Accept-Language", "Range"}
	dropped := []string{
		"Authorization", "Impersonate-User", "impersonate-group", "IMPERSONATE-EXTRA-a", "Impersonate-Uid",
		"impersonate_user", "X_Remote_User",
		"X-Remote-User", "X-Remote-Extra-A", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip",
		"Proxy-Authorization", "Proxy-Connection", "Cookie", "Audit-Id",
	}
	for subresource, forwarded := range map[string][]string{
		"":      allowed,
		"log":   allowed,
		"proxy": slices.Concat(allowed, ofApps),
	} {
		t.Run(subresource, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.RemoteAddr = "192.0.2.7:1234"
			for _, name := range slices.Concat(allowed, ofApps, dropped) {
				r.Header[name] = []string{"v"}
			}
			r.Header["X-Forwarded-For"] = []string{"203.0.113.1"}
			r.Header["Sec-Websocket-Protocol"] = []string{"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"}
			ctx := request.WithRequestInfo(context.Background(),
				&request.RequestInfo{IsResourceRequest: true, Subresource: subresource})
			got := forwardedHeaders(r.WithContext(ctx))
			want := append([]string{"Sec-Websocket-Protocol", "X-Forwarded-For"}, forwarded...)
			for name := range got {
				if !slices.Contains(want, name) {
					t.Errorf("subresource %q: %s is forwarded", subresource, name)
				}
			}
			for _, name := range want {
				if len(got[name]) != 1 {
					t.Errorf("subresource %q: %s is not forwarded once", subresource, name)
				}
			}
			if value := got.Get("X-Forwarded-For"); value != "192.0.2.7" {
				t.Errorf("X-Forwarded-For is %q", value)
			}
			if value := got.Get("Sec-Websocket-Protocol"); value != "v4.channel.k8s.io" {
				t.Errorf("the subprotocols are %q", value)
			}
		})
	}
}

// FuzzForwardedHeaders checks that no header of a caller is forwarded that could change the
// caller's identity or that applies to one connection.
func FuzzForwardedHeaders(f *testing.F) {
	for _, name := range []string{
		"Accept", "Authorization", "impersonate-user", "Impersonate_User", "X-Remote-Group", "Connection", "x-forwarded-host",
		"Sec-WebSocket-Protocol", "Cookie", "Kubectl-Session", "Audit-ID",
	} {
		f.Add(name, "v", true)
		f.Add(name, "base64url.bearer.authorization.k8s.io.dA, v4.channel.k8s.io", false)
	}
	f.Fuzz(func(t *testing.T, name, value string, proxied bool) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = "192.0.2.7:1"
		r.Header[name] = []string{value}
		info := &request.RequestInfo{IsResourceRequest: true}
		if proxied {
			info.Subresource = "proxy"
		}
		for header, values := range forwardedHeaders(r.WithContext(request.WithRequestInfo(context.Background(), info))) {
			lower := strings.ToLower(header)
			for _, begins := range []string{"impersonate-", "x-remote-", "proxy-", "x-forwarded-"} {
				if strings.HasPrefix(lower, begins) && (lower != "x-forwarded-for" || values[0] != "192.0.2.7") {
					t.Errorf("%q is forwarded: %q", header, values)
				}
			}
			if strings.Contains(header, "_") ||
				slices.Contains([]string{
					"authorization", "cookie", "audit-id", "forwarded", "connection", "upgrade", "te", "trailer", "transfer-encoding",
					"keep-alive",
				}, lower) {
				t.Errorf("%q is forwarded: %q", header, values)
			}
			if lower == "sec-websocket-protocol" && strings.Contains(strings.Join(values, ","), tokenProtocol) {
				t.Errorf("a token is forwarded: %q", values)
			}
		}
	})
}

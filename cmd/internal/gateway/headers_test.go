package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestSentHeaders: nothing of a caller's that is not listed goes on, and nothing at all by which it could be somebody else.
func TestSentHeaders(t *testing.T) {
	mine := []string{"Accept", "Content-Type", "User-Agent", "Kubectl-Command", "Sec-Websocket-Key", "X-Stream-Protocol-Version", "Traceparent", "If-None-Match"}
	ofApps := []string{"X-Csrf-Token", "Accept-Language", "Range"}
	never := []string{"Authorization", "Impersonate-User", "impersonate-group", "IMPERSONATE-EXTRA-a", "Impersonate-Uid", "impersonate_user", "X_Remote_User",
		"X-Remote-User", "X-Remote-Extra-A", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip", "Proxy-Authorization", "Proxy-Connection", "Cookie", "Audit-Id"}
	for subresource, goesOn := range map[string][]string{"": mine, "log": mine, "proxy": slices.Concat(mine, ofApps)} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = "192.0.2.7:1234"
		for _, name := range slices.Concat(mine, ofApps, never) {
			r.Header[name] = []string{"v"}
		}
		r.Header["X-Forwarded-For"] = []string{"203.0.113.1"}
		r.Header["Sec-Websocket-Protocol"] = []string{"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"}
		ctx := request.WithRequestInfo(context.Background(), &request.RequestInfo{IsResourceRequest: true, Subresource: subresource})
		got := sent(r.WithContext(ctx))
		want := append([]string{"Sec-Websocket-Protocol", "X-Forwarded-For"}, goesOn...)
		for name := range got {
			if !slices.Contains(want, name) {
				t.Errorf("of %q goes on: %s", subresource, name)
			}
		}
		for _, name := range want {
			if len(got[name]) != 1 {
				t.Errorf("of %q does not go on: %s", subresource, name)
			}
		}
		if is := got.Get("X-Forwarded-For"); is != "192.0.2.7" {
			t.Errorf("X-Forwarded-For is %q", is)
		}
		if is := got.Get("Sec-Websocket-Protocol"); is != "v4.channel.k8s.io" {
			t.Errorf("the subprotocols are %q", is)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestProxiedResponseHeaders checks that a Pod cannot set headers that apply to the gateway's
// origin, in a response, an informational response or an upgrade.
func TestProxiedResponseHeaders(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	good := []string{
		"Content-Type", "Content-Disposition", "Content-Security-Policy", "Cache-Control", "Etag", "Last-Modified", "Vary",
		"X-Frame-Options", "X-Total-Count", "Link", "Retry-After", "Accept-Ranges", "Grpc-Status",
	}
	bad := []string{
		"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Set-Cookie", "Set-Cookie2", "Service-Worker-Allowed",
		"Www-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Nel", "Report-To", "Reporting-Endpoints", "Refresh",
		"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Public-Key-Pins", "Expect-Ct",
		"Origin-Agent-Cluster", "X-Accel-Redirect", "X-Sendfile", "X-Forwarded-For", "X-Remote-User", "Audit-Id", "X_y",
	}
	c.update(func() {
		c.handler = func(w http.ResponseWriter, r *http.Request) bool {
			for _, name := range append(good, bad...) {
				w.Header()[name] = []string{"v"}
			}
			w.WriteHeader(http.StatusEarlyHints)
			if r.Header.Get("Upgrade") != "" {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
				w.WriteHeader(http.StatusSwitchingProtocols)
				return true
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "hello")
			return true
		}
	})
	check := func(what string, want int, resp *http.Response) {
		t.Helper()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", what, resp.Status, want)
		}
		for _, name := range good {
			if resp.Header.Get(name) == "" {
				t.Errorf("%s: no %s", what, name)
			}
		}
		for _, name := range bad {
			if values := resp.Header[name]; len(values) > 0 && (name != "Audit-Id" || values[0] == "v") {
				t.Errorf("%s: %s: %s", what, name, values)
			}
		}
	}
	const path = podsPath + "/p:80/proxy/x"
	_, _, resp := w.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n\r\n")
	check("HTTP/1.1", http.StatusUnauthorized, resp)
	resp = w.open(t.Context(), "alice-token", http.MethodGet, path, "")
	_ = resp.Body.Close()
	check("HTTP/2", http.StatusUnauthorized, resp)
	_, _, resp = w.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n" +
		"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	check("an upgrade", http.StatusSwitchingProtocols, resp)
}

// TestMalformedBodies checks that a malformed body gets 400, and not an error about the cluster.
func TestMalformedBodies(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	const requests = "kubetenant_gateway_requests_total"
	for what, body := range map[string]string{
		"a size that is not a number": "zz\r\nx\r\n0\r\n\r\n",
		"a size that is too large":    "fffffffffffffffff\r\nx\r\n0\r\n\r\n",
		"a chunk without an end":      "3\r\n{}xxxxx\r\n0\r\n\r\n",
		"text after the last chunk":   "2\r\n{}\r\n0\r\nno trailer\r\n\r\n",
		"a negative size":             "-1\r\n{}\r\n0\r\n\r\n",
	} {
		t.Run(what, func(t *testing.T) {
			before := w.metricSum(requests, "code=400")
			_, _, resp := w.raw("POST " + podsPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n" +
				"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s", resp.Status)
			}
			_ = resp.Body.Close()
			if got := w.metricSum(requests, "code=400") - before; got != 1 {
				t.Errorf("%v requests with status 400, want 1", got)
			}
		})
	}
	if got := w.metricSum(requests, "code=503") + w.metricSum(requests, "code=502"); got != 0 {
		t.Errorf("%v requests with status 502 or 503, want 0", got)
	}
}

// TestUIDIsRejectedUnlessForwarded checks that the gateway rejects a UID that the configuration
// does not forward. Otherwise, the cluster would reject the gateway's request.
func TestUIDIsRejectedUnlessForwarded(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	c.update(func() { c.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true } })
	for _, path := range []string{podsPath, podsPath + "?watch=1", podsPath + "/p/proxy/"} {
		resp := w.open(t.Context(), "alice-token", http.MethodGet, path, "", "Impersonate-User", "carol",
			"Impersonate-Uid", "u9")
		if resp.StatusCode != http.StatusForbidden {
			_ = resp.Body.Close() // the body of a watch does not end
			t.Errorf("%s: %s", path, resp.Status)
			continue
		}
		if _, text := w.read(resp, nil); !strings.Contains(text, "UID") {
			t.Errorf("%s: %s", path, text)
		}
	}
	if received := c.takeRequests(); len(received) != 0 {
		t.Errorf("%d requests were forwarded", len(received))
	}
	if code, text := w.get("alice-token", podsPath, "Impersonate-User", "carol"); code != http.StatusOK {
		t.Errorf("without a UID: %d, %s", code, text)
	}
	w.write("tenancy.yaml", configHeader+clusterEntry("eu1", ", root: true, identity: { withUID: true }"))
	waittest.Until(t, func() error {
		code, text := w.get("alice-token", podsPath, "Impersonate-User", "carol", "Impersonate-Uid", "u9")
		if code != http.StatusOK {
			return fmt.Errorf("with withUID: %d, %s", code, text)
		}
		return nil
	})
	if received := c.takeRequests(); len(received) == 0 ||
		received[len(received)-1].Header.Get("Impersonate-Uid") != "u9" {
		t.Errorf("%v: want the UID", received)
	}
}

// TestOriginOfUpgradesIsForwarded checks that the Origin of an upgrade is forwarded, because the
// cluster requires it for a watch over websocket. The Origin of other requests is not forwarded.
func TestOriginOfUpgradesIsForwarded(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	const origin = "https://console.example.com"
	for _, header := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
		_, _, resp := w.raw("GET " + podsPath + "?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n" +
			"Origin: " + origin + "\r\n" + header + "\r\n")
		want := ""
		if header != "" {
			want = origin
		}
		received := c.takeRequests()
		if len(received) != 1 || received[0].Header.Get("Origin") != want {
			t.Errorf("%q: %s, %v", header, resp.Status, received)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

// TestUnauthenticatedRequestsAreLimited checks the limits of requests whose callers are being
// authenticated, in total and for each address. A request uses the limits until leave is called.
func TestUnauthenticatedRequestsAreLimited(t *testing.T) {
	s := newRequestLimits(maxUnauthenticated, maxUnauthenticatedPerAddress)
	var leave []func()
	enter := func(remote string, want bool) {
		t.Helper()
		left, ok := s.enter(remote)
		if ok != want {
			t.Fatalf("%s: %v, want %v with %d in total", remote, ok, want, s.total)
		}
		if ok {
			leave = append(leave, left)
		}
	}
	for i := range maxUnauthenticatedPerAddress {
		enter(fmt.Sprintf("192.0.2.1:%d", i), true)
	}
	enter("192.0.2.1:1", false)
	enter("[::ffff:192.0.2.1]:1", false)
	for i := range maxUnauthenticatedPerAddress {
		enter(fmt.Sprintf("[2001:db8::%x]:1", i), true)
	}
	enter("[2001:db8::ffff:1]:1", false)
	enter("[2001:db8:0:1::1]:1", true)
	leave[0]()
	leave[0]()
	enter("192.0.2.1:1", true)
	enter("192.0.2.1:1", false)
	for i := 0; s.total < maxUnauthenticated; i++ {
		enter(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), true)
	}
	enter("198.51.100.1:1", false)
	for _, left := range leave {
		left()
	}
	if s.total != 0 || len(s.byAddress) != 0 {
		t.Errorf("%d are left, of %d addresses", s.total, len(s.byAddress))
	}
}

// TestRejectionTimeout checks how long the gateway waits until a client reads the response to a
// rejected request. The timeout is two seconds, or a tenth of a second above the limit of such
// responses.
func TestRejectionTimeout(t *testing.T) {
	g := &Gateway{rejections: newRequestLimits(maxRejections, maxRejectionsPerAddress)}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", http.NoBody)
	r.ProtoMajor = 2
	for i := range maxRejectionsPerAddress + 1 {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		began := time.Now()
		g.flushRejection(&timedWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r)
		want := rejectionTimeout
		if i == maxRejectionsPerAddress {
			want = shortRejectionTimeout
		}
		if waits := w.set[len(w.set)-1].Sub(began); waits < want || waits > want+time.Second {
			t.Errorf("rejection %d waits %v, want %v", i, waits, want)
		}
		if _, ok := g.rejections.enter(r.RemoteAddr); ok != (i < maxRejectionsPerAddress) { // leave is never called
			t.Errorf("rejection %d: another one is within the limits: %t", i, ok)
		}
	}
}

// TestRequestsOverLimitGet429 checks that a request above the limits gets 429, and that its
// connection ends.
func TestRequestsOverLimitGet429(t *testing.T) {
	w := httptest.NewRecorder()
	rejectOverLimit(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", http.NoBody))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Connection") != "close" ||
		w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestUnreadHeadersAreRemoved checks that headers that nothing reads are removed before
// authentication.
func TestUnreadHeadersAreRemoved(t *testing.T) {
	headers := map[string]bool{ // whether the header is retained
		"Cookie":                         false,
		"Cookie2":                        false,
		"X-Other":                        false,
		"Referer":                        false,
		"Impersonate_user":               false,
		"Audit-Id":                       false,
		"Authorization":                  true,
		"Impersonate-User":               true,
		"Impersonate-Extra-Kubetenant.x": true,
		"X-Remote-User":                  true,
		"X-Forwarded-For":                true,
		"User-Agent":                     true,
		"Traceparent":                    true,
		"Kubectl-Command":                true,
		"Sec-Websocket-Protocol":         true,
		"Sec-Fetch-Site":                 true,
		"Origin":                         true,
		"Connection":                     true,
		"Upgrade":                        true,
		"Content-Type":                   true,
	}
	for path, proxied := range map[string]bool{
		"/api/v1/namespaces/acme--web/pods":              false,
		"/api/v1/namespaces/acme--web/services/s/proxy/": true,
	} {
		t.Run(path, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			for name := range headers {
				r.Header[name] = []string{"x"}
			}
			removeUnreadHeaders(r)
			for name, want := range headers {
				t.Run(name, func(t *testing.T) {
					if present := slices.Contains(r.Header[name], "x"); present != (want || proxied && name != "Cookie") {
						t.Errorf("retained: %v", present)
					}
				})
			}
		})
	}
}

// TestRequestsOverLimitAreCounted checks that the metrics count requests above the limits.
func TestRequestsOverLimitAreCounted(t *testing.T) {
	g := &Gateway{unauthenticated: newRequestLimits(0, 0)}
	g.metrics = newGatewayMetrics(g)
	registry := metrics.NewKubeRegistry()
	for _, m := range g.metrics.registerables() {
		if err := registry.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/clusters/made-up/api", http.NoBody))
		if w.Code != http.StatusTooManyRequests {
			t.Fatal(w.Code)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kubetenant_gateway_requests_total [ALPHA] Requests by cluster and HTTP status. A stream is counted when it ends.
# TYPE kubetenant_gateway_requests_total counter
kubetenant_gateway_requests_total{cluster="(none)",code="429"} 3
# HELP kubetenant_gateway_unauthenticated_requests_refused_total [ALPHA] Requests that got 429 because too many `+
		`requests waited for authentication, in total or from one address. They are also in requests_total.
# TYPE kubetenant_gateway_unauthenticated_requests_refused_total counter
kubetenant_gateway_unauthenticated_requests_refused_total 3
`), "kubetenant_gateway_requests_total", "kubetenant_gateway_unauthenticated_requests_refused_total"); err != nil {
		t.Error(err)
	}
}

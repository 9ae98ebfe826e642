// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDenialsBeforeSyncAreNotFinal checks the responses of a server that does not know the state
// of its cluster, while it starts and while it stops. Status 401 and 403 are replaced with 503,
// and their bodies are discarded. Between start and stop, responses are not changed.
func TestDenialsBeforeSyncAreNotFinal(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		want int // while the state is unknown
	}{
		"allowed":           {http.StatusOK, http.StatusOK},
		"no header":         {0, http.StatusOK},
		"not authenticated": {http.StatusUnauthorized, http.StatusServiceUnavailable},
		"denied":            {http.StatusForbidden, http.StatusServiceUnavailable},
		"not found":         {http.StatusNotFound, http.StatusNotFound},
		"too many requests": {http.StatusTooManyRequests, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			var isKnown atomic.Bool
			var stop atomic.Pointer[context.CancelFunc]
			k := &syncState{synced: isKnown.Load}
			server := httptest.NewServer(k.withRetry(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if cancel := stop.Load(); cancel != nil {
					(*cancel)()
				}
				w.Header().Set("Content-Length", "6")
				if c.code != 0 {
					w.WriteHeader(c.code)
				}
				_, _ = io.WriteString(w, "secret")
				_, canFlush := w.(http.Flusher)
				_, canHijack := w.(http.Hijacker)
				if !canFlush || !canHijack {
					t.Error("the ResponseWriter does not support watches and connection upgrades")
				}
			})))
			defer server.Close()
			code, after, body := get(t, server.URL)
			var status metav1.Status
			replaced := c.want == http.StatusServiceUnavailable
			if code != c.want || (after != "") != replaced || strings.Contains(body, "secret") == replaced {
				t.Errorf("unknown: %d, Retry-After %q, %q; want %d", code, after, body, c.want)
			}
			if replaced && (json.Unmarshal([]byte(body), &status) != nil || status.Code != http.StatusServiceUnavailable) {
				t.Errorf("unknown: the body is %q; want a Status", body)
			}
			isKnown.Store(true)
			want := c.code
			if want == 0 {
				want = http.StatusOK
			}
			if code, after, body = get(t, server.URL); code != want || after != "" || body != "secret" {
				t.Errorf("known: %d, Retry-After %q, %q; want %d", code, after, body, want)
			}
			isKnown.Store(false) // a state that has been read once remains known
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			k.serving.Store(&ctx)
			if code, _, _ = get(t, server.URL); code != want {
				t.Errorf("while serving: %d, want %d", code, want)
			}
			stop.Store(&cancel) // while a request is running
			if code, after, _ = get(t, server.URL); code != c.want || (after != "") != replaced {
				t.Errorf("while stopping: %d, Retry-After %q; want %d", code, after, c.want)
			}
		})
	}
}

func get(t *testing.T, url string) (code int, retryAfter, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(text)
}

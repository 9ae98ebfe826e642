// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/loadtest"
)

// BenchmarkFairness measures the latency of a quiet caller in three cases: alone, next to a noisy
// tenant, and as a caller of the noisy tenant. In the last case, the quiet caller and the noisy
// callers share one turn. The tenants' limit on concurrent requests is too high to have an
// effect.
func BenchmarkFairness(b *testing.B) {
	var alone loadtest.Result
	for _, c := range []struct {
		name, token, path string
		clients           int
	}{
		{"alone", "bob-token", globexPods, 0},
		{"noisy", "bob-token", globexPods, loadtest.Noisy},
		{"noisy, first come first served", "alice-token", podsPath, loadtest.Noisy},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newFakeCluster(b, defaultNamespaces())
			w := newFixture(b, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": s})
			config := strings.NewReplacer("watches: 4", "inFlight: 100000").Replace(limitedTo(loadtest.Places, 1000))
			before := w.reloads()
			w.write("tenancy.yaml", config+clusterEntry("eu1", ", root: true"))
			for w.reloads() == before {
				time.Sleep(10 * time.Millisecond)
			}
			s.update(func() { // clear the recorded requests
				s.handler = func(w http.ResponseWriter, _ *http.Request) bool {
					s.takeRequests()
					time.Sleep(loadtest.RequestTime)
					_, _ = io.WriteString(w, "{}")
					return true
				}
			})
			send := func(token, path string) int {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.server.URL+path, http.NoBody)
				if err != nil {
					return 0
				}
				req.Header.Set("Authorization", "Bearer "+token)
				resp, err := w.server.Client().Do(req)
				if err != nil {
					return 0
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				return resp.StatusCode
			}
			if code := send(c.token, c.path); code != http.StatusOK {
				b.Fatal(code)
			}
			b.ResetTimer()
			got := loadtest.Run(b.Context(), c.clients,
				func(int) int { return send("alice-token", podsPath) }, func() int { return send(c.token, c.path) })
			got.Report(b)
			switch c.name {
			case "alone":
				alone = got
			case "noisy":
				if alone.Requests > 0 && (got.P99 > alone.Limit() || got.Refused > 0) {
					b.Errorf("p99 is %v and %d requests are refused, want at most %v and none", got.P99, got.Refused, alone.Limit())
				}
			}
		})
	}
}

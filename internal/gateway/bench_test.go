// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"io"
	"net/http"
	"testing"
)

// BenchmarkGet measures a request through the gateway, including the costs of the client and of the
// fake cluster. make bench-gateway measures the costs of the gateway alone.
func BenchmarkGet(b *testing.B) {
	w, c := newRootFixture(b)
	c.update(func() { // clear the recorded requests
		c.handler = func(w http.ResponseWriter, _ *http.Request) bool {
			c.takeRequests()
			_, _ = io.WriteString(w, "{}")
			return true
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.server.URL+podsPath, http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer alice-token")
		resp, err := w.server.Client().Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

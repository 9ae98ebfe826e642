// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"io"
	"net/http"
	"testing"
)

// BenchmarkGet is a request through the gateway to a stand-in, whose own costs and the client's are
// in it: make bench-gateway measures the gateway's.
func BenchmarkGet(b *testing.B) {
	w, c := rooted(b)
	c.become(func() { // what came is not kept
		c.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			c.sent()
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

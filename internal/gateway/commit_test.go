// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCommit checks that requests get 503 while only some parts of a generation apply. If a part
// panics, this continues until a whole generation applies.
func TestCommit(t *testing.T) {
	g, in := &Gateway{}, &generation{auditing: &auditing{}}
	h := g.whileInForce(func(now *generation) bool { return now == in },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	comes := func(what string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		if again := w.Header().Get("Retry-After") != ""; w.Code != want || again != (want == http.StatusServiceUnavailable) {
			t.Errorf("%s: %d, to be asked for again: %v", what, w.Code, again)
		}
	}
	commit := func(part func()) {
		defer func() { _ = recover() }()
		g.commit(in, []func(){part})
	}
	commit(func() {})
	comes("it is in force", http.StatusNoContent)
	commit(func() { comes("another is about to be", http.StatusServiceUnavailable) })
	comes("that is in force", http.StatusNoContent)
	commit(func() { panic("a part") })
	comes("a part panicked", http.StatusServiceUnavailable)
	commit(func() {})
	comes("a whole one is in force", http.StatusNoContent)
	g.commit(&generation{auditing: &auditing{}}, nil)
	comes("it is in force no more", http.StatusServiceUnavailable)
}

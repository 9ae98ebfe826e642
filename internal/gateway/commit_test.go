// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRequestsDuringCommitGet503 checks that requests get 503 while only some parts of a snapshot
// have been applied. If a part panics, requests get 503 until a whole snapshot has been applied.
func TestRequestsDuringCommitGet503(t *testing.T) {
	g, in := &Gateway{}, &snapshot{auditing: &auditing{}}
	h := g.requireCurrent(func(current *snapshot) bool { return current == in },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	check := func(what string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		if again := w.Header().Get("Retry-After") != ""; w.Code != want || again != (want == http.StatusServiceUnavailable) {
			t.Errorf("%s: %d, Retry-After: %v", what, w.Code, again)
		}
	}
	commit := func(part func()) {
		defer func() { _ = recover() }()
		g.commit(in, []func(){part})
	}
	commit(func() {})
	check("after a commit", http.StatusNoContent)
	commit(func() { check("during a commit", http.StatusServiceUnavailable) })
	check("after the second commit", http.StatusNoContent)
	commit(func() { panic("a part") })
	check("a part panicked", http.StatusServiceUnavailable)
	commit(func() {})
	check("after a complete commit", http.StatusNoContent)
	g.commit(&snapshot{auditing: &auditing{}}, nil)
	check("after another snapshot was committed", http.StatusServiceUnavailable)
}

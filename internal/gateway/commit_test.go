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
			t.Errorf("%s: %d, to be asked for again: %v", what, w.Code, again)
		}
	}
	commit := func(part func()) {
		defer func() { _ = recover() }()
		g.commit(in, []func(){part})
	}
	commit(func() {})
	check("it is in force", http.StatusNoContent)
	commit(func() { check("another is about to be", http.StatusServiceUnavailable) })
	check("that is in force", http.StatusNoContent)
	commit(func() { panic("a part") })
	check("a part panicked", http.StatusServiceUnavailable)
	commit(func() {})
	check("a whole one is in force", http.StatusNoContent)
	g.commit(&snapshot{auditing: &auditing{}}, nil)
	check("it is in force no more", http.StatusServiceUnavailable)
}

package oidc

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

// TestFetchedMeanwhile checks that keys are fetched once for a caller that looks for keys before
// another caller's fetch ends, and fetches them after it.
func TestFetchedMeanwhile(t *testing.T) {
	var fetches atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetches.Add(1)
		_, _ = io.WriteString(w, `{"keys":[]}`)
	}))
	defer server.Close()
	k := newKeySet(t.Context(), apiserver.Issuer{URL: server.URL}, server.Client(), nil)
	k.address = server.URL
	for range 2 { // both callers found nothing
		if keys, err := k.fetch(t.Context(), time.Time{}); keys == nil || err != nil {
			t.Errorf("%v, %v", keys, err)
		}
	}
	if n := fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
	if _, err := k.fetch(t.Context(), k.fetched); err != nil || fetches.Load() != 2 {
		t.Errorf("for a caller that has these keys: %d fetches, %v", fetches.Load(), err)
	}
}

package keystone

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestRenewedMeanwhile: who finds that there is no token that lasts, and comes to log in when
// somebody else just has, does not once more: few logins may follow each other, and the next to
// need one would be refused.
func TestRenewedMeanwhile(t *testing.T) {
	var logins atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Subject-Token", fmt.Sprintf("service-%d", logins.Add(1)))
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":{"expires_at":%q}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer server.Close()
	s, err := newService([]byte("clouds: { kube: { auth: { username: u, password: p, user_domain_name: Default, "+
		"system_scope: all } } }"), "kube", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	renew := func(before string) { // of who saw that token
		t.Helper()
		if err := s.client.Reauthenticate(context.WithValue(t.Context(), renewing{}, before), before); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		renew("")
	}
	if err := s.renew(t.Context()); err != nil || s.client.Token() != "service-1" || logins.Load() != 1 {
		t.Errorf("%v, %s, %d logins", err, s.client.Token(), logins.Load())
	}
	for range 2 {
		renew("service-1")
	}
	if s.client.Token() != "service-2" || logins.Load() != 2 {
		t.Errorf("%s, %d logins", s.client.Token(), logins.Load())
	}
	// which Keystone knows no more
	if err := s.client.Reauthenticate(t.Context(), "service-2"); err != nil || logins.Load() != 3 {
		t.Errorf("%v, %d logins", err, logins.Load())
	}
}

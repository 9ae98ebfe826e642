// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestNoLoginAfterConcurrentRenewal checks that a caller does not log in again if another caller
// has just renewed the token. The number of logins is limited, so the next necessary login could
// otherwise be rejected.
func TestNoLoginAfterConcurrentRenewal(t *testing.T) {
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
	renew := func(before string) { // called with the token that the caller saw
		t.Helper()
		if err := s.client.Reauthenticate(context.WithValue(t.Context(), renewKey{}, before), before); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		renew("")
	}
	if err := s.renewToken(t.Context()); err != nil || s.client.Token() != "service-1" || logins.Load() != 1 {
		t.Errorf("%v, %s, %d logins", err, s.client.Token(), logins.Load())
	}
	for range 2 {
		renew("service-1")
	}
	if s.client.Token() != "service-2" || logins.Load() != 2 {
		t.Errorf("%s, %d logins", s.client.Token(), logins.Load())
	}
	// Keystone no longer accepts this token.
	if err := s.client.Reauthenticate(t.Context(), "service-2"); err != nil || logins.Load() != 3 {
		t.Errorf("%v, %d logins", err, logins.Load())
	}
}

// TestNoRequestAfterConcurrentValidation checks that Keystone is called only once if another
// caller's validation ends between the cache lookup and the validation of a caller.
func TestNoRequestAfterConcurrentValidation(t *testing.T) {
	for _, known := range []bool{true, false} {
		var validations atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			switch {
			case r.Method == http.MethodPost:
				w.Header().Set("X-Subject-Token", "service")
				w.WriteHeader(http.StatusCreated)
				_, _ = fmt.Fprintf(w, `{"token":{"expires_at":%q}}`, until)
			case validations.Add(1) > 0 && known:
				_, _ = fmt.Fprintf(w, `{"token":{"expires_at":%q,"user":{"id":"1","name":"u","domain":{"id":"d","name":"acme"}},`+
					`"project":{"id":"p","name":"web","domain":{"id":"d","name":"acme"}},"roles":[]}}`, until)
			default:
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, "{}")
			}
		}))
		defer server.Close()
		s, err := newService([]byte("clouds: { kube: { auth: { username: u, password: p, user_domain_name: Default, "+
			"system_scope: all } } }"), "kube", server.URL)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Scopes: ScopeProject, TTL: time.Hour, NegativeTTL: time.Hour}
		a := newAuthenticator(o, func() *service { return s })
		const token = "gAAAAx"
		for range 2 { // both callers found no cached result
			u, err := a.validate(t.Context(), a.unknown, false, a.users.Key(token, nil), token)
			if known != (err == nil) || known != (u != nil) || !known && !errors.Is(err, ErrUnknown) {
				t.Errorf("known %t: %v, %v", known, u, err)
			}
		}
		if n := validations.Load(); n != 1 {
			t.Errorf("known %t: %d validations", known, n)
		}
	}
}

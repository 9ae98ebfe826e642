// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowKeystone is a transport to a fake Keystone. Each login takes two seconds in the time of a
// synctest bubble.
type slowKeystone struct {
	mu          sync.Mutex
	logins      int
	broken      bool
	service     string // the token of the service user, or empty if it was revoked
	validations int
}

func (s *slowKeystone) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *slowKeystone) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := func(code int, body string) *http.Response {
		return &http.Response{
			StatusCode: code,
			Header:     http.Header{},
			Request:    req,
			Body:       io.NopCloser(strings.NewReader(body)),
		}
	}
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if req.Method == http.MethodPost {
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.logins++
		if s.broken {
			return answer(http.StatusServiceUnavailable, ""), nil
		}
		s.service = fmt.Sprint("service-", s.logins)
		resp := answer(http.StatusCreated, fmt.Sprintf(`{"token":{"expires_at":%q}}`, until))
		resp.Header.Set(subjectToken, s.service)
		return resp, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.validations++
	if s.service == "" || req.Header.Get("X-Auth-Token") != s.service {
		return answer(http.StatusUnauthorized, ""), nil
	}
	return answer(http.StatusOK, fmt.Sprintf(`{"token":{"expires_at":%q,`+
		`"user":{"id":"1","name":"u","domain":{"id":"d","name":"acme"}},`+
		`"project":{"id":"p","name":"web","domain":{"id":"d","name":"acme"}},"roles":[]}}`, until)), nil
}

// openSlow returns an authenticator that uses a slow Keystone.
func openSlow(t *testing.T) (*slowKeystone, *Authenticator) {
	s, err := newService([]byte("clouds: { kube: { auth: { username: u, password: p, user_domain_name: Default, "+
		"system_scope: all } } }"), "kube", "https://keystone.example.com")
	if err != nil {
		t.Fatal(err)
	}
	server := &slowKeystone{}
	s.loginClient = http.Client{Transport: server}
	s.client.HTTPClient = http.Client{Transport: server}
	return server, newAuthenticator(Options{Scopes: ScopeProject, TTL: time.Second}, func() *service { return s })
}

// callers authenticates n different tokens, 30 ms apart, and returns the errors.
func callers(t *testing.T, a *Authenticator, n int) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, _, errs[i] = a.AuthenticateToken(t.Context(), fmt.Sprint("gAAAA", time.Now().UnixNano())) })
		time.Sleep(30 * time.Millisecond)
		synctest.Wait()
	}
	all.Wait()
	return errs
}

// TestCallersWaitForLogin checks that callers wait for a login in progress, both for the first
// login and after a revocation.
func TestCallersWaitForLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, a := openSlow(t)
		for logins := 1; logins <= 2; logins++ {
			for i, err := range callers(t, a, 16) {
				if err != nil {
					t.Errorf("login %d, caller %d: %v", logins, i, err)
				}
			}
			if server.logins != logins {
				t.Errorf("%d logins, want %d", server.logins, logins)
			}
			server.set(func() { server.service = "" })
			time.Sleep(6 * time.Second)
		}
	})
}

// TestLoginBackoff checks that the backoff starts at the end of a failed login. Callers during
// this login and during the backoff get ErrUnavailable. Callers during the next login wait for
// it.
func TestLoginBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, a := openSlow(t)
		server.set(func() { server.broken = true })
		unavailable := func(when string, n int) {
			t.Helper()
			for i, err := range callers(t, a, n) {
				if !errors.Is(err, ErrUnavailable) {
					t.Errorf("%s, caller %d: %v", when, i, err)
				}
			}
			if server.logins != 1 {
				t.Errorf("%s: %d logins, want 1", when, server.logins)
			}
		}
		unavailable("during the login", 16)
		time.Sleep(4 * time.Second) // 6 seconds after the login started
		unavailable("during the backoff", 16)
		server.set(func() { server.broken = false })
		time.Sleep(time.Second)
		for i, err := range callers(t, a, 16) {
			if err != nil {
				t.Errorf("after the backoff, caller %d: %v", i, err)
			}
		}
		if server.logins != 2 {
			t.Errorf("%d logins, want 2", server.logins)
		}
	})
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestStatusCodesOfOutages checks which status codes reject a token. All other status codes are
// outages, in which a stale result is used.
func TestStatusCodesOfOutages(t *testing.T) {
	refusals := map[int]bool{
		400: true,
		404: true,
		413: true,
		414: true,
		431: true,
	}
	for code := 400; code < 600; code++ {
		if http.StatusText(code) == "" {
			continue
		}
		s := newServer(t)
		a, clock := open(t, s, func(o *keystone.Options) { o.Stale = time.Hour })
		if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !ok {
			t.Fatal(err)
		}
		s.set(func() { s.fault = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) } })
		clock.Advance(10 * time.Minute)
		if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); ok == refusals[code] ||
			refusals[code] != errors.Is(err, keystone.ErrUnknown) {
			t.Errorf("%d: %t, %v", code, ok, err)
		}
		s.Close()
	}
}

// TestUnknownTokensStartNoOutage checks that a client without a Keystone token cannot make a
// revoked token valid again.
func TestUnknownTokensStartNoOutage(t *testing.T) {
	for name, c := range map[string]struct {
		token string
		fault http.HandlerFunc
	}{
		"a long token that is not sent to Keystone": {"gAAAA" + strings.Repeat("x", 9000), nil},
		"a token that causes an internal error": {
			"gAAAAx", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		},
		"a closed connection": {"gAAAAx", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"a token with an invalid response": {
			"gAAAAx", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			a, clock := open(t, s, func(o *keystone.Options) { o.Stale = time.Hour })
			if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !ok {
				t.Fatal(err)
			}
			asked := s.validations.Load()
			s.set(func() {
				s.fault = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Subject-Token") == token(1) || c.fault == nil {
						http.NotFound(w, r) // the token was revoked
						return
					}
					c.fault(w, r)
				}
			})
			clock.Advance(10 * time.Minute)
			if _, ok, err := a.AuthenticateToken(t.Context(), c.token); ok || err == nil {
				t.Error("accepted")
			}
			if c.fault == nil && s.validations.Load() != asked {
				t.Error("Keystone was called")
			}
			if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); ok || !errors.Is(err, keystone.ErrUnknown) {
				t.Errorf("a revoked token is accepted again: %t, %v", ok, err)
			}
		})
	}
}

// TestUnknownTokensEndNoOutage checks that the rejection of an unknown token does not end an
// outage, so that callers with a cached result do not wait.
func TestUnknownTokensEndNoOutage(t *testing.T) {
	s := newServer(t)
	a, clock := open(t, s, func(o *keystone.Options) { o.Stale = time.Hour })
	s.set(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Subject-Token") == "gAAAAx" {
				w.WriteHeader(http.StatusBadRequest) // as from a web server in front of Keystone
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	ask := func() int64 {
		before := s.validations.Load()
		if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !ok {
			t.Fatal(err)
		}
		return s.validations.Load() - before
	}
	fault := s.fault
	s.set(func() { s.fault = nil })
	ask()
	s.set(func() { s.fault = fault })
	clock.Advance(10 * time.Minute)
	if n := ask(); n != 1 {
		t.Fatalf("%d validations when the outage began", n)
	}
	if _, ok, err := a.AuthenticateToken(t.Context(), "gAAAAx"); ok || !errors.Is(err, keystone.ErrUnknown) {
		t.Fatal(ok, err)
	}
	if n := ask(); n != 0 {
		t.Errorf("%d validations in the outage", n)
	}
}

// TestResponseAboutAnotherTokenIsRejected checks that a response about another token is rejected,
// for example from a cache in front of Keystone.
func TestResponseAboutAnotherTokenIsRejected(t *testing.T) {
	for named, want := range map[string]bool{
		token(1): true,
		"":       true,
		token(2): false,
		"x":      false,
	} {
		t.Run(named, func(t *testing.T) {
			s := newServer(t)
			a, _ := open(t, s, nil)
			s.set(func() {
				s.fault = func(w http.ResponseWriter, _ *http.Request) {
					if named != "" {
						w.Header().Set("X-Subject-Token", named)
					}
					_, _ = io.WriteString(w, body("2", time.Now().Add(time.Hour)))
				}
			})
			if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); ok != want ||
				!want && !errors.Is(err, keystone.ErrUnavailable) {
				t.Errorf("a response about %q: %t, %v", named, ok, err)
			}
		})
	}
}

// TestAmbiguousResponsesAreRejected checks that ambiguous responses are rejected.
func TestAmbiguousResponsesAreRejected(t *testing.T) {
	good := body("1", time.Now().Add(time.Hour))
	for name, answer := range map[string]string{
		"a member in another case": strings.Replace(good, `{"token":`, `{"Token":`, 1),
		"a duplicate member":       strings.Replace(good, `"user":`, `"user":{},"user":`, 1),
		"a duplicate user name":    strings.Replace(good, `"name":"user-1"`, `"name":"user-2","name":"user-1"`, 1),
		"a second document":        good + "{}",
		"text after the object":    good + "x",
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			a, _ := open(t, s, nil)
			s.set(func() { s.fault = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) } })
			if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); ok || !errors.Is(err, keystone.ErrUnavailable) {
				t.Errorf("%t, %v", ok, err)
			}
		})
	}
}

// TestNamesAreEscaped checks that escaped names are well-formed, that different names remain
// different, and that long names are escaped quickly.
func TestNamesAreEscaped(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{
		"bob", " bob", "bob ", "  bob", "%20bob", "b%62b", "bob\u200b", "bo\u200bb", "\tbob\n", "می\u200cخ",
		"می\u200c خ",
		"a\u200d\u200db", "Alice van Dam", " ", "%", "\u2028", strings.Repeat("\x01", 900_000/20),
	} {
		s := newServer(t)
		a, _ := open(t, s, func(o *keystone.Options) { o.LegacyExtras = true })
		s.set(func() {
			s.fault = func(w http.ResponseWriter, _ *http.Request) {
				text, _ := json.Marshal(name)
				_, _ = io.WriteString(w,
					strings.NewReplacer(`"user-1"`, string(text), `"web"`, string(text), `"member"`, string(text)).Replace(
						body("1", time.Now().Add(time.Hour)),
					))
			}
		})
		resp, ok, err := a.AuthenticateToken(t.Context(), token(1))
		if !ok {
			t.Fatalf("%.20q: %v", name, err)
		}
		if err := (tenant.Limits{Bytes: 1 << 30, Groups: 10}).Check(resp.User); err != nil {
			t.Errorf("%.20q: %.40q: %v", name, resp.User.GetName(), err)
		}
		if other, taken := seen[resp.User.GetName()]; taken {
			t.Errorf("%.20q and %.20q are both %.40q", name, other, resp.User.GetName())
		}
		seen[resp.User.GetName()] = name
		if plain := tenant.IsWellFormed(name) && !strings.Contains(name, "%"); plain != (resp.User.GetName() == name) {
			t.Errorf("%.20q is %.40q", name, resp.User.GetName())
		}
	}
}

// TestRejectedServiceTokenCausesFewLogins checks that a Keystone that rejects each token of the
// service user gets only a few logins.
func TestRejectedServiceTokenCausesFewLogins(t *testing.T) {
	s := newServer(t)
	a, _ := open(t, s, nil)
	s.set(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	})
	for i := range 50 {
		if _, ok, err := a.AuthenticateToken(t.Context(), fmt.Sprintf("gAAAAx%d", i)); ok ||
			!errors.Is(err, keystone.ErrUnavailable) {
			t.Fatalf("%t, %v", ok, err)
		}
	}
	if n := s.logins.Load(); n > 4 {
		t.Errorf("%d logins for 50 tokens", n)
	}
}

// TestIncompleteResponsesAreOutages checks that a response without the user or the expiry is an
// outage, in which a stale result is used. A response without another required field rejects the
// token, and the error names the field.
func TestIncompleteResponsesAreOutages(t *testing.T) {
	good := body("1", time.Now().Add(time.Hour))
	for name, c := range map[string]struct{ answer, want string }{
		"an empty token": {`{"token":{}}`, ""},
		"no user":        {`{"token":{"expires_at":"2099-01-01T00:00:00.000000Z"}}`, ""},
		"no expiry":      {strings.Replace(good, "expires_at", "expires", 1), ""},
		"no user ID":     {strings.Replace(good, `"id":"id-1",`, "", 1), ""},
		"null":           {`null`, ""},
		"no user name":   {strings.Replace(good, `"name":"user-1",`, "", 1), "token.user.name is missing"},
		"no domain of the user": {
			strings.Replace(good, `,"domain":{"id":"d","name":"acme"}}`, "}", 1), "token.user.domain.id is missing",
		},
		"no domain name":  {strings.Replace(good, `"d","name":"acme"`, `"d"`, 1), "token.user.domain.name is missing"},
		"no project name": {strings.Replace(good, `"name":"web",`, "", 1), "token.project.name is missing"},
		"no project ID":   {strings.Replace(good, `"id":"p",`, "", 1), "token.project.id is missing"},
		"a role without a name": {
			strings.Replace(good, `,"name":"member"`, "", 1), "token.roles has a role without an id or a name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			a, clock := open(t, s, func(o *keystone.Options) { o.Stale = time.Hour })
			if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !ok {
				t.Fatal(err)
			}
			s.set(func() { s.fault = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) } })
			clock.Advance(10 * time.Minute)
			_, ok, err := a.AuthenticateToken(t.Context(), token(1))
			if c.want == "" && (!ok || err != nil) {
				t.Errorf("%t, %v; want the stale result", ok, err)
			}
			if c.want != "" && (ok || !errors.Is(err, keystone.ErrResponse) || !strings.HasSuffix(err.Error(), c.want)) {
				t.Errorf("%t, %v; want %s", ok, err, c.want)
			}
			s.Close()
		})
	}
}

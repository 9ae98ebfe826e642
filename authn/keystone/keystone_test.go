// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// server is a fake Keystone. It accepts the token gAAAAuser-N of the user user-N, for any N.
type server struct {
	*httptest.Server
	logins, validations atomic.Int64
	delay               time.Duration
	mu                  sync.Mutex
	service             string // the token of the service user, or empty if it was revoked
	fault               http.HandlerFunc
	expires             time.Time
	lasts               time.Duration // the lifetime of the service user's tokens, or 0 for one hour
	closed              bool          // whether logins are rejected
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{expires: time.Now().Add(time.Hour)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault, service, expires := s.fault, s.service, s.expires
	s.mu.Unlock()
	if r.Method == http.MethodPost {
		service = fmt.Sprintf("service-%d", s.logins.Add(1))
		lasts, closed := time.Hour, false
		s.set(func() {
			if closed = s.closed; !closed {
				s.service = service
			}
			if s.lasts != 0 {
				lasts = s.lasts
			}
		})
		if closed {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Subject-Token", service)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":{"expires_at":%q}}`, time.Now().Add(lasts).UTC().Format(time.RFC3339))
		return
	}
	s.validations.Add(1)
	token := r.Header.Get("X-Subject-Token")
	time.Sleep(s.delay) // the latency of a real Keystone
	user, known := strings.CutPrefix(token, "gAAAAuser-")
	switch {
	case fault != nil:
		fault(w, r)
	case service == "" || r.Header.Get("X-Auth-Token") != service:
		http.Error(w, "", http.StatusUnauthorized)
	case !known:
		http.Error(w, "token "+token+" not found", http.StatusNotFound) // a real Keystone also echoes the token
	default:
		_, _ = io.WriteString(w, body(user, expires))
	}
}

func body(user string, expires time.Time) string {
	return fmt.Sprintf(
		`{"token":{"expires_at":%q,"audit_ids":["a"],
		"user":{"id":"id-%[2]s","name":"user-%[2]s","domain":{"id":"d","name":"acme"}},
		"project":{"id":"p","name":"web","domain":{"id":"d","name":"acme"}},"roles":[{"id":"r","name":"member"}]}}`,
		expires.UTC().Format("2006-01-02T15:04:05.000000Z"), user,
	)
}

func open(t testing.TB, s *server, change func(*keystone.Options)) (*keystone.Authenticator, *authntest.Clock) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	const clouds = "clouds: { kube: { auth: { username: u, password: CANARY-password, user_domain_name: Default, " +
		"system_scope: all } } }\n"
	if err := os.WriteFile(path, []byte(clouds), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &authntest.Clock{}
	o := keystone.Options{
		AuthURL:     s.URL,
		Scopes:      keystone.ScopeProject,
		TTL:         5 * time.Minute,
		NegativeTTL: 10 * time.Second,
		Now:         c.Now,
	}
	if change != nil {
		change(&o)
	}
	a, _, err := keystone.Open(path, "kube", o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

func token(n int) string { return fmt.Sprintf("gAAAAuser-%d", n) }

// TestCallersGetTheirOwnIdentity checks that each of a thousand users gets only its own
// identity, with 64 concurrent callers. A shared client that stores the token of each request
// would fail this test.
func TestCallersGetTheirOwnIdentity(t *testing.T) {
	s := newServer(t)
	s.delay = 20 * time.Millisecond
	a, _ := open(t, s, nil)
	if crossed := mixedUp(t, func(ctx context.Context, token string) (string, error) {
		resp, _, err := a.AuthenticateToken(ctx, token)
		if err != nil {
			return "", err
		}
		return resp.User.GetUID(), nil
	}); crossed > 0 {
		t.Errorf("%d tokens returned the identity of another user", crossed)
	}
	if n := s.validations.Load(); n != users {
		t.Errorf("%d validations of %d tokens", n, users)
	}
}

const users, callers = 1000, 64

// mixedUp authenticates each user twice with many concurrent callers. It returns the number of
// results with the identity of another user.
func mixedUp(t *testing.T, ask func(ctx context.Context, token string) (uid string, err error)) int64 {
	var crossed atomic.Int64
	work := make(chan int)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for n := range work {
				uid, err := ask(t.Context(), token(n))
				if err != nil {
					t.Error(err)
				}
				if uid != fmt.Sprintf("id-%d", n) {
					crossed.Add(1)
				}
			}
		})
	}
	for n := range 2 * users {
		work <- n / 2
	}
	close(work)
	all.Wait()
	return crossed.Load()
}

// sharedClient has the design of k8s-keystone-auth, in which the request's token becomes state of
// the client.
type sharedClient struct {
	mu    sync.Mutex
	token string
}

func (c *sharedClient) validate(_ context.Context, token string) (string, error) {
	c.mu.Lock()
	c.token = token
	c.mu.Unlock()
	runtime.Gosched() // another goroutine may replace the token
	c.mu.Lock()
	defer c.mu.Unlock()
	return "id-" + strings.TrimPrefix(c.token, "gAAAAuser-"), nil
}

// TestSharedClientIsDetected checks that TestCallersGetTheirOwnIdentity would detect the design of
// sharedClient.
func TestSharedClientIsDetected(t *testing.T) {
	if mixedUp(t, (&sharedClient{}).validate) == 0 {
		t.Error("a shared client was not detected")
	}
}

func TestCache(t *testing.T) {
	s := newServer(t)
	a, clock := open(t, s, nil)
	check := func(token string, want error, validations int64) {
		t.Helper()
		if _, _, err := a.AuthenticateToken(t.Context(), token); !errors.Is(err, want) ||
			s.validations.Load() != validations {
			t.Errorf("%v after %d validations; want %v after %d", err, s.validations.Load(), want, validations)
		}
	}
	check(token(1), nil, 1)
	check(token(1), nil, 1)
	check("gAAAAunknown", keystone.ErrUnknown, 2)
	check("gAAAAunknown", keystone.ErrUnknown, 2)
	clock.Advance(10 * time.Second)
	check("gAAAAunknown", keystone.ErrUnknown, 3)
	clock.Advance(5 * time.Minute)
	check(token(1), nil, 4)
	s.set(func() { s.fault = http.NotFound })
	check(token(1), nil, 4)
	clock.Advance(5 * time.Minute)
	check(token(1), keystone.ErrUnknown, 5) // the token was revoked
	s.set(func() { s.fault = nil })
	clock.Advance(10 * time.Second)
	check(token(1), nil, 6)
}

// TestStale checks that known tokens are valid during an outage for the configured time, but never
// after their own expiry.
func TestStale(t *testing.T) {
	s := newServer(t)
	s.expires = time.Now().Add(20 * time.Minute)
	a, clock := open(t, s, func(o *keystone.Options) { o.Stale = 30 * time.Minute })
	b, _ := open(t, s, nil)
	for _, k := range []*keystone.Authenticator{a, b} {
		if _, ok, err := k.AuthenticateToken(t.Context(), token(1)); !ok {
			t.Fatal(err)
		}
	}
	s.set(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	})
	clock.Advance(10 * time.Minute)
	if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !ok {
		t.Errorf("a known token in an outage: %v", err)
	}
	if _, ok, err := a.AuthenticateToken(t.Context(), token(2)); ok || !errors.Is(err, keystone.ErrUnavailable) {
		t.Errorf("an unknown token in an outage: %v, %v", ok, err)
	}
	clock.Advance(10 * time.Minute)
	if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); ok {
		t.Errorf("after its own expiry: %v, %v", ok, err)
	}
}

// TestRevokedTokenStaysRevokedDuringOutage checks that a revoked token does not become valid again
// during an outage.
func TestRevokedTokenStaysRevokedDuringOutage(t *testing.T) {
	s := newServer(t)
	a, clock := open(t, s, func(o *keystone.Options) { o.Stale = time.Hour })
	check := func(want error) {
		t.Helper()
		if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !errors.Is(err, want) || ok != (want == nil) {
			t.Errorf("= %v, %v; want %v", ok, err, want)
		}
	}
	check(nil)
	clock.Advance(10 * time.Minute)
	s.set(func() { s.fault = http.NotFound })
	check(keystone.ErrUnknown)
	clock.Advance(time.Minute) // longer than NegativeTTL
	s.set(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	})
	check(keystone.ErrUnavailable)
}

// TestServiceTokenIsRenewedOnce checks that only one of many concurrent callers renews the token
// of the service user.
func TestServiceTokenIsRenewedOnce(t *testing.T) {
	s := newServer(t)
	a, _ := open(t, s, nil)
	for round := range 3 {
		s.set(func() { s.service = "" }) // it was revoked
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, ok, err := a.AuthenticateToken(context.Background(), token(round*50+i)); !ok {
					t.Errorf("user %d: %v", i, err)
				}
			})
		}
		all.Wait()
	}
	if n := s.logins.Load(); n != 3 {
		t.Errorf("%d logins for three revoked tokens", n)
	}
}

// TestFloodIsNotAnOutage checks that a flood of unknown tokens does not make a revoked token valid
// again.
func TestFloodIsNotAnOutage(t *testing.T) {
	s := newServer(t)
	a, clock := open(t, s, func(o *keystone.Options) { o.Stale = time.Hour })
	if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !ok {
		t.Fatal(err)
	}
	release := make(chan struct{})
	s.set(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("X-Subject-Token"), "garbage") {
				<-release
			}
			http.NotFound(w, r)
		}
	})
	clock.Advance(10 * time.Minute)
	var all sync.WaitGroup
	for i := range 600 {
		all.Go(func() { _, _, _ = a.AuthenticateToken(context.Background(), fmt.Sprintf("gAAAAgarbage%d", i)) })
	}
	waittest.Until(t, func() error {
		if n := s.validations.Load(); n < 257 { // the first validation, and the limit of concurrent validations
			return fmt.Errorf("%d validations", n)
		}
		return nil
	})
	if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); ok || !errors.Is(err, keystone.ErrUnknown) {
		t.Errorf("a revoked token in a flood: %v, %v", ok, err)
	}
	close(release)
	all.Wait()
}

// TestOutageDoesNotDelayCachedTokens checks that callers with a usable cached result do not wait
// for Keystone during an outage. After the outage, tokens are validated again.
func TestOutageDoesNotDelayCachedTokens(t *testing.T) {
	s := newServer(t)
	a, clock := open(t, s, func(o *keystone.Options) { o.Stale = 30 * time.Minute })
	var all sync.WaitGroup
	ask := func(n int) {
		if _, ok, err := a.AuthenticateToken(context.Background(), token(n)); !ok {
			t.Errorf("user %d: %v", n, err)
		}
	}
	for first := range callers { // as many concurrent callers as a busy machine can serve in time
		all.Go(func() {
			for n := first; n < users; n += callers {
				ask(n)
			}
		})
	}
	all.Wait()
	s.set(func() { s.fault = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) } })
	clock.Advance(10 * time.Minute)
	ask(0)
	before := s.validations.Load()
	for n := range users {
		all.Go(func() { ask(n) })
	}
	all.Wait()
	if n := s.validations.Load() - before; n > 4 {
		t.Errorf("%d validations in a known outage", n)
	}
	s.set(func() { s.fault = nil })
	clock.Advance(10 * time.Second)
	ask(0)
	before = s.validations.Load()
	ask(1)
	if n := s.validations.Load() - before; n != 1 {
		t.Errorf("after the outage: %d validations", n)
	}
}

// TestFailedLoginKeepsValidServiceToken checks that the token of the service user is used until
// it expires, even if a login fails.
func TestFailedLoginKeepsValidServiceToken(t *testing.T) {
	s := newServer(t)
	s.lasts = 30 * time.Second // less than renewBefore
	a, _ := open(t, s, func(o *keystone.Options) { o.TTL = 0 })
	if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); !ok {
		t.Fatal(err)
	}
	s.set(func() { s.closed = true })
	for n := range 5 {
		if _, ok, err := a.AuthenticateToken(t.Context(), token(n)); !ok {
			t.Errorf("user %d: %v", n, err)
		}
	}
}

// TestFailedLoginsAreLimited checks that the tokens that clients send cause only a few failed
// logins, which do not lock out the service user.
func TestFailedLoginsAreLimited(t *testing.T) {
	logins := atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		logins.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	a, _ := open(t, &server{Server: s}, nil)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if _, ok, err := a.AuthenticateToken(context.Background(), fmt.Sprintf("gAAAAgarbage%d", i)); ok ||
				!errors.Is(err, keystone.ErrUnavailable) {
				t.Errorf("= %v, %v", ok, err)
			}
		})
	}
	all.Wait()
	for i := range 20 {
		_, _, _ = a.AuthenticateToken(t.Context(), fmt.Sprintf("gAAAAmore%d", i))
	}
	if n := logins.Load(); n > 3 {
		t.Errorf("220 tokens caused %d logins", n)
	}
}

// TestFaultyKeystones checks that each faulty response from Keystone causes ErrUnavailable.
func TestFaultyKeystones(t *testing.T) {
	for name, fault := range map[string]http.HandlerFunc{
		"500":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"closes":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"garbage":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"nothing":    func(http.ResponseWriter, *http.Request) {},
		"a gigabyte": func(w http.ResponseWriter, _ *http.Request) { authntest.Flood(w, `{"token":{"user":{"name":"`) },
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.fault = fault
			a, _ := open(t, s, nil)
			if _, ok, err := a.AuthenticateToken(t.Context(), token(1)); ok || !errors.Is(err, keystone.ErrUnavailable) {
				t.Errorf("= %v, %v", ok, err)
			}
		})
	}
}

// TestHangingKeystone checks that a request does not wait longer than its context allows.
func TestHangingKeystone(t *testing.T) {
	s := newServer(t)
	s.fault = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	a, _ := open(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, ok, err := a.AuthenticateToken(ctx, token(1)); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("= %v, %v", ok, err)
	}
}

// TestErrorsAndLogsContainNoSecrets checks that errors and logs contain no token and no password,
// even at high verbosity. Keystone's 404 echoes the token.
func TestErrorsAndLogsContainNoSecrets(t *testing.T) {
	log, end, err := authntest.CaptureLog(9)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	s := newServer(t)
	a, _ := open(t, s, nil)
	for _, fault := range []http.HandlerFunc{nil, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.Header.Get("X-Subject-Token")+r.Header.Get("X-Auth-Token"), http.StatusInternalServerError)
	}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Subject-Token"))
	}} {
		s.set(func() { s.fault = fault })
		_, ok, err := a.AuthenticateToken(t.Context(), fmt.Sprintf("gAAAACANARY%d", s.validations.Load()))
		if ok || err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("= %v, %v", ok, err)
		}
	}
	for _, secret := range []string{"CANARY", "service-1"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log contains %q: %s", secret, log.String())
		}
	}
	if log.String() == "" {
		t.Error("nothing was logged, so the test has no effect")
	}
}

// signed returns a token in the form of Keystone's JWS provider, signed with ES256 and without an
// issuer.
func signed(payload string) string {
	token, err := authntest.MustKey("ES256").Sign(map[string]any{"alg": "ES256", "typ": "JWT"}, []byte(payload))
	if err != nil {
		panic(err)
	}
	return token
}

func TestLooksLike(t *testing.T) {
	for token, want := range map[string]bool{
		"gAAAAABk-_=":                      true,
		"gAAAA":                            false,
		"gAAAAA\r\nX-Auth-Token: x":        false,
		"gAAAAA.B.C":                       false,
		"0123456789abcdef0123456789abcdef": true,
		"0123456789ABCDEF0123456789abcdef": true,
		"0123456789abcdef0123456789abcde":  false,
		"0123456789abcdef0123456789abcdeg": false,
		"":                                 false,
		signed(`{"sub":"u","iat":1,"exp":2,"openstack_methods":["password"],"openstack_audit_ids":["a"]}`): true,
		signed(`{"sub":"u","iat":1,"exp":2}`):                                     false,
		signed(`{"sub":"u","x":{"openstack_methods":[]}}`):                        false,
		signed(`{"sub":"u","iss":"https://id","openstack_methods":["password"]}`): false,
		signed(`["openstack_methods"]`):                                           false,
		signed(`null`):                                                            false,
		signed(`{"openstack_methods":["password"]}`) + ".x.y":                     false,
		"bnVsbA.eyJvcGVuc3RhY2tfbWV0aG9kcyI6W119.x":                               false, // the header is null
	} {
		t.Run(token, func(t *testing.T) {
			if keystone.LooksLike(token) != want {
				t.Errorf("LooksLike(%q) = %v", token, !want)
			}
		})
	}
}

// TestOpenErrors checks that errors name the cause, and contain no credential.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"empty.pem": "", "other.pem": "CANARY"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const password = "auth: { username: u, password: CANARY, user_domain_name: d }"
	for text, want := range map[string]string{
		"CANARY: [":                "the file is not valid YAML",
		"clouds: { kube: CANARY }": "the file is not valid YAML, or a field has the wrong type",
		"clouds: { b: {}, a: {} }": `cloud "kube" is missing: the clouds of the file are a, b`,
		"{}":                       `cloud "kube" is missing: the clouds of the file are none`,
		"clouds: { kube: { auth: { token: CANARY } } }":                   `cloud "kube"`,
		"clouds: { kube: { auth_type: token, auth: { token: CANARY } } }": "auth_type must be v3password or",
		"clouds: { kube: { auth_type: v3totp, " + password + " } }":       "auth_type must be v3password or",
		"clouds: { kube: { auth: { username: CANARY } } }":                `cloud "kube"`,
		"clouds: { kube: { verify: false, " + password + " } }":           "verify may not be false",
		"clouds: { kube: { cacert: missing.pem, " + password + " } }":     "cacert: open missing.pem: no such file",
		"clouds: { kube: { cacert: empty.pem, " + password + " } }":       "cacert: empty.pem contains no PEM-encoded",
		"clouds: { kube: { cert: other.pem, " + password + " } }":         "cert and key must be set together",
		"clouds: { kube: { cert: missing.pem, key: " +
			"other.pem, " + password + " } }": "cert: stat missing.pem: no such file",
		"clouds: { kube: { cert: other.pem, key: missing.pem, " + password + " } }": "key: stat missing.pem: no such file",
		"clouds: { kube: { cert: other.pem, key: other.pem, " + password + " } }":   "cert and key are not a PEM-encoded",
	} {
		t.Run(text, func(t *testing.T) {
			path := filepath.Join(dir, "clouds.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := keystone.Open(path, "kube", keystone.Options{AuthURL: "http://k"}, nil); err == nil ||
				strings.Contains(err.Error(), "CANARY") || !strings.Contains(err.Error(), want) {
				t.Errorf("Open() = %v; want %s", err, want)
			}
		})
	}
}

// BenchmarkToken measures the authentication of a thousand users with 64 concurrent callers and a
// Keystone latency of 20 ms. Tokens are uncached or cached.
func BenchmarkToken(b *testing.B) {
	s := newServer(b)
	s.delay = 20 * time.Millisecond
	run := func(b *testing.B, a *keystone.Authenticator) {
		var next atomic.Int64
		b.SetParallelism(callers / 2)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				n := int(next.Add(1)) % users
				if resp, ok, err := a.AuthenticateToken(b.Context(), token(n)); !ok ||
					resp.User.GetUID() != fmt.Sprintf("id-%d", n) {
					b.Error(ok, err)
				}
			}
		})
	}
	b.Run("uncached", func(b *testing.B) {
		a, _ := open(b, s, func(o *keystone.Options) { o.TTL = 0 })
		b.ResetTimer() // Open waits until a new file has settled
		run(b, a)
	})
	a, _ := open(b, s, nil)
	var all sync.WaitGroup
	for n := range users {
		all.Go(func() { _, _, _ = a.AuthenticateToken(context.Background(), token(n)) })
	}
	all.Wait()
	b.Run("cached", func(b *testing.B) { run(b, a) })
}

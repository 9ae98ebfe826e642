package login_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/cmd/internal/login"
)

const clientID = "kubectl"

// provider is an OpenID provider that lets everybody in at once.
type provider struct {
	*httptest.Server
	key *authntest.Key
	ca  string // file

	mu        sync.Mutex
	logins    int
	challenge map[string]string // by code
	nonces    map[string]string
	nonce     string // in place of the one that was sent
	lifetime  time.Duration
	noRefresh bool // refresh tokens are refused
	devices   int  // answers "not yet" so often
	broken    string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{key: authntest.MustKey("ES256"), challenge: map[string]string{}, nonces: map[string]string{}, lifetime: time.Hour}
	mux := http.NewServeMux()
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token",
			"device_authorization_endpoint": p.URL + "/device", "jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"keys": []any{p.key.JWK()}}) })
	mux.HandleFunc("/auth", p.authorize)
	mux.HandleFunc("/device", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"device_code": "device", "user_code": "ABCD-EFGH", "verification_uri": p.URL + "/activate", "expires_in": 60, "interval": 1})
	})
	mux.HandleFunc("/token", p.token)
	p.ca = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(p.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	p.logins++
	code := fmt.Sprintf("code-%d", p.logins)
	p.challenge[code], p.nonces[code] = q.Get("code_challenge"), q.Get("nonce")
	p.mu.Unlock()
	if q.Get("code_challenge_method") != "S256" || !strings.Contains(q.Get("scope"), "openid") {
		http.Error(w, "no PKCE", http.StatusBadRequest)
		return
	}
	to := q.Get("redirect_uri") + "?" + url.Values{"state": {q.Get("state")}, "code": {code}}.Encode()
	http.Redirect(w, r, to, http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	refuse := func(code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": code, "error_description": "CANARY " + r.Form.Encode()})
	}
	_ = r.ParseForm()
	nonce := ""
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		code := r.Form.Get("code")
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if p.challenge[code] != base64.RawURLEncoding.EncodeToString(sum[:]) {
			refuse("invalid_grant")
			return
		}
		nonce = p.nonces[code]
		if p.nonce != "" {
			nonce = p.nonce
		}
	case "refresh_token":
		if p.noRefresh || r.Form.Get("refresh_token") != "refresh" {
			refuse("invalid_grant")
			return
		}
	default:
		if p.devices--; p.devices >= 0 {
			refuse("authorization_pending")
			return
		}
	}
	if p.broken != "" {
		refuse(p.broken)
		return
	}
	id := p.key.MustSign(map[string]any{"iss": p.URL, "aud": clientID, "sub": "alice", "nonce": nonce, "iat": time.Now().Unix(),
		"exp": time.Now().Add(p.lifetime).Unix()})
	answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": id, "refresh_token": "refresh"})
}

// client returns a client of the provider whose browser follows the redirect at once.
func (p *provider) client() *login.OpenID {
	return &login.OpenID{Issuer: p.URL, ClientID: clientID, CAFile: p.ca, Interactive: true, Within: 10 * time.Second, Now: time.Now,
		Say: func(string, ...any) {},
		Open: func(ctx context.Context, address string) error {
			go func() {
				req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, address, http.NoBody)
				if err != nil {
					return
				}
				if resp, err := p.Client().Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}()
			return nil
		}}
}

func TestLogin(t *testing.T) {
	p := newProvider(t)
	c := &login.Cache{Dir: filepath.Join(t.TempDir(), "cache")}
	o := p.client()
	first, err := c.With(o.Key(), func(kept *login.Token) (*login.Token, error) { return o.Token(t.Context(), kept) })
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.With(o.Key(), func(kept *login.Token) (*login.Token, error) { return o.Token(t.Context(), kept) })
	if err != nil || *again != *first || p.logins != 1 {
		t.Errorf("the second time = %v, %v, %d logins; want the token that is kept", again == first, err, p.logins)
	}
	files, _ := filepath.Glob(filepath.Join(c.Dir, "*"))
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm()&0o077 != 0 && !strings.HasSuffix(f, ".lock") {
			t.Errorf("%s: %v, %v; others may read it", f, info.Mode(), err)
		}
	}
	for _, key := range [][]string{(&login.OpenID{Issuer: p.URL, ClientID: "other"}).Key(), (&login.OpenID{Issuer: "https://other", ClientID: clientID}).Key()} {
		if _, err := c.With(key, func(kept *login.Token) (*login.Token, error) {
			if kept != nil {
				t.Error("the token of another client")
			}
			return nil, errors.New("none")
		}); err == nil {
			t.Error("no error")
		}
	}
}

// TestOneLoginForMany: kubectls that start at the same time log in once.
func TestOneLoginForMany(t *testing.T) {
	p := newProvider(t)
	c := &login.Cache{Dir: t.TempDir()}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			o := p.client()
			if _, err := c.With(o.Key(), func(kept *login.Token) (*login.Token, error) { return o.Token(t.Context(), kept) }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if p.logins != 1 {
		t.Errorf("%d logins, want 1", p.logins)
	}
}

func TestRefresh(t *testing.T) {
	p := newProvider(t)
	old := &login.Token{Token: "old", Expires: time.Now(), Refresh: "refresh"}
	o := p.client()
	o.Interactive = false
	if got, err := o.Token(t.Context(), old); err != nil || got.Token == "old" || p.logins != 0 {
		t.Errorf("refresh = %v, %v with %d logins", got, err, p.logins)
	}
	p.noRefresh = true
	if _, err := o.Token(t.Context(), old); !errors.Is(err, login.ErrInteraction) {
		t.Errorf("a refused refresh token = %v, want ErrInteraction", err)
	}
	o.Interactive = true
	if got, err := o.Token(t.Context(), old); err != nil || got == nil || p.logins != 1 {
		t.Errorf("a refused refresh token = %v with %d logins, want one", err, p.logins)
	}
}

func TestDevice(t *testing.T) {
	p := newProvider(t)
	p.devices = 1
	o := p.client()
	o.Device = true
	said := ""
	o.Say = func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
	o.Open = func(context.Context, string) error { t.Error("a browser"); return nil }
	if _, err := o.Token(t.Context(), nil); err != nil || !strings.Contains(said, "ABCD-EFGH") {
		t.Errorf("device flow = %v, said %q", err, said)
	}
}

// TestRefused: a login that is not ours, or fails, gives no token, and no secret away.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*provider, *login.OpenID)
		want   string
	}{
		"another nonce":       {func(p *provider, _ *login.OpenID) { p.nonce = "theirs" }, "another login"},
		"another audience":    {func(_ *provider, o *login.OpenID) { o.ClientID = "somebody" }, "audience"},
		"a token of the past": {func(p *provider, _ *login.OpenID) { p.lifetime = -time.Hour }, "expired"},
		"an error":            {func(p *provider, _ *login.OpenID) { p.broken = "server_error" }, "400 server_error"},
		"nobody comes":        {func(_ *provider, o *login.OpenID) { o.Within = 50 * time.Millisecond; o.Open = nothing }, "in time"},
		"another issuer":      {func(_ *provider, o *login.OpenID) { o.Issuer += "/other" }, "ask the provider"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			o := p.client()
			c.breaks(p, o)
			got, err := o.Token(t.Context(), nil)
			if err == nil || got != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("Token() = %v, %v; want %q", got, err, c.want)
			}
		})
	}
}

func nothing(context.Context, string) error { return nil }

// TestForgedCallback: who does not know the state neither logs anybody in nor stops a login.
func TestForgedCallback(t *testing.T) {
	p := newProvider(t)
	o := p.client()
	follow := o.Open
	o.Open = func(ctx context.Context, address string) error {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		back := u.Query().Get("redirect_uri")
		if host := strings.TrimPrefix(back, "http://"); !strings.HasPrefix(host, "127.0.0.1:") {
			t.Errorf("redirect to %s, want the loopback address", back)
		}
		for _, forged := range []string{"?code=theirs", "?code=theirs&state=", "?code=theirs&state=guess", "?error=access_denied&state=guess"} {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, back+forged, http.NoBody)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s = %s, want 400", forged, resp.Status)
			}
		}
		return follow(ctx, address)
	}
	if _, err := o.Token(t.Context(), nil); err != nil {
		t.Errorf("the login after forged answers = %v", err)
	}
}

func TestCacheOfOthers(t *testing.T) {
	c := &login.Cache{Dir: t.TempDir()}
	key := []string{"k"}
	put := func(*login.Token) (*login.Token, error) {
		return &login.Token{Token: "t", Expires: time.Now().Add(time.Hour)}, nil
	}
	if _, err := c.With(key, put); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(c.Dir, "*"))
	for _, f := range files {
		if err := os.Chmod(f, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.With(key, put); err == nil || !strings.Contains(err.Error(), "read by others") {
		t.Errorf("a cache that others may read = %v", err)
	}
}

func TestKeystone(t *testing.T) {
	status := http.StatusCreated
	logins := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		logins++
		var in struct {
			Auth struct {
				Identity struct {
					Methods []string `json:"methods"`
				} `json:"identity"`
				Scope any `json:"scope"`
			} `json:"auth"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v3/auth/tokens" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		w.Header().Set("X-Subject-Token", "gAAAA-"+in.Auth.Identity.Methods[0])
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"token": {"expires_at": %q}, "error": {"message": "CANARY"}}`, time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z"))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := fmt.Sprintf("clouds:\n  kube:\n    auth: { auth_url: %q, application_credential_id: id, application_credential_secret: SECRET }\n    auth_type: v3applicationcredential\n", server.URL+"/v3")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*login.Keystone{
		"password":               {Environment: os.Getenv},
		"application_credential": {Cloud: "kube", File: file, Environment: os.Getenv},
	} {
		for variable, value := range map[string]string{"OS_AUTH_URL": server.URL + "/v3", "OS_USERNAME": "alice", "OS_PASSWORD": "SECRET",
			"OS_USER_DOMAIN_NAME": "acme", "OS_PROJECT_NAME": "web", "OS_PROJECT_DOMAIN_NAME": "acme"} {
			t.Setenv(variable, value)
		}
		k.Now = time.Now
		if err := k.Read(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		status = http.StatusCreated
		got, err := k.Token(t.Context(), nil)
		if err != nil || got.Token != "gAAAA-"+name {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		before := logins
		if again, err := k.Token(t.Context(), got); err != nil || again != got || logins != before {
			t.Errorf("%s: the token that is kept = %v, %v", name, again, err)
		}
		status = http.StatusUnauthorized
		if _, err := k.Token(t.Context(), nil); err == nil || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "CANARY") ||
			!strings.Contains(err.Error(), "does not accept the credential") {
			t.Errorf("%s: refused = %v", name, err)
		}
	}
	t.Setenv("OS_AUTH_URL", "")
	if err := (&login.Keystone{Environment: os.Getenv}).Read(); !errors.Is(err, login.ErrNoCloud) {
		t.Errorf("without a cloud = %v", err)
	}
}

func TestInteractive(t *testing.T) {
	const v1 = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":%v}}`
	for info, want := range map[string]bool{"": true, fmt.Sprintf(v1, true): true, fmt.Sprintf(v1, false): false} {
		if got, err := login.Interactive(info); err != nil || got != want {
			t.Errorf("Interactive(%q) = %v, %v", info, got, err)
		}
	}
	for _, info := range []string{"{", `{"apiVersion":"client.authentication.k8s.io/v1beta1"}`} {
		if _, err := login.Interactive(info); err == nil {
			t.Errorf("Interactive(%q): no error", info)
		}
	}
}

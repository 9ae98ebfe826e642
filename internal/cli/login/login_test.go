// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package login_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/kubetenant/kubetenant/internal/cli/login"
	"github.com/kubetenant/kubetenant/test/logintest"
)

// provider is a test OpenID provider with its certificate authority in a file.
type provider struct {
	*logintest.Provider
	ca string // path of the certificate authority
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{logintest.NewProvider(), filepath.Join(t.TempDir(), "ca.crt")}
	t.Cleanup(p.Close)
	if err := p.WriteCA(p.ca); err != nil {
		t.Fatal(err)
	}
	return p
}

// client returns a client for the provider. Its browser follows the redirect immediately.
func (p *provider) client() *login.OpenID {
	return &login.OpenID{
		Issuer:      p.URL,
		ClientID:    logintest.ClientID,
		CAFile:      p.ca,
		Interactive: true,
		Timeout:     10 * time.Second,
		Now:         time.Now,
		Printf:      func(string, ...any) {},
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
		},
	}
}

func TestLogin(t *testing.T) {
	p := newProvider(t)
	c := &login.Cache{Dir: filepath.Join(t.TempDir(), "cache")}
	o := p.client()
	first, err := c.With(t.Context(), o.Key(), func(stored *login.Token) (*login.Token, error) {
		return o.Token(t.Context(), stored)
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.With(t.Context(), o.Key(), func(stored *login.Token) (*login.Token, error) {
		return o.Token(t.Context(), stored)
	})
	if err != nil || *again != *first || p.Logins != 1 {
		t.Errorf("second call: same token %t, %v, %d logins; want the stored token", again == first, err, p.Logins)
	}
	files, _ := filepath.Glob(filepath.Join(c.Dir, "*"))
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm()&0o077 != 0 && !strings.HasSuffix(f, ".lock") {
			t.Errorf("%s: %v, %v; other users may read it", f, info.Mode(), err)
		}
	}
	for _, key := range [][]string{
		(&login.OpenID{Issuer: p.URL, ClientID: "other"}).Key(),
		(&login.OpenID{Issuer: "https://other", ClientID: logintest.ClientID}).Key(),
	} {
		if _, err := c.With(t.Context(), key, func(stored *login.Token) (*login.Token, error) {
			if stored != nil {
				t.Error("got the token of another client")
			}
			return nil, errors.New("none")
		}); err == nil {
			t.Error("no error")
		}
	}
}

// TestKeyring checks that tokens are stored only in the keyring, one for each identity. Without a
// keyring, no token is stored.
func TestKeyring(t *testing.T) {
	keyring.MockInit()
	p := newProvider(t)
	c := &login.Cache{Dir: t.TempDir(), Keyring: true}
	o := p.client()
	for range 2 {
		if _, err := c.With(t.Context(), o.Key(), func(stored *login.Token) (*login.Token, error) {
			return o.Token(t.Context(), stored)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if p.Logins != 1 {
		t.Errorf("%d logins, want 1", p.Logins)
	}
	files, err := filepath.Glob(filepath.Join(c.Dir, "*"))
	if err != nil || len(files) != 1 || !strings.HasSuffix(files[0], ".lock") {
		t.Errorf("%v, %v; want only the lock file", files, err)
	}
	_, err = c.With(t.Context(), []string{"another"}, func(stored *login.Token) (*login.Token, error) {
		if stored != nil {
			t.Error("got the token of another identity")
		}
		return nil, errors.New("none")
	})
	if err == nil {
		t.Error("no error")
	}
	keyring.MockInitWithError(errors.New("no Secret Service"))
	_, err = c.With(t.Context(), o.Key(), func(stored *login.Token) (*login.Token, error) {
		return o.Token(t.Context(), stored)
	})
	if err == nil || !strings.Contains(err.Error(), "the keyring: no Secret Service") {
		t.Errorf("%v", err)
	}
}

// TestOneLoginForMany checks that concurrent processes share one login.
func TestOneLoginForMany(t *testing.T) {
	p := newProvider(t)
	c := &login.Cache{Dir: t.TempDir()}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			o := p.client()
			if _, err := c.With(t.Context(), o.Key(), func(stored *login.Token) (*login.Token, error) {
				return o.Token(t.Context(), stored)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if p.Logins != 1 {
		t.Errorf("%d logins, want 1", p.Logins)
	}
}

func TestRefresh(t *testing.T) {
	p := newProvider(t)
	old := &login.Token{Token: "old", Expires: time.Now(), Refresh: "refresh"}
	o := p.client()
	o.Interactive = false
	if got, err := o.Token(t.Context(), old); err != nil || got.Token == "old" || p.Logins != 0 {
		t.Errorf("refresh = %v, %v with %d logins", got, err, p.Logins)
	}
	p.NoRefresh = true
	if _, err := o.Token(t.Context(), old); !errors.Is(err, login.ErrInteraction) {
		t.Errorf("rejected refresh token = %v, want ErrInteraction", err)
	}
	o.Interactive = true
	if got, err := o.Token(t.Context(), old); err != nil || got == nil || p.Logins != 1 {
		t.Errorf("rejected refresh token = %v with %d logins, want one", err, p.Logins)
	}
}

func TestDevice(t *testing.T) {
	p := newProvider(t)
	p.Devices = 1
	o := p.client()
	o.Device = true
	printed := ""
	o.Printf = func(format string, args ...any) { printed += fmt.Sprintf(format, args...) }
	o.Open = func(context.Context, string) error { t.Error("a browser was opened"); return nil }
	if _, err := o.Token(t.Context(), nil); err != nil || !strings.Contains(printed, "ABCD-EFGH") {
		t.Errorf("device flow = %v, printed %q", err, printed)
	}
}

// TestAuthorityAsData checks that the provider's certificate authority may be data instead of a
// file.
func TestAuthorityAsData(t *testing.T) {
	p := newProvider(t)
	o := p.client()
	o.CAFile = ""
	if _, err := o.Token(t.Context(), nil); err == nil {
		t.Error("no error for an unknown certificate authority")
	}
	data, err := os.ReadFile(p.ca)
	if err != nil {
		t.Fatal(err)
	}
	o.CAData = data
	if _, err := o.Token(t.Context(), nil); err != nil {
		t.Error(err)
	}
	o.CAData = []byte("nothing")
	if _, err := o.Token(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "contains no certificate") {
		t.Errorf("data without a certificate: %v", err)
	}
}

// TestRefused checks that Token returns no token and reveals no secret if the login fails, or
// the ID token is invalid or belongs to another login.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*provider, *login.OpenID)
		want   string
	}{
		"another nonce":    {func(p *provider, _ *login.OpenID) { p.Nonce = "theirs" }, "does not belong to this login"},
		"another audience": {func(_ *provider, o *login.OpenID) { o.ClientID = "somebody" }, "audience"},
		"expired token":    {func(p *provider, _ *login.OpenID) { p.Lifetime = -time.Hour }, "expired"},
		"error":            {func(p *provider, _ *login.OpenID) { p.Broken = "server_error" }, "400 server_error"},
		"error with a description": {
			func(p *provider, _ *login.OpenID) {
				p.Broken, p.Description = "invalid_grant", "AADSTS50105: not\n\x1b[2J assigned "+strings.Repeat("x", 600)
			}, "400 invalid_grant: AADSTS50105: not [2J assigned xxx",
		},
		"no callback": {
			func(_ *provider, o *login.OpenID) { o.Timeout = 50 * time.Millisecond; o.Open = noBrowser }, "in time",
		},
		"another issuer": {func(_ *provider, o *login.OpenID) { o.Issuer += "/other" }, "query the provider"},
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

func noBrowser(context.Context, string) error { return nil }

// TestForgedCallback checks that a request without the state can neither log in nor stop the
// login.
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
		for _, forged := range []string{
			"?code=theirs", "?code=theirs&state=", "?code=theirs&state=guess", "?error=access_denied&state=guess",
		} {
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
		t.Errorf("login after forged callbacks = %v", err)
	}
}

func TestCacheOfOtherClients(t *testing.T) {
	c := &login.Cache{Dir: t.TempDir()}
	key := []string{"k"}
	put := func(*login.Token) (*login.Token, error) {
		return &login.Token{Token: "t", Expires: time.Now().Add(time.Hour)}, nil
	}
	if _, err := c.With(t.Context(), key, put); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(c.Dir, "*"))
	for _, f := range files {
		if err := os.Chmod(f, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.With(t.Context(), key, put); err == nil || !strings.Contains(err.Error(), "other users can read") {
		t.Errorf("token file that other users may read = %v", err)
	}
}

// TestInterrupted checks that With stops waiting for another process's login if ctx is done.
func TestInterrupted(t *testing.T) {
	c := &login.Cache{Dir: t.TempDir()}
	locked, done := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = c.With(context.WithoutCancel(t.Context()), []string{"k"}, func(*login.Token) (*login.Token, error) {
			close(locked)
			<-done
			return nil, errors.New("over")
		})
	}()
	<-locked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.With(ctx, []string{"k"}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("With() = %v", err)
	}
	close(done)
}

// TestWritableDirectory checks that With returns an error if other users may write to the
// directory.
func TestWritableDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // #nosec G302 -- that is the point
		t.Fatal(err)
	}
	if _, err := (&login.Cache{Dir: dir}).With(t.Context(), []string{"k"}, nil); err == nil ||
		!strings.Contains(err.Error(), "other users can write") {
		t.Errorf("With() = %v", err)
	}
}

func TestKeystone(t *testing.T) {
	status := http.StatusCreated
	logins := 0
	server := logintest.NewKeystone(func() int { logins++; return status })
	defer server.Close()
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := fmt.Sprintf("clouds:\n  kube:\n    auth: { auth_url: %q, application_credential_id: id, "+
		"application_credential_secret: SECRET }\n    auth_type: v3applicationcredential\n",
		server.URL+"/v3")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*login.Keystone{
		"password":               {Environment: os.Getenv},
		"application_credential": {Cloud: "kube", File: file, Environment: os.Getenv},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range map[string]string{
				"OS_AUTH_URL":            server.URL + "/v3",
				"OS_USERNAME":            "alice",
				"OS_PASSWORD":            "SECRET",
				"OS_USER_DOMAIN_NAME":    "acme",
				"OS_PROJECT_NAME":        "web",
				"OS_PROJECT_DOMAIN_NAME": "acme",
			} {
				t.Setenv(variable, value)
			}
			k.Now = time.Now
			if err := k.Read(); err != nil {
				t.Fatalf("%v", err)
			}
			status = http.StatusCreated
			got, err := k.Token(t.Context(), nil)
			if err != nil || got.Token != "gAAAA-"+name {
				t.Errorf("%v, %v", got, err)
				return
			}
			before := logins
			if again, err := k.Token(t.Context(), got); err != nil || again != got || logins != before {
				t.Errorf("stored token = %v, %v", again, err)
			}
			status = http.StatusUnauthorized
			if _, err := k.Token(t.Context(), nil); err == nil || strings.Contains(err.Error(), "SECRET") ||
				strings.Contains(err.Error(), "CANARY") ||
				!strings.Contains(err.Error(), "the credential was rejected") {
				t.Errorf("rejected credential = %v", err)
			}
		})
	}
	t.Setenv("OS_AUTH_URL", "")
	if err := (&login.Keystone{Environment: os.Getenv}).Read(); !errors.Is(err, login.ErrNoCloud) {
		t.Errorf("no cloud = %v", err)
	}
}

// TestCloudErrorsContainNoSecret checks that the error about an invalid clouds.yaml or secure.yaml
// contains no value of the file.
func TestCloudErrorsContainNoSecret(t *testing.T) {
	for name, text := range map[string]string{
		"unknown anchor":  "clouds:\n  kube:\n    auth: { password: *CANARY }\n",
		"wrong type":      "clouds:\n  kube:\n    auth: CANARY\n",
		"list":            "clouds:\n  kube:\n    auth: { password: [CANARY] }\n",
		"unknown tag":     "clouds:\n  kube:\n    auth: { password: !!int CANARY }\n",
		"unclosed string": "clouds:\n  kube:\n    auth: { password: \"CANARY }\n",
		"control":         "clouds:\n  kube:\n    auth: { password: CANARY\x01 }\n",
	} {
		for _, file := range []string{"clouds.yaml", "secure.yaml"} {
			t.Run(name+" in "+file, func(t *testing.T) {
				dir := t.TempDir()
				files := map[string]string{"clouds.yaml": "clouds:\n  kube:\n    auth: { auth_url: https://k }\n"}
				files[file] = text
				for file, text := range files {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				k := &login.Keystone{Cloud: "kube", File: filepath.Join(dir, "clouds.yaml"), Environment: os.Getenv}
				if err := k.Read(); err == nil || strings.Contains(err.Error(), "CANARY") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

func TestInteractive(t *testing.T) {
	const v1 = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":%v}}`
	for info, want := range map[string]bool{"": true, fmt.Sprintf(v1, true): true, fmt.Sprintf(v1, false): false} {
		t.Run(info, func(t *testing.T) {
			if got, err := login.Interactive(info); err != nil || got != want {
				t.Errorf("Interactive(%q) = %v, %v", info, got, err)
			}
		})
	}
	for _, info := range []string{"{", `{"apiVersion":"client.authentication.k8s.io/v1beta1"}`} {
		if _, err := login.Interactive(info); err == nil {
			t.Errorf("Interactive(%q): no error", info)
		}
	}
}

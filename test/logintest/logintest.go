// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package logintest provides fake identity providers for tests of logins.
package logintest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kubetenant/kubetenant/authn/authntest"
)

// ClientID is the ID of the provider's only client.
const ClientID = "kubectl"

// Provider is an OpenID provider that logs in every client as alice, without a password. Its
// fields may be set between requests.
type Provider struct {
	*httptest.Server
	key *authntest.Key

	mu        sync.Mutex
	Logins    int
	challenge map[string]string // keyed by code
	nonces    map[string]string
	Nonce     string // replaces the nonce of the request
	Lifetime  time.Duration
	NoRefresh bool   // rejects refresh tokens
	Devices   int    // number of authorization_pending responses
	Broken    string // if set, the error that the token endpoint returns
	// Description is the error description that belongs to Broken. If empty, the description
	// contains the data that the client sent.
	Description string
}

// NewProvider starts a provider. The caller must close it.
func NewProvider() *Provider {
	p := &Provider{
		key:       authntest.MustKey("ES256"),
		challenge: map[string]string{},
		nonces:    map[string]string{},
		Lifetime:  time.Hour,
	}
	mux := http.NewServeMux()
	p.Server = httptest.NewTLSServer(mux)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer":                                p.URL,
			"authorization_endpoint":                p.URL + "/auth",
			"token_endpoint":                        p.URL + "/token",
			"device_authorization_endpoint":         p.URL + "/device",
			"jwks_uri":                              p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{p.key.JWK()}})
	})
	mux.HandleFunc("/auth", p.authorize)
	mux.HandleFunc("/device", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"device_code":      "device",
			"user_code":        "ABCD-EFGH",
			"verification_uri": p.URL + "/activate",
			"expires_in":       "60", // a string, as some providers send it
			"interval":         "1",
		})
	})
	mux.HandleFunc("/token", p.token)
	return p
}

// WriteCA writes the provider's certificate authority to a file.
func (p *Provider) WriteCA(path string) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	p.Logins++
	code := fmt.Sprintf("code-%d", p.Logins)
	p.challenge[code], p.nonces[code] = q.Get("code_challenge"), q.Get("nonce")
	p.mu.Unlock()
	if q.Get("code_challenge_method") != "S256" || !strings.Contains(q.Get("scope"), "openid") {
		http.Error(w, "no PKCE", http.StatusBadRequest)
		return
	}
	to := q.Get("redirect_uri") + "?" + url.Values{"state": {q.Get("state")}, "code": {code}}.Encode()
	http.Redirect(w, r, to, http.StatusFound) // #nosec G710 -- of a test
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	refuse := func(code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"error":             code,
			"error_description": cmp.Or(p.Description, "CANARY "+r.Form.Encode()),
		})
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
		if p.Nonce != "" {
			nonce = p.Nonce
		}
	case "refresh_token":
		if p.NoRefresh || r.Form.Get("refresh_token") != "refresh" {
			refuse("invalid_grant")
			return
		}
	default:
		if p.Devices--; p.Devices >= 0 {
			refuse("authorization_pending")
			return
		}
	}
	if p.Broken != "" {
		refuse(p.Broken)
		return
	}
	id := p.key.MustSign(map[string]any{
		"iss":   p.URL,
		"aud":   ClientID,
		"sub":   "alice",
		"nonce": nonce,
		"iat":   time.Now().Unix(),
		"exp":   time.Now().Add(p.Lifetime).Unix(),
	})
	answer(w, map[string]any{
		"access_token":  "a",
		"token_type":    "Bearer",
		"id_token":      id,
		"refresh_token": "refresh",
	})
}

// NewKeystone starts a fake Keystone that responds to each login with the status that status
// returns. The caller must close it. Each token ends with the authentication method of the login.
func NewKeystone(status func() int) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Auth struct {
				Identity struct {
					Methods []string `json:"methods"`
				} `json:"identity"`
			} `json:"auth"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v3/auth/tokens" ||
			len(in.Auth.Identity.Methods) != 1 {
			http.Error(w, "no login", http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Subject-Token", "gAAAA-"+in.Auth.Identity.Methods[0])
		w.WriteHeader(status())
		_, _ = fmt.Fprintf(w, `{"token": {"expires_at": %q}, "error": {"message": "CANARY"}}`,
			time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z"))
	}))
}

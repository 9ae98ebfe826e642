// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/authn/authntest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// Audience is the audience of the API server, and the issuer of its service account tokens, in
// every mode.
const Audience = "https://kubernetes.default.svc"

// providers are the fake identity providers for a configuration: OpenID Connect issuers, Keystone
// servers and TokenReview services. They share one port on the loopback interface.
type providers struct {
	server *httptest.Server
	ca     []byte
	mux    *http.ServeMux

	mu      sync.Mutex
	answers map[string]func(w http.ResponseWriter, r *http.Request) // keyed by token
}

func (p *providers) close() {
	if p == nil {
		return
	}
	p.server.CloseClientConnections()
	p.server.Close()
}

// expect sets the handler for requests about a token.
func (p *providers) expect(token string, answer func(w http.ResponseWriter, r *http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[token] = answer
}

// answer responds to a request about a token. If no handler is set, the response is 404.
func (p *providers) answer(token string, w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	answer := p.answers[token]
	p.mu.Unlock()
	if answer == nil {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	answer(w, r)
}

// makeProviders creates the keys of the token sources, starts the providers, and sets their
// addresses in the configuration.
func (w *Fixture) makeProviders() error {
	w.keys = map[string]*authntest.Key{}
	w.providers = &providers{mux: http.NewServeMux(), answers: map[string]func(http.ResponseWriter, *http.Request){}}
	w.providers.server = httptest.NewUnstartedServer(w.providers.mux)
	w.providers.server.Config.ErrorLog = log.New(io.Discard, "", 0) // irrelevant for a scenario
	w.providers.server.StartTLS()
	w.providers.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.providers.server.Certificate().Raw})
	sources := w.Config.Authentication.Sources
	for i := range sources {
		var err error
		switch src := &sources[i]; {
		case src.ServiceAccount != nil:
			w.makeServiceAccounts(src)
		case src.OIDC != nil:
			err = w.makeIssuer(src)
		case src.Keystone != nil:
			err = w.makeKeystone(src)
		case src.Webhook != nil:
			err = w.makeWebhook(src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeServiceAccounts sets the public key that verifies service account tokens.
func (w *Fixture) makeServiceAccounts(src *configv1alpha1.Source) {
	if len(src.ServiceAccount.KeyFiles) > 0 {
		return
	}
	copied := *src.ServiceAccount
	copied.KeyFiles = []string{serviceAccountKey}
	src.ServiceAccount = &copied
	w.keys[src.Name] = w.shared.serviceAccounts
}

func (w *Fixture) makeKey(name string) (*authntest.Key, error) {
	key, err := authntest.NewKey("ES256")
	w.keys[name] = key
	return key, err
}

// makeIssuer serves the discovery document and the keys of an issuer. It does not change the issuer
// URL.
func (w *Fixture) makeIssuer(src *configv1alpha1.Source) error {
	if src.OIDC.JWT.Issuer.DiscoveryURL != nil {
		return nil
	}
	key, err := w.makeKey(src.Name)
	if err != nil {
		return err
	}
	copied := *src.OIDC
	base := w.providers.server.URL + "/oidc/" + src.Name
	discovery := base + "/discovery"
	copied.JWT.Issuer.DiscoveryURL = &discovery
	copied.JWT.Issuer.CertificateAuthority = string(w.providers.ca)
	src.OIDC = &copied
	serveJSON(w.providers.mux, "/oidc/"+src.Name+"/discovery",
		map[string]any{"issuer": copied.JWT.Issuer.URL, "jwks_uri": base + "/keys"})
	serveJSON(w.providers.mux, "/oidc/"+src.Name+"/keys", map[string]any{"keys": []any{key.JWK()}})
	return nil
}

func serveJSON(mux *http.ServeMux, path string, content any) {
	mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(content)
	})
}

// makeKeystone serves the login of the service user and the validation of tokens (Identity API v3).
func (w *Fixture) makeKeystone(src *configv1alpha1.Source) error {
	if src.Keystone.CloudsFile != "" {
		return nil
	}
	copied := *src.Keystone
	path := "/keystone/" + src.Name + "/v3"
	copied.AuthURL = w.providers.server.URL + path
	copied.Cloud = "scenario"
	copied.CloudsFile = src.Name + "-clouds.yaml"
	src.Keystone = &copied
	const service = "service-token"
	w.providers.mux.HandleFunc("POST "+path+"/auth/tokens", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Subject-Token", service)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":{"expires_at":%q}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
	w.providers.mux.HandleFunc("GET "+path+"/auth/tokens", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Auth-Token") != service {
			http.Error(rw, "", http.StatusUnauthorized)
			return
		}
		w.providers.answer(r.Header.Get("X-Subject-Token"), rw, r)
	})
	ca := filepath.Join(w.Dir, src.Name+"-ca.crt")
	if err := os.WriteFile(ca, w.providers.ca, 0o600); err != nil {
		return err
	}
	clouds := fmt.Sprintf("clouds: { scenario: { cacert: %q, "+
		"auth: { username: u, password: p, user_domain_name: Default, system_scope: all } } }\n", ca)
	return os.WriteFile(filepath.Join(w.Dir, copied.CloudsFile), []byte(clouds), 0o600)
}

// makeWebhook serves a TokenReview service.
func (w *Fixture) makeWebhook(src *configv1alpha1.Source) error {
	if src.Webhook.KubeConfigFile != "" {
		return nil
	}
	copied := *src.Webhook
	copied.KubeConfigFile = src.Name + ".kubeconfig"
	src.Webhook = &copied
	path := "/webhook/" + src.Name
	w.providers.mux.HandleFunc("POST "+path, func(rw http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, 1<<20)).Decode(&review); err != nil {
			http.Error(rw, "", http.StatusBadRequest)
			return
		}
		w.providers.answer(src.Name+" "+review.Spec.Token, rw, r)
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   w.providers.server.URL + path,
		CertificateAuthorityData: w.providers.ca,
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	return clientcmd.WriteToFile(*config, filepath.Join(w.Dir, copied.KubeConfigFile))
}

// faulty returns a handler that simulates a fault, or nil if fault is empty.
func faulty(fault string) func(http.ResponseWriter, *http.Request) {
	switch fault {
	case FaultHang:
		return func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	case FaultClose:
		return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	case FaultError:
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) }
	}
	return nil
}

// text returns the content of a JSON string, and any other value unchanged.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return strings.TrimSpace(string(raw))
}

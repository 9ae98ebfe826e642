// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authntest

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
)

// Issuer is an OpenID Connect provider that serves discovery and keys over HTTPS on the loopback
// address. Each path on the server is a separate issuer with the same keys.
type Issuer struct {
	// Fetches is the number of requests for keys.
	Fetches atomic.Int64

	server *httptest.Server
	mu     sync.Mutex
	keys   []*Key
	fault  http.HandlerFunc
}

// NewIssuer starts a provider with the given keys. The caller must call Close.
func NewIssuer(keys ...*Key) *Issuer {
	i := &Issuer{keys: keys}
	i.server = httptest.NewTLSServer(http.HandlerFunc(i.serve))
	return i
}

// Close stops the provider.
func (i *Issuer) Close() {
	i.server.CloseClientConnections()
	i.server.Close()
}

// URL returns the URL of the issuer at the root path of the provider.
func (i *Issuer) URL() string { return i.server.URL }

// CA returns the PEM-encoded certificate that clients of the provider must trust.
func (i *Issuer) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
}

// Rotate replaces the keys.
func (i *Issuer) Rotate(keys ...*Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

// Fail makes fault handle all requests. If fault is nil, requests are served as usual.
func (i *Issuer) Fail(fault http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fault = fault
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	keys, fault := i.keys, i.fault
	i.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if path, ok := strings.CutSuffix(r.URL.Path, "/.well-known/openid-configuration"); ok {
		issuer := i.server.URL + path
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": issuer, "jwks_uri": issuer + "/keys"})
		return
	}
	i.Fetches.Add(1)
	jwks := make([]any, 0, len(keys))
	for _, k := range keys {
		jwks = append(jwks, k.JWK())
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": jwks})
}

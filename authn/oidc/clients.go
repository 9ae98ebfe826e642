// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
)

// maxRedirects is the maximum number of redirects of one request.
const maxRedirects = 5

// Clients are the HTTP clients that fetch keys. All issuers with the same certificate authority
// share one client. The zero value is ready for use. It is safe for concurrent use.
type Clients struct {
	mu   sync.Mutex
	byCA map[string]*http.Client
}

// client returns the client that trusts the PEM-encoded certificates of ca. If ca is empty, the
// client trusts the system's certificate authorities.
func (c *Clients) client(ca string) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.byCA[ca]; client != nil {
		return client, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("no PEM-encoded CA certificate found")
		}
	}
	client := &http.Client{
		Timeout: fetchTimeout,
		Transport: outbound.Capped(utilnet.SetTransportDefaults(&http.Transport{
			TLSClientConfig:        config,
			MaxResponseHeaderBytes: outbound.MaxHeaderBytes,
		})),
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Scheme != "https" || len(via) >= maxRedirects {
				return outbound.ErrRedirect
			}
			return nil
		},
	}
	if c.byCA == nil {
		c.byCA = map[string]*http.Client{}
	}
	c.byCA[ca] = client
	return client, nil
}

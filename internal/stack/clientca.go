// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"crypto/x509"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// clientCAs contains the certificate authorities of a stack's x509 sources. A server sends their
// names in TLS handshakes, so that clients can select a certificate. They are not used for
// authentication.
type clientCAs struct {
	mu        sync.Mutex
	bundles   []func() []byte
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.CAContentProvider = (*clientCAs)(nil)

// set replaces the bundles.
func (c *clientCAs) set(bundles []func() []byte) {
	c.mu.Lock()
	c.bundles = bundles
	c.mu.Unlock()
	c.notify()
}

// notify notifies the listeners of new content in a bundle.
func (c *clientCAs) notify() {
	c.mu.Lock()
	listeners := c.listeners
	c.mu.Unlock()
	for _, l := range listeners {
		l.Enqueue()
	}
}

// AddListener implements [dynamiccertificates.Notifier].
func (c *clientCAs) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, l)
}

// Name implements [dynamiccertificates.CAContentProvider].
func (c *clientCAs) Name() string { return "kubetenant-client-ca" }

// CurrentCABundleContent implements [dynamiccertificates.CAContentProvider].
func (c *clientCAs) CurrentCABundleContent() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all [][]byte
	for _, bundle := range c.bundles {
		all = append(all, bytes.TrimSpace(bundle()))
	}
	return bytes.Join(all, []byte("\n"))
}

// VerifyOptions implements [dynamiccertificates.CAContentProvider].
func (c *clientCAs) VerifyOptions() (x509.VerifyOptions, bool) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CurrentCABundleContent()) {
		return x509.VerifyOptions{}, false
	}
	return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

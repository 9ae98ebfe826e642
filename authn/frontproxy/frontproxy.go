// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package frontproxy authenticates identities that a trusted proxy states in headers.
//
// It is kube-apiserver's own request-header authenticator, rebuilt from the server's
// --requestheader flags so that what came over it is known: only such an identity may state its
// tenant, in the header of the extra kubetenant.dev/tenant.
package frontproxy

import (
	"crypto"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/client-go/util/cert"
)

var (
	// ErrSharedAuthority says that every client certificate would be taken for the proxy's.
	ErrSharedAuthority = errors.New("every client could assert any identity, because a client CA is or is signed by the " +
		"requestheader CA: set --requestheader-allowed-names or use another CA")
	// ErrAnyName says that any certificate of the requestheader CA would be the proxy's.
	ErrAnyName = errors.New("a front proxy that asserts tenants must have a name: set --requestheader-allowed-names")
)

// New returns an authenticator of the requests that come over the proxy of config. It abstains on
// requests without the proxy's certificate or without a user name header: a certificate that is not
// the proxy's is another source's business. It is audience-agnostic.
//
// Security: the identity is what the headers say, tenant and any extra outside our own domain
// included; it MUST pass the hygiene of package authn, and config MUST hold allowed names
// ([ErrAnyName]).
func New(config *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	upstream := headerrequest.NewDynamicVerifyOptionsSecure(
		config.CAContentProvider.VerifyOptions,
		config.AllowedClientNames,
		config.UsernameHeaders,
		config.UIDHeaders,
		config.GroupHeaders,
		config.ExtraHeaderPrefixes,
	)
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		// Upstream verifies the certificate first, which may take long.
		isSet := func(name string) bool { return req.Header.Get(name) != "" }
		if !slices.ContainsFunc(config.UsernameHeaders.Value(), isSet) {
			return nil, false, nil
		}
		resp, ok, err := upstream.AuthenticateRequest(req)
		if err != nil {
			// Upstream's only errors are about the certificate: not the proxy's, expired, another
			// name. Nothing in the headers was looked at, and nothing of them is believed.
			return nil, false, nil
		}
		return resp, ok, nil
	})
}

// CheckAuthorities returns [ErrSharedAuthority] if a certificate of a client CA bundle (PEM) is one
// of the proxy's CAs, or leads to one, while config allows any common name.
func CheckAuthorities(config *authenticatorfactory.RequestHeaderConfig, clientCAs ...[]byte) error {
	if config == nil || len(config.AllowedClientNames.Value()) > 0 {
		return nil
	}
	proxies, err := cert.ParseCertsPEM(config.CAContentProvider.CurrentCABundleContent())
	if err != nil {
		return err
	}
	for _, bundle := range clientCAs {
		clients, err := cert.ParseCertsPEM(bundle)
		if err != nil {
			return err
		}
		for _, c := range clients {
			if containsKeyOf(proxies, c) || leadsTo(proxies, c, clients) {
				return ErrSharedAuthority
			}
		}
	}
	return nil
}

// leadsTo reports whether c is signed, over any of the intermediates, by one of roots. Whatever
// goes wrong otherwise than for want of such a chain counts as one.
func leadsTo(roots []*x509.Certificate, c *x509.Certificate, intermediates []*x509.Certificate) bool {
	o := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   c.NotAfter,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for _, root := range roots {
		o.Roots.AddCert(root)
	}
	for _, i := range intermediates {
		o.Intermediates.AddCert(i)
	}
	_, err := c.Verify(o)
	return !errors.As(err, &x509.UnknownAuthorityError{})
}

// containsKeyOf compares public keys: a renewed CA certificate of the same key signs the same.
func containsKeyOf(all []*x509.Certificate, c *x509.Certificate) bool {
	for _, other := range all {
		if key, ok := other.PublicKey.(interface{ Equal(x crypto.PublicKey) bool }); ok && key.Equal(c.PublicKey) {
			return true
		}
	}
	return false
}

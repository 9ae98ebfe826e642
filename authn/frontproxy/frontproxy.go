// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package frontproxy authenticates identities that a trusted proxy asserts in headers.
//
// It rebuilds kube-apiserver's own request-header authenticator from the server's --requestheader
// flags. The chain can therefore distinguish identities of the front proxy from other identities of
// the server's own authenticators. Only the front proxy may assert a tenant, in the header of the
// extra kubetenant.dev/tenant.
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
	// ErrSharedAuthority reports that every client certificate would be accepted as the
	// certificate of the proxy.
	ErrSharedAuthority = errors.New("every client could assert any identity, because a client CA is or is signed by the " +
		"requestheader CA: set --requestheader-allowed-names or use another CA")
	// ErrAnyName reports that every certificate of the requestheader CA would be accepted as the
	// certificate of the proxy.
	ErrAnyName = errors.New("a front proxy that asserts tenants must have a name: set --requestheader-allowed-names")
)

// New returns an authenticator for requests from the proxy that config describes. It abstains
// from requests without the proxy's certificate or without a user name header. Another source
// may accept a certificate that is not the proxy's. The authenticator is audience-agnostic.
//
// Security: the identity contains whatever the headers assert, including the tenant and all extras.
// It MUST pass the identity validation of package authn. config MUST contain allowed names
// ([ErrAnyName]), and New does not check this.
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
		// The header is checked here first, because upstream first verifies the certificate, which may be
		// slow.
		isSet := func(name string) bool { return req.Header.Get(name) != "" }
		if !slices.ContainsFunc(config.UsernameHeaders.Value(), isSet) {
			return nil, false, nil
		}
		resp, ok, err := upstream.AuthenticateRequest(req)
		if err != nil {
			// All errors from upstream concern the certificate. It is not the proxy's, has
			// expired, or has a name that is not allowed. Upstream then does not use the
			// headers.
			return nil, false, nil
		}
		return resp, ok, nil
	})
}

// CheckAuthorities returns [ErrSharedAuthority] if config allows any common name and a client CA
// is one of the proxy's CAs or is signed by one of them. clientCAs are PEM-encoded bundles. If a
// bundle cannot be parsed, CheckAuthorities returns another error. A nil config is valid.
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
			if containsKeyOf(proxies, c) || verifiesTo(proxies, c, clients) {
				return ErrSharedAuthority
			}
		}
	}
	return nil
}

// verifiesTo reports whether one of roots signed c, directly or through intermediates. It
// returns false only if the verification fails because of an unknown authority. It returns true
// for any other error.
func verifiesTo(roots []*x509.Certificate, c *x509.Certificate, intermediates []*x509.Certificate) bool {
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

// containsKeyOf reports whether a certificate in all has the public key of c. A renewed CA
// certificate may have the same key as the old certificate.
func containsKeyOf(all []*x509.Certificate, c *x509.Certificate) bool {
	for _, other := range all {
		if key, ok := other.PublicKey.(interface{ Equal(x crypto.PublicKey) bool }); ok && key.Equal(c.PublicKey) {
			return true
		}
	}
	return false
}

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

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/client-go/util/cert"
)

// ErrSharedAuthority says that every client certificate would be taken for the proxy's.
var ErrSharedAuthority = errors.New("the requestheader CA is a client CA too and any common name is allowed: every client could state any identity (set --requestheader-allowed-names or use another CA)")

// New returns an authenticator of the requests that come over the proxy of config. It abstains on
// requests without the proxy's certificate or without a user name header: a certificate that is not
// the proxy's is another source's business. It is audience-agnostic.
//
// Security: the identity is what the headers say, tenant included; it MUST pass the hygiene of
// package authn.
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
		resp, ok, err := upstream.AuthenticateRequest(req)
		if err != nil {
			// Upstream's only errors are about the certificate: not the proxy's, expired, another
			// name. Nothing in the headers was looked at, and nothing of them is believed.
			return nil, false, nil //nolint:nilerr // abstaining is the point
		}
		return resp, ok, nil
	})
}

// CheckAuthorities returns [ErrSharedAuthority] if a certificate of the proxy's CA bundle stands in
// a client CA bundle (PEM) too while config allows any common name.
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
			if containsKeyOf(proxies, c) {
				return ErrSharedAuthority
			}
		}
	}
	return nil
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

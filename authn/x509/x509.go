// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package x509 authenticates client certificates that name a tenant in their subject.
//
// In the new format, the subject has exactly one organization, "tenant:<id>". The groups are the
// organizational units.
//
// In the old format, no organization is "tenant" or begins with "tenant:". The tenant is the common
// name up to the first ":". If the common name begins with "tenant:", the tenant is the part
// between that prefix and the next ":" or the end. The groups are the organizations.
//
// In both formats, the user name is the common name.
//
// Kube-apiserver's own authenticator verifies the chains (k8s.io/apiserver
// pkg/authentication/request/x509, v0.37.1). This package only interprets verified chains.
package x509

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kubetenant/kubetenant/authn/internal/validity"
)

// Options specify which certificates are accepted.
type Options struct {
	// SystemOrganizations are the organizations of the system tenant. An old-format certificate
	// without a tenant in its common name belongs to the system tenant if it has one of these
	// organizations.
	SystemOrganizations []string
	// SystemUsers are the common names of the system tenant. An old-format certificate without a
	// tenant in its common name belongs to the system tenant if it has one of these common
	// names. The caller MUST reserve them for the system tenant.
	SystemUsers []string
	// DenyOldFormat rejects certificates without a tenant organization.
	DenyOldFormat bool
	// Revoked returns the reason why a certificate above the leaf of a verified chain is
	// revoked, or nil. The client need not have presented the certificate. Revoked is called for
	// each request. If nil, no certificate is revoked.
	Revoked func(*x509.Certificate) error
}

// New returns an authenticator for certificates that lead to authorities. The function
// authorities MUST return a new pointer for each version of the authorities. The authenticator
// abstains if the client presents no certificate, or a certificate from other authorities. It
// rejects certificates from its own authorities in these cases:
//
//   - The certificate is not valid at the current time, or is not for client authentication.
//   - Each chain of the certificate contains a revoked authority.
//   - The subject has no common name, or does not name exactly one valid tenant.
//   - A new-format subject has another organization, or the organizational unit system:masters.
//   - The subject has the old format, and DenyOldFormat is set.
//
// The result for a chain is cached by the SHA-256 of all presented certificates. A cached result
// is valid until the first certificate of the verified chains expires or an authority of the
// verifier changes. A rejection is cached for a few seconds.
//
// The identity has the name, UID and credential-id that upstream's authenticator returns, the
// groups that the subject names, and the extra tenant.ExtraKey. The authenticator is
// audience-agnostic.
func New(v *Verifier, authorities func() *Authorities, o Options) authenticator.Request {
	s := &source{v, len(v.sources), authorities, subject{o.SystemOrganizations, o.SystemUsers, o.DenyOldFormat}, o.Revoked}
	v.sources = append(v.sources, s)
	return s
}

type source struct {
	verifier    *Verifier
	index       int // among the verifier's sources
	authorities func() *Authorities
	subject     subject
	revoked     func(*x509.Certificate) error
}

// AuthenticateRequest implements [authenticator.Request].
func (s *source) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	o := &s.verifier.verify(req.TLS.PeerCertificates).outcomes[s.index]
	if o.user == nil {
		return nil, false, o.err
	}
	if err := s.checkRevoked(o.issuers); err != nil {
		return nil, false, fmt.Errorf("user %q: %w", o.user.GetName(), err)
	}
	return &authenticator.Response{User: o.user}, true, nil
}

// checkRevoked returns nil if at least one chain contains no revoked certificate.
func (s *source) checkRevoked(chains [][]*x509.Certificate) (err error) {
	if s.revoked == nil {
		return nil
	}
	for _, issuers := range chains {
		err = nil
		for _, c := range issuers {
			err = errors.Join(err, s.revoked(c))
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// outcome returns the result of a verification for the source.
func (s *source) outcome(authorities *Authorities, chains [][]*x509.Certificate, err error) outcome {
	var own [][]*x509.Certificate
	for _, chain := range chains {
		if authorities.isRootOf(chain) {
			own = append(own, chain)
		}
	}
	unknown := x509.UnknownAuthorityError{}
	switch isForeign := err == nil || len(chains) > 0 || errors.As(err, &unknown); {
	case len(own) == 0 && isForeign:
		return outcome{}
	case err != nil:
		return outcome{err: err}
	}
	resp, _, err := s.subject.User(own[0])
	if err != nil {
		return outcome{err: err}
	}
	issuers := make([][]*x509.Certificate, 0, len(own))
	for _, chain := range own {
		issuers = append(issuers, chain[1:])
	}
	return outcome{
		user:    validity.With(resp.User, own[0][0].NotBefore, latestExpiry(own)),
		issuers: issuers,
		until:   earliestExpiry(slices.Concat(own...)),
	}
}

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
	// SystemOrganizations are organizations. An old-format certificate without a tenant in its common
	// name belongs to the system tenant if it has one of them.
	SystemOrganizations []string
	// SystemUsers are common names. An old-format certificate without a tenant belongs to the system
	// tenant if it has one of them. The caller MUST reserve them for the system tenant.
	SystemUsers []string
	// DenyOldFormat rejects certificates without a tenant organization.
	DenyOldFormat bool
	// Revoked returns the reason why a certificate above the leaf of a verified chain is revoked, or
	// nil. The client need not present an authority. It is called for each request. If nil, no
	// certificate is revoked.
	Revoked func(*x509.Certificate) error
}

// New returns an authenticator of the certificates that lead to authorities. The function
// authorities MUST return a new pointer for each version of the authorities. The authenticator
// abstains without a certificate and on certificates of other authorities. It rejects certificates
// of its own authorities in these cases:
//
//   - The certificate has expired, or is not for client authentication.
//   - Each chain of the certificate contains a revoked authority.
//   - The subject names no tenant or several tenants.
//   - A new-format subject has the organizational unit system:masters.
//
// The result for a chain is cached by the SHA-256 of all presented certificates. A cached result is
// valid until the first certificate of the verified chains expires or an authority of the verifier
// changes. A rejection is cached for a few seconds.
//
// The identity is upstream's, including UID and credential-id, with tenant.ExtraKey added. It is
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

// outcome returns the result of a verified chain for the source.
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

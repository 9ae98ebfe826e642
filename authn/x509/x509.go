// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package x509 authenticates client certificates that name a tenant in their subject.
//
// New format: exactly one organization, "tenant:<id>"; the groups are the organizational units.
// Old format (no organization is "tenant" or begins "tenant:"): the tenant is the common name up
// to its first ":" or, where the common name begins "tenant:", between that and the next ":"; the
// groups are the organizations. The user name is the common name as it stands.
//
// Chains are verified by kube-apiserver's own authenticator (k8s.io/apiserver
// pkg/authentication/request/x509, v0.37.1); only what a verified chain means is decided here.
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

// Options say what certificates may be.
type Options struct {
	// SystemOrganizations make an old-format certificate without a tenant in its common name the
	// system tenant's.
	SystemOrganizations []string
	// SystemUsers are common names that make an old-format certificate without a tenant the system
	// tenant's. The caller MUST reserve them for the system tenant.
	SystemUsers []string
	// DenyOldFormat refuses certificates without a tenant organization.
	DenyOldFormat bool
	// Revoked returns why a certificate of a verified chain above the leaf counts no longer, nil if it
	// does: an authority need not have been presented. It is asked for each request. Nil for none.
	Revoked func(*x509.Certificate) error
}

// New returns an authenticator of the certificates that lead to authorities, of which each version
// has an address of its own. It abstains without a certificate and on certificates of other
// authorities. Of its own authorities it refuses expired ones, ones not meant for clients, those
// whose every chain holds a revoked authority, and those whose subject names no tenant or several,
// or has the unit system:masters.
//
// A chain is remembered by the SHA-256 of all that was presented, until the first certificate
// of those it was verified by expires or an authority of the verifier changes; one that was
// refused for some seconds.
//
// The identity is upstream's, UID and credential-id included, with tenant.ExtraKey added. It is
// audience-agnostic.
func New(v *Verifier, authorities func() *Authorities, o Options) authenticator.Request {
	s := &source{v, len(v.sources), authorities, subject{o.SystemOrganizations, o.SystemUsers, o.DenyOldFormat}, o.Revoked}
	v.sources = append(v.sources, s)
	return s
}

type source struct {
	verifier    *Verifier
	index       int // among the verifier's
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
	if err := s.unrevoked(o.issuers); err != nil {
		return nil, false, fmt.Errorf("user %q: %w", o.user.GetName(), err)
	}
	return &authenticator.Response{User: o.user}, true, nil
}

// unrevoked returns nil if one chain holds nothing that is revoked.
func (s *source) unrevoked(chains [][]*x509.Certificate) (err error) {
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

// outcome says what the verification of a chain means to the source.
func (s *source) outcome(of *Authorities, chains [][]*x509.Certificate, err error) outcome {
	var own [][]*x509.Certificate
	for _, chain := range chains {
		if of.end(chain) {
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
		user:    validity.With(resp.User, own[0][0].NotBefore, lastOf(own)),
		issuers: issuers,
		until:   earliest(slices.Concat(own...)),
	}
}

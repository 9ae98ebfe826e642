// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package oidc authenticates ID tokens of OpenID Connect providers.
//
// Upstream's authenticator (k8s.io/apiserver plugin/pkg/authenticator/token/oidc, v0.37.1) does the
// work: claim mappings, validation rules and their CEL. The tenant is one more of its mappings.
// What is added: an issuer costs nothing before its first token, keys that are withdrawn stop
// counting, what a provider can make us fetch is bounded, and errors hold nothing of the token.
package oidc

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// Options configure one issuer.
type Options struct {
	// JWT is upstream's configuration, valid, with a mapping of the extra tenant.ExtraKey.
	JWT apiserver.JWTAuthenticator
	// TenantFrom is how reasons name what the tenant is mapped from: a claim, or an expression. Empty
	// leaves it out.
	TenantFrom string
	// Compiler of CEL, shared by all issuers, best one of [NewCompiler]: it is
	// expensive to make. Required.
	Compiler authenticationcel.Compiler
	// Clients to fetch keys with, shared by all issuers. Required.
	Clients *Clients
	// Now is the clock for the age of keys; nil means time.Now. Tokens are judged by time.Now.
	Now func() time.Time
}

// Authenticator knows the tokens of one issuer. It implements [authenticator.Token], is
// audience-agnostic, as upstream's, and sets, beside what JWT maps, the extra
// authentication.kubernetes.io/credential-id.
type Authenticator struct {
	issuer   string
	upstream func() (authenticator.Token, error)
	reasons
}

// New returns the authenticator of an issuer. Nothing is fetched or compiled before its first
// token. It MUST NOT be used after ctx has ended.
func New(ctx context.Context, o Options) *Authenticator {
	a := &Authenticator{issuer: o.JWT.Issuer.URL, reasons: reasons{&o.JWT, o.TenantFrom}}
	a.upstream = sync.OnceValues(func() (authenticator.Token, error) {
		client, err := o.Clients.client(o.JWT.Issuer.CertificateAuthority)
		if err != nil {
			return nil, err
		}
		config := o.JWT
		config.Issuer.DiscoveryURL = "" // the key set's business
		return oidc.New(ctx, oidc.Options{
			JWTAuthenticator:     config,
			KeySet:               newKeySet(ctx, o.JWT.Issuer, client, o.Now),
			Client:               &http.Client{Transport: asksNobody{}},
			Compiler:             o.Compiler,
			SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
		})
	})
	return a
}

// Issuers are the values of iss that [Authenticator.AuthenticateToken] claims.
func (a *Authenticator) Issuers() []string { return []string{a.issuer} }

// AuthenticateToken implements [authenticator.Token].
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	upstream, err := a.upstream()
	if err != nil {
		return nil, false, err
	}
	v := &verdict{}
	resp, ok, err := upstream.AuthenticateToken(context.WithValue(ctx, verdictKey{}, v), token)
	if err != nil {
		return nil, false, a.reasonOf(err.Error(), v)
	}
	return resp, ok, nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package oidc authenticates ID tokens of OpenID Connect providers.
//
// Upstream's authenticator (k8s.io/apiserver plugin/pkg/authenticator/token/oidc, v0.37.1)
// evaluates the claim mappings, the validation rules and their CEL expressions. The mapping of
// the extra tenant.ExtraKey determines the tenant. Unlike upstream, this package fetches and
// compiles nothing for an issuer before its first token. It stops using withdrawn keys, and
// limits the data that is fetched from a provider. Its errors contain no claim from the token.
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
	// JWT is upstream's configuration. It must be valid and map the extra tenant.ExtraKey.
	JWT apiserver.JWTAuthenticator
	// TenantFrom is the name of the claim or the expression that determines the tenant, for use
	// in errors. If empty, errors do not name it.
	TenantFrom string
	// Compiler compiles CEL expressions. All issuers should share one compiler, because compilation is
	// expensive. Use [NewCompiler]. Required.
	Compiler authenticationcel.Compiler
	// Clients fetch keys. All issuers should share them. Required.
	Clients *Clients
	// Now is the clock for the age of keys. Defaults to time.Now. Tokens are always checked with
	// time.Now.
	Now func() time.Time
}

// Authenticator authenticates the tokens of one issuer. It implements [authenticator.Token] and
// is audience-agnostic, like upstream's authenticator. In addition to the mappings of JWT, it
// sets the extra authentication.kubernetes.io/credential-id.
type Authenticator struct {
	issuer   string
	upstream func() (authenticator.Token, error)
	reasons
}

// New returns the authenticator of an issuer. New fetches and compiles nothing before the first
// token. The authenticator MUST NOT be used after ctx has ended.
func New(ctx context.Context, o Options) *Authenticator {
	a := &Authenticator{issuer: o.JWT.Issuer.URL, reasons: reasons{&o.JWT, o.TenantFrom}}
	a.upstream = sync.OnceValues(func() (authenticator.Token, error) {
		client, err := o.Clients.client(o.JWT.Issuer.CertificateAuthority)
		if err != nil {
			return nil, err
		}
		config := o.JWT
		config.Issuer.DiscoveryURL = "" // only the key set uses the URL
		return oidc.New(ctx, oidc.Options{
			JWTAuthenticator:     config,
			KeySet:               newKeySet(ctx, o.JWT.Issuer, client, o.Now),
			Client:               &http.Client{Transport: noRequests{}},
			Compiler:             o.Compiler,
			SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
		})
	})
	return a
}

// Issuers returns the values of iss that [Authenticator.AuthenticateToken] claims.
func (a *Authenticator) Issuers() []string { return []string{a.issuer} }

// AuthenticateToken implements [authenticator.Token].
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	upstream, err := a.upstream()
	if err != nil {
		return nil, false, err
	}
	v := &signatureResult{}
	resp, ok, err := upstream.AuthenticateToken(context.WithValue(ctx, signatureResultKey{}, v), token)
	if err != nil {
		return nil, false, a.reasonOf(err.Error(), v)
	}
	return resp, ok, nil
}

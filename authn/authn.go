// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package authn authenticates callers. Each configured source binds its identities to exactly
// one tenant. Identities from the server's own authenticators are not bound to a tenant. Package
// authz determines their tenant.
//
// A [Chain] calls, in this order, the front proxy, the configured sources, and the server's own
// authenticators. A source abstains (nil, false, nil) from credentials that are not its own. If
// a source returns an error, the request fails. Every identity is validated before the chain
// returns it.
//
// This package does not authorize requests. Package authz does, and package authn does not
// import it. Each kind of source has its own folder and does not depend on other kinds.
package authn

import (
	"context"
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn/internal/validity"
	"github.com/kubetenant/kubetenant/internal/bearer"
	"github.com/kubetenant/kubetenant/tenant"
)

// Source is one configured source of identities. Exactly one of Request and Token must be set.
type Source struct {
	// Rules specify how the source's identities are validated, qualified and completed.
	Rules IdentityRules
	// Request authenticates requests by credentials other than bearer tokens.
	Request authenticator.Request
	// Token authenticates bearer tokens. The identities that it returns may implement
	// [Revalidator].
	Token authenticator.Token
	// Match specifies which bearer tokens Token may receive.
	Match Match
	// AudienceAware specifies that Token itself checks the audiences of a token. It has no
	// effect on Request.
	AudienceAware bool
	// Uncached specifies that the chain does not cache the results of Token, for example because the
	// source has its own cache.
	Uncached bool
}

// Chain is the configuration of [New].
type Chain struct {
	// Audiences are the audiences of the server. They apply to every source except a Token that
	// is AudienceAware.
	Audiences authenticator.Audiences
	// FrontProxy is called first. Its Request must be set. If nil, there is no front proxy.
	FrontProxy *Source
	// Sources are called in order, except that all token sources run at the position of the
	// first of them. At this position, Match determines which sources receive a token.
	Sources []Source
	// BuiltIn is the server's own authenticator. It is called last. If nil, there is none.
	BuiltIn authenticator.Request

	// BuiltInChains returns the chains from the presented certificates to the authorities that
	// BuiltIn trusts. The authorities in these chains are checked against Revoked. If nil, only
	// the presented certificates are checked.
	BuiltInChains func(presented []*x509.Certificate) [][]*x509.Certificate
	// Limits are the limits for identities from BuiltIn. The zero value means
	// tenant.DefaultLimits.
	Limits tenant.Limits
	// Revoked returns the current revocations, which apply to all sources and to BuiltIn. It is
	// called for each request, even if the result is cached. If Revoked or its result is nil, no
	// credential is revoked.
	Revoked func() *Revocations
	// Accepts reports whether a credential that was issued at the given time may be used for a
	// tenant. It returns false if the credential may belong to a deleted tenant of the same name.
	// issued is zero if the time of issue is unknown. If there is no current Tenant object, it may
	// return true, because package authz denies the requests of such a tenant. Accepts is called
	// for each authenticated caller with a tenant, and MUST be fast and safe for concurrent use. If
	// nil, all credentials are accepted.
	Accepts func(ctx context.Context, id tenant.ID, issued time.Time) bool
	// Subject returns the tenant of an identity from BuiltIn. It is required if BuiltIn is set
	// together with Revoked or Accepts.
	Subject func(context.Context, user.Info) (tenant.ID, error)
	// Metrics count the results. If nil, results are not counted.
	Metrics *Metrics
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

func (c *Chain) now() func() time.Time {
	if c.Now == nil {
		return time.Now
	}
	return c.Now
}

// New returns the authenticator that c configures. Errors from configured sources name the
// source and the reason. They never contain the credential, so they are safe to log and to show
// to the operator. Errors from BuiltIn are truncated but not otherwise sanitized.
func New(c Chain) authenticator.Request {
	var chain []authenticator.Request
	if c.FrontProxy != nil {
		chain = append(chain, c.request(*c.FrontProxy))
	}
	adapted := false
	for _, s := range c.Sources {
		switch {
		case s.Token == nil:
			chain = append(chain, c.request(s))
		case !adapted:
			adapted = true
			chain = append(chain, bearer.New(newTokens(&c), errUnclaimed, &refusal{source: tokenSourceName, err: ErrForm}))
		}
	}
	if c.BuiltIn != nil {
		chain = append(chain, c.validatedBuiltIn(c.BuiltIn))
	}
	return c.withAudit(withCertificateChecks(c.withRevocation(union.NewFailOnError(chain...))))
}

// request returns the authenticator of a source whose Request is set. It checks the server's
// audiences, applies the source's Rules and the chain's Accepts, and records the credential's
// expiry.
func (c *Chain) request(s Source) authenticator.Request {
	wrapped := authenticator.WrapAudienceAgnosticRequest(c.Audiences, s.Request)
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := wrapped.AuthenticateRequest(req)
		var from, until time.Time
		if err == nil && ok {
			from, until = validity.Of(resp.User)
		}
		if resp, ok, err = s.Rules.apply(resp, ok, err); err != nil || !ok {
			return resp, ok, err
		}
		resp, ok, err = acceptance(c.Accepts).check(req.Context(), s.Rules.Source, resp, from)
		if ok && err == nil {
			recordExpiry(req.Context(), until)
		}
		return resp, ok, err
	})
}

// The keys of the audit annotations about denied credentials. The page
// docs/reference/audit-annotations.md is generated from these comments.
const (
	// sourceAuditAnnotation specifies the name of the source that denied the credential, or the
	// name of a check, such as client certificate. It is written if a source or a check denied
	// the credential.
	sourceAuditAnnotation = "authentication.kubetenant.dev/source"
	// refusedAuditAnnotation specifies why the credential was denied, shortened. It is written
	// if a source or a check denied the credential.
	refusedAuditAnnotation = "authentication.kubetenant.dev/refused"
	// credentialAuditAnnotation specifies the ID of the denied credential, such as JTI=<id> or
	// X509SHA256=<sum>. It is written if a verified credential with an ID was denied.
	credentialAuditAnnotation = "authentication.kubetenant.dev/credential-id"
)

// withAudit counts each result in Metrics, and records a denied credential in the audit event.
func (c *Chain) withAudit(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := next.AuthenticateRequest(req)
		r := refusalIn(err)
		c.Metrics.count(resp, ok, r)
		if r != nil {
			audit.AddAuditAnnotations(req.Context(),
				sourceAuditAnnotation, r.source,
				refusedAuditAnnotation, truncate(r.err.Error()))
			if r.credential != "" {
				audit.AddAuditAnnotation(req.Context(), credentialAuditAnnotation, r.credential)
			}
		}
		return resp, ok, err
	})
}

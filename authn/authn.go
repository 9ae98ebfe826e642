// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package authn authenticates callers. A configured source returns an identity that is bound to
// exactly one tenant. An identity of the server's own authenticators is not bound, and package
// authz determines its tenant.
//
// The chain calls, in this order: the front proxy, the configured sources, and the server's own
// authenticators. A source abstains (nil, false, nil) on credentials that are not its own. An error
// of a source ends the request. Every identity is validated before it is used.
//
// The package does not decide what an identity may do. Package authz decides what is allowed, and
// package authn does not import it. Each source has its own folder and does not depend on other
// sources.
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
	// Rules has the rules for the source's identities.
	Rules IdentityRules
	// Request authenticates requests by credentials other than bearer tokens.
	Request authenticator.Request
	// Token authenticates bearer tokens. Its identities may implement [Revalidator].
	Token authenticator.Token
	// Match specifies which bearer tokens Token may receive.
	Match Match
	// AudienceAware specifies that the source itself determines the audiences of a token.
	AudienceAware bool
	// Uncached specifies that the chain does not cache the results of Token, for example because the
	// source has its own cache.
	Uncached bool
}

// Chain configures [New].
type Chain struct {
	// Audiences are the audiences of the server. They apply to sources that are not AudienceAware.
	Audiences authenticator.Audiences
	// FrontProxy is called first. Its Request must be set. If nil, there is no front proxy.
	FrontProxy *Source
	// Sources are called in order. The token sources share one adapter at the position of the first
	// token source. The adapter chooses one source by Match.
	Sources []Source
	// BuiltIn is the server's own authenticator. It is called last. If nil, there is none.
	BuiltIn authenticator.Request

	// BuiltInChains returns the chains from the presented certificates to the authorities that BuiltIn
	// trusts. The certificates in the chains are checked against Revoked. If nil, only the presented
	// certificates are checked.
	BuiltInChains func(presented []*x509.Certificate) [][]*x509.Certificate
	// Limits are the limits for identities of BuiltIn. The zero value means tenant.DefaultLimits.
	Limits tenant.Limits
	// Revoked returns the revocations, which apply to all sources. It is called for each request, even
	// if the result is cached. If nil, no credential is revoked.
	Revoked func() *Revocations
	// Accepts reports whether a credential may be used for a tenant. It returns false if the
	// credential may belong to a deleted tenant of the same name. If there is no current Tenant
	// object, [tenant.Lineage.Accepts] accepts every credential with a time of issue, and package
	// authz denies the request later. issued is zero if the time of issue is unknown. Accepts is
	// called for each request, and MUST be fast and safe for concurrent use. If nil, all credentials
	// are accepted.
	Accepts func(ctx context.Context, id tenant.ID, issued time.Time) bool
	// Subject returns the tenant of an identity of BuiltIn. It is required if Revoked or Accepts is
	// set.
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

// New returns the authenticator of the chain. Errors from configured sources name the source and
// the rule and never contain the credential, so they are safe to log and to show to the operator.
// Errors that BuiltIn returns are truncated but not otherwise sanitized.
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

// request returns the authenticator of a source whose Request is set. It adds the server's
// audiences, and applies the source's Rules and Accepts.
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

// The keys of the annotations of audit events of denied credentials. The page
// docs/reference/audit-annotations.md is written from the comments.
const (
	// sourceAuditAnnotation specifies the name of the source that denied the credential. It is written
	// if a source claimed the credential and denied it.
	sourceAuditAnnotation = "authentication.kubetenant.dev/source"
	// refusedAuditAnnotation specifies why the source denied the credential, shortened. It is written
	// if a source claimed the credential and denied it.
	refusedAuditAnnotation = "authentication.kubetenant.dev/refused"
	// credentialAuditAnnotation specifies the ID of the denied credential, such as JTI=<id> or
	// X509SHA256=<sum>. It is written if the source denied a verified credential with an ID.
	credentialAuditAnnotation = "authentication.kubetenant.dev/credential-id"
)

// withAudit counts each result. It writes the source and the reason of a denial to the audit event.
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

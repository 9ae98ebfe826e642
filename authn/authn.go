// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package authn turns credentials into identities that are bound to exactly one tenant.
//
// The chain asks, in this order: the front proxy, our sources as they are configured, and last
// what the server had of its own. A source abstains (nil, false, nil) on what is not its own; an
// error of a source ends the request. What a source or the server's own chain answers passes
// through hygiene before anybody believes it.
//
// The package decides nothing about what an identity may do: that is package authz, which it does
// not import. Each source has a folder of its own and knows nothing of the others.
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
	// Hygiene is what the source's identities are held to.
	Hygiene Hygiene
	// Request authenticates what is no token.
	Request authenticator.Request
	// Token authenticates bearer tokens. Its identities may be [Living].
	Token authenticator.Token
	// Match says which bearer tokens Token may be shown.
	Match Match
	// AudienceAware sources say themselves for which audiences a token is.
	AudienceAware bool
	// Uncached sources remember by themselves what came of a token.
	Uncached bool
}

// Chain is what [New] puts together.
type Chain struct {
	// Audiences of the server, which audience-agnostic sources answer for.
	Audiences authenticator.Audiences
	// FrontProxy, where there is one, is asked first. Its Request must be set.
	FrontProxy *Source
	// Sources are asked in their order. The token sources share one adapter, which stands where the
	// first of them does and chooses by Match the one that is asked.
	Sources []Source
	// BuiltIn is what the server had of its own, asked last; nil for none.
	BuiltIn authenticator.Request

	// BuiltInChains returns the chains by which certificates lead to the authorities of BuiltIn, for
	// Revoked; nil where BuiltIn has none.
	BuiltInChains func(presented []*x509.Certificate) [][]*x509.Certificate
	// Limits bound what BuiltIn answers; zero for tenant.DefaultLimits.
	Limits tenant.Limits
	// Revoked is what no longer counts, whatever the source; nil for nothing. It is asked for each
	// request, remembered answers included.
	Revoked func() *Revocations
	// Accepts reports whether a credential that was issued at a time, zero where it does not say when,
	// can be a tenant's own and not one of a deleted tenant that had the name before, see
	// [tenant.Lineage.Accepts]. It is asked for each request, and MUST be quick and safe for
	// concurrent use. Nil accepts all.
	Accepts func(ctx context.Context, id tenant.ID, issued time.Time) bool
	// Subject tells the tenant of an identity that BuiltIn answered, for Revoked and
	// Accepts. Required with them.
	Subject func(context.Context, user.Info) (tenant.ID, error)
	// Metrics to count in; nil for none.
	Metrics *Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

func (c *Chain) now() func() time.Time {
	if c.Now == nil {
		return time.Now
	}
	return c.Now
}

// New returns the authenticator of the chain. Its errors are safe to log and to show to the
// server's operator: they name the source and the rule, never the credential.
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
		chain = append(chain, c.cleanBuiltIn(c.BuiltIn))
	}
	return c.audited(presentable(c.unrevoked(union.NewFailOnError(chain...))))
}

// request wraps a request source in audiences and hygiene.
func (c *Chain) request(s Source) authenticator.Request {
	wrapped := authenticator.WrapAudienceAgnosticRequest(c.Audiences, s.Request)
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := wrapped.AuthenticateRequest(req)
		var from, until time.Time
		if err == nil && ok {
			from, until = validity.Of(resp.User)
		}
		if resp, ok, err = s.Hygiene.apply(resp, ok, err); err != nil || !ok {
			return resp, ok, err
		}
		resp, ok, err = acceptance(c.Accepts).check(req.Context(), s.Hygiene.Source, resp, from)
		if ok && err == nil {
			noteExpiry(req.Context(), until)
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

// audited counts the results of authentication. It writes the source of a denial and its reason
// into the audit event.
func (c *Chain) audited(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := next.AuthenticateRequest(req)
		r := refusalIn(err)
		c.Metrics.count(resp, ok, r)
		if r != nil {
			audit.AddAuditAnnotations(req.Context(),
				sourceAuditAnnotation, r.source,
				refusedAuditAnnotation, shortened(r.err.Error()))
			if r.credential != "" {
				audit.AddAuditAnnotation(req.Context(), credentialAuditAnnotation, r.credential)
			}
		}
		return resp, ok, err
	})
}

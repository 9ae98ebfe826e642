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
	"net/http"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/union"
)

// Source is one configured source of identities. Exactly one of Request and Token must be set.
type Source struct {
	// Hygiene is what the source's identities are held to.
	Hygiene Hygiene
	// Request authenticates what is no token.
	Request authenticator.Request
	// Token authenticates bearer tokens.
	Token authenticator.Token
}

// Chain is what [New] puts together.
type Chain struct {
	// Audiences of the server, which audience-agnostic sources answer for.
	Audiences authenticator.Audiences
	// FrontProxy, where there is one, is asked first. Its Request must be set.
	FrontProxy *Source
	// Sources are asked in their order. The token sources share one adapter and are asked together,
	// in their order, where the first of them stands.
	Sources []Source
	// BuiltIn is what the server had of its own, asked last; nil for none.
	BuiltIn authenticator.Request
}

// New returns the authenticator of the chain. Its errors are safe to log and to show to the
// server's operator: they name the source and the rule, never the credential.
func New(c Chain) authenticator.Request {
	var chain []authenticator.Request
	if c.FrontProxy != nil {
		chain = append(chain, c.request(*c.FrontProxy))
	}
	var tokens []authenticator.Token
	at := -1 // where the adapter of the token sources stands
	for _, s := range c.Sources {
		if s.Token == nil {
			chain = append(chain, c.request(s))
			continue
		}
		if at < 0 {
			at = len(chain)
			chain = append(chain, nil)
		}
		tokens = append(tokens, c.token(s))
	}
	if at >= 0 {
		chain[at] = newTokenAdapter(tokens)
	}
	if c.BuiltIn != nil {
		chain = append(chain, cleanBuiltIn(c.BuiltIn))
	}
	return audited(union.NewFailOnError(chain...))
}

// request wraps a request source in audiences and hygiene.
func (c *Chain) request(s Source) authenticator.Request {
	wrapped := authenticator.WrapAudienceAgnosticRequest(c.Audiences, s.Request)
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return s.Hygiene.apply(wrapped.AuthenticateRequest(req))
	})
}

// audited notes in the audit event which source refused and why.
func audited(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := next.AuthenticateRequest(req)
		if r := refusalIn(err); r != nil {
			audit.AddAuditAnnotations(req.Context(),
				"authentication.kubetenant.dev/source", r.source,
				"authentication.kubetenant.dev/refused", r.err.Error())
		}
		return resp, ok, err
	})
}

// Package oidc authenticates ID tokens of OpenID Connect providers.
//
// Upstream's authenticator (k8s.io/apiserver plugin/pkg/authenticator/token/oidc, v0.37.1) does the
// work: claim mappings, validation rules and their CEL. The tenant is one more of its mappings.
// What is added: an issuer costs nothing before its first token, keys that are withdrawn stop
// counting, what a provider can make us fetch is bounded, and errors hold nothing of the token.
package oidc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/tenant"
)

// Why a token is refused; to be tested with [errors.Is]. None holds anything of the token.
var (
	ErrMalformed   = errors.New("malformed token")
	ErrAlgorithm   = errors.New("algorithm not allowed")
	ErrSignature   = errors.New("invalid signature")
	ErrKeys        = error(outbound.Unavailable("cannot fetch the issuer's keys"))
	ErrAudience    = errors.New("wrong audience")
	ErrExpired     = errors.New("token expired")
	ErrNotYetValid = errors.New("token not valid yet")
	ErrUsername    = errors.New("no user name in the claims")
	ErrGroups      = errors.New("invalid groups claim")
	ErrRule        = errors.New("a claim or user validation rule failed")
	ErrTenant      = errors.New("the claims do not name exactly one tenant")
	ErrMapping     = errors.New("a claim mapping failed")
	ErrDistributed = errors.New("distributed claims are not supported")
	ErrRefused     = errors.New("token refused")
)

// Options configure one issuer.
type Options struct {
	// JWT is upstream's configuration, valid, with a mapping of the extra tenant.ExtraKey.
	JWT apiserver.JWTAuthenticator
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
	tenantBy string // the expression that maps the tenant
}

// New returns the authenticator of an issuer. Nothing is fetched or compiled before its first
// token. It MUST NOT be used after ctx has ended.
func New(ctx context.Context, o Options) *Authenticator {
	a := &Authenticator{issuer: o.JWT.Issuer.URL}
	for _, mapping := range o.JWT.ClaimMappings.Extra {
		if mapping.Key == tenant.ExtraKey {
			a.tenantBy = mapping.ValueExpression
		}
	}
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
			Client:               client,
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
	resp, ok, err := upstream.AuthenticateToken(ctx, token)
	if err != nil {
		return nil, false, a.reasonOf(err)
	}
	return resp, ok, nil
}

// reasons tell the errors of upstream and go-oidc apart by their fixed words: the rest of their
// texts may be claims of the token, and is left out.
var reasons = []struct {
	text   string
	reason error
}{
	{"failed to verify signature: " + ErrKeys.Error(), ErrKeys},
	{"failed to verify signature: " + ErrDistributed.Error(), ErrDistributed},
	{"failed to verify signature: " + ErrMalformed.Error(), ErrMalformed},
	{"failed to verify signature", ErrSignature},
	{"unsupported algorithm", ErrAlgorithm},
	{"malformed jwt", ErrMalformed},
	{"expected audience", ErrAudience},
	{"token is expired", ErrExpired},
	{"before the nbf", ErrNotYetValid},
	{"username claim", ErrUsername},
	{"empty username", ErrUsername},
	{"email", ErrUsername},
	{"groups claim", ErrGroups},
	{"group claim", ErrGroups},
	{"required claim", ErrRule},
	{"validation", ErrRule},
	{"expression", ErrMapping},
}

func (a *Authenticator) reasonOf(err error) error {
	text := err.Error()
	if strings.Contains(text, "expression") && strings.Contains(text, a.tenantBy) {
		return ErrTenant
	}
	for _, r := range reasons {
		if strings.Contains(text, r.text) {
			return r.reason
		}
	}
	return ErrRefused
}

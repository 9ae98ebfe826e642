// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount authenticates the tokens of a cluster's own service accounts: those
// of the TokenRequest API, bound to a Pod, a Secret or a Node or to nothing, and the legacy
// ones that stand in Secrets.
//
// It gives the user.Info that kube-apiserver gives (k8s.io/kubernetes pkg/serviceaccount, v1.37.1),
// bound to the tenant that owns the account's namespace. It is stricter in these: exp has no leeway
// and nbf and iat have 10 seconds (upstream: one minute each), what is past its deletion has none,
// bound tokens must expire and name an audience, a key verifies one algorithm, sub must name the
// account, and tokens for webhook configurations are refused.
package serviceaccount

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// LegacyIssuer is the issuer of tokens in Secrets (k8s.io/kubernetes pkg/serviceaccount/legacy.go,
// v1.37.1).
const LegacyIssuer = "kubernetes/serviceaccount"

// leeway is the clock skew allowed for nbf and iat; exp has none.
const leeway = 10 * time.Second

// Why a token is refused; to be tested with [errors.Is]. None holds anything of the token.
var (
	ErrMalformed      = errors.New("malformed token")
	ErrAlgorithm      = errors.New("algorithm not allowed")
	ErrUnknownKey     = errors.New("no key matches the token")
	ErrSignature      = errors.New("invalid signature")
	ErrIssuer         = errors.New("wrong issuer")
	ErrAudience       = errors.New("wrong audience")
	ErrExpired        = errors.New("token expired")
	ErrNotYetValid    = errors.New("token not valid yet")
	ErrFromTheFuture  = errors.New("token issued in the future")
	ErrClaims         = errors.New("the claims do not name a service account")
	ErrBinding        = errors.New("the token is bound to an object that cannot be checked")
	ErrGone           = errors.New("the object that the token is bound to no longer exists")
	ErrLookup         = errors.New("cannot look up the object that the token is bound to")
	ErrInvalidated    = errors.New("token has been invalidated")
	ErrTenantClaim    = errors.New("the tenant claim does not match the owner of the namespace")
	ErrNoTenantClaim  = errors.New("no tenant claim")
	errUnknownBinding = fmt.Errorf("%w: webhook configuration", ErrBinding)
)

// Options say which tokens count.
type Options struct {
	// Issuer of bound tokens. Required.
	Issuer string
	// Legacy accepts tokens of LegacyIssuer too.
	Legacy bool
	// Audiences of the server; a token must be for one of them, or for one of those that the context
	// asks for. Empty means the Issuer, as kube-apiserver has it.
	Audiences authenticator.Audiences
	// RequireTenantClaim refuses tokens without a signed tenant.
	RequireTenantClaim bool
	// Owner tells whose the service accounts of a namespace are. Required.
	Owner func(ctx context.Context, namespace string) (tenant.ID, error)
	// Objects are the live objects of the cluster that tokens are bound to. Nil checks none of them:
	// a token then counts until it expires, a legacy one for ever.
	Objects Objects
	// Used is told of a legacy token's Secret that is used and whose label LastUsed is not [Today]'s,
	// so that it can be labelled: else the token is invalidated one day as unused. Optional.
	Used func(ctx context.Context, secret *corev1.Secret)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Authenticator knows the tokens of one issuer. It implements [authenticator.Token] and honours
// audiences. The extras it sets are tenant.ExtraKey and those of upstream: credential-id, pod and
// node below authentication.kubernetes.io.
type Authenticator struct {
	keys *Keys
	o    Options
}

// New returns the authenticator of tokens that keys verify.
func New(keys *Keys, o Options) *Authenticator {
	if len(o.Audiences) == 0 {
		o.Audiences = authenticator.Audiences{o.Issuer}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Authenticator{keys, o}
}

// Issuers are the values of iss that [Authenticator.AuthenticateToken] claims.
func (a *Authenticator) Issuers() []string {
	if a.o.Legacy {
		return []string{a.o.Issuer, LegacyIssuer}
	}
	return []string{a.o.Issuer}
}

// AuthenticateToken implements [authenticator.Token]. It does not abstain: callers hand it tokens
// of its Issuers only.
//
// The identity has a method Live(ctx) error, which MUST be asked again whenever the answer is used
// later: it looks at the live objects, and at the owner of the namespace.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	c := &claims{}
	if _, err := jwt.NewParser(jwt.WithoutClaimsValidation()).ParseWithClaims(token, c, a.keys.verifying); err != nil {
		return nil, false, reasonOf(err)
	}
	audiences, err := a.check(ctx, c)
	if err != nil {
		return nil, false, err
	}
	account, err := c.account()
	if err != nil {
		return nil, false, err
	}
	u := &identity{a: a, claims: c, sum: sha256.Sum256([]byte(token))}
	// Objects first: whoever keeps a token of what is gone asks no further questions by it.
	if err := u.objects(ctx); err != nil {
		return nil, false, err
	}
	if u.id, err = a.owner(ctx, account.Namespace); err != nil {
		return nil, false, err
	}
	if err := a.checkTenant(c, u.id); err != nil {
		return nil, false, err
	}
	u.Info = tenant.Bind(account.UserInfo(), u.id)
	return &authenticator.Response{User: u, Audiences: audiences}, true, nil
}

// owner is Options.Owner, with nothing of the caller in its errors.
func (a *Authenticator) owner(ctx context.Context, namespace string) (tenant.ID, error) {
	id, err := a.o.Owner(ctx, namespace)
	if err != nil && !errors.Is(err, tenant.ErrInvalid) {
		return tenant.ID{}, ErrLookup
	}
	return id, err
}

// check holds the registered claims and returns the audiences that the token is for.
func (a *Authenticator) check(ctx context.Context, c *claims) (authenticator.Audiences, error) {
	switch {
	case c.Issuer == a.o.Issuer, a.o.Legacy && c.legacy():
	default:
		return nil, ErrIssuer
	}
	wanted, limited := authenticator.AudiencesFrom(ctx)
	if !limited {
		wanted = a.o.Audiences
	}
	given := authenticator.Audiences(c.Audience)
	if len(given) == 0 && c.legacy() {
		given = a.o.Audiences
	}
	both := given.Intersect(wanted)
	if len(both) == 0 {
		return nil, ErrAudience
	}
	return both, c.checkTimes(a.o.Now())
}

// checkTenant holds the signed tenant claims against the owner of the namespace.
func (a *Authenticator) checkTenant(c *claims, owner tenant.ID) error {
	stated := 0
	for _, claim := range [][]byte{c.Tenant, c.OlderTenant} {
		if claim == nil {
			continue
		}
		stated++
		if id, err := parseTenant(claim); err != nil || id != owner {
			return ErrTenantClaim
		}
	}
	if stated == 0 && a.o.RequireTenantClaim {
		return ErrNoTenantClaim
	}
	return nil
}

// identity is a service account that presented a token.
type identity struct {
	user.Info
	a      *Authenticator
	claims *claims
	id     tenant.ID
	sum    [sha256.Size]byte // of the token
}

// Live refuses an identity whose namespace has another owner by now, or whose objects are gone.
func (i *identity) Live(ctx context.Context) error {
	if err := i.objects(ctx); err != nil {
		return err
	}
	owner, err := i.a.owner(ctx, i.claims.namespace())
	if err == nil && owner != i.id {
		err = ErrTenantClaim
	}
	return err
}

// The keys of the annotations of audit events of tokens that should be replaced, as upstream writes
// them.
const (
	// legacyTokenAuditAnnotation specifies the service account of a legacy token. It is written if the
	// request has a token from a Secret.
	legacyTokenAuditAnnotation = "authentication.k8s.io/legacy-token"
	// staleTokenAuditAnnotation specifies the service account and the age of a token after its warning
	// threshold. It is written if a client did not refresh its token in time.
	staleTokenAuditAnnotation = "authentication.k8s.io/stale-token"
)

// objects looks at the live objects, and notes in the audit event what upstream notes of tokens
// that should be replaced.
func (i *identity) objects(ctx context.Context) error {
	if i.claims.legacy() {
		audit.AddAuditAnnotation(ctx, legacyTokenAuditAnnotation, i.claims.Subject)
	}
	if after, now := i.claims.warnAfter(), i.a.o.Now(); !after.IsZero() && now.After(after) {
		audit.AddAuditAnnotation(ctx, staleTokenAuditAnnotation,
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", i.claims.Subject, int64(now.Sub(after)/time.Second)))
	}
	if i.a.o.Objects == nil {
		return nil
	}
	return i.check(ctx)
}

// reasonOf returns the reason in an error of the jwt library, whose text may
// hold parts of the token.
func reasonOf(err error) error {
	for _, reason := range []error{ErrAlgorithm, ErrUnknownKey, ErrMalformed} {
		if errors.Is(err, reason) {
			return reason
		}
	}
	switch {
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return ErrSignature
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return ErrAlgorithm
	}
	return ErrMalformed
}

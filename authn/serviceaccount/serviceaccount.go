// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount authenticates the tokens of a cluster's own service accounts. These are
// tokens from the TokenRequest API, which may be bound to a Pod, a Secret or a Node, and legacy
// tokens from Secrets.
//
// It returns the same user.Info as kube-apiserver (k8s.io/kubernetes pkg/serviceaccount,
// v1.37.1), bound to the tenant that owns the account's namespace. It is stricter than upstream:
//
//   - exp has no leeway, and nbf and iat have 10 seconds instead of one minute.
//   - A token is invalid as soon as the deletion time of its object has passed, without a grace
//     period.
//   - Bound tokens must expire and name an audience.
//   - A key verifies one algorithm only.
//   - sub must name the account.
//   - Tokens that are bound to webhook configurations are rejected.
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

// leeway is the allowed clock skew for nbf and iat. exp has no leeway.
const leeway = 10 * time.Second

// The errors for a rejected token. Test for them with [errors.Is]. They contain no part of the
// token.
var (
	ErrMalformed      = errors.New("malformed token")
	ErrAlgorithm      = errors.New("algorithm not allowed")
	ErrUnknownKey     = errors.New("no key matches the token")
	ErrSignature      = errors.New("invalid signature")
	ErrIssuer         = errors.New("wrong issuer")
	ErrAudience       = errors.New("wrong audience")
	ErrExpired        = errors.New("token expired")
	ErrNotYetValid    = errors.New("token not valid yet")
	ErrIssuedInFuture = errors.New("token issued in the future")
	ErrClaims         = errors.New("the claims do not name a service account")
	ErrBinding        = errors.New("the token is bound to an object that cannot be checked")
	ErrGone           = errors.New("the object that the token is bound to no longer exists")
	ErrLookup         = errors.New("cannot look up the object that the token is bound to")
	ErrInvalidated    = errors.New("token has been invalidated")
	ErrTenantClaim    = errors.New("the tenant claim does not match the owner of the namespace")
	ErrNoTenantClaim  = errors.New("no tenant claim")
	errUnknownBinding = fmt.Errorf("%w: webhook configuration", ErrBinding)
)

// Options specify which tokens are valid.
type Options struct {
	// Issuer is the issuer of bound tokens. Required.
	Issuer string
	// Legacy specifies that tokens from LegacyIssuer are accepted too.
	Legacy bool
	// Audiences are the audiences of the server. A token must have one of the audiences in the
	// context, or one of Audiences if the context has none. Defaults to Issuer, like
	// kube-apiserver.
	Audiences authenticator.Audiences
	// RequireTenantClaim rejects tokens without a tenant claim.
	RequireTenantClaim bool
	// Owner returns the tenant that owns the service accounts of a namespace. Required.
	Owner func(ctx context.Context, namespace string) (tenant.ID, error)
	// Objects reads the objects to which tokens are bound. If nil, they are not checked. A token is
	// then valid until it expires. A legacy token without the claim exp never expires.
	Objects Objects
	// OnLegacyTokenUsed is called with the Secret of a legacy token if the label LastUsed is not
	// [Today]. The callee should label the Secret. Otherwise, kube-controller-manager later
	// invalidates the token as unused. Optional.
	OnLegacyTokenUsed func(ctx context.Context, secret *corev1.Secret)
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Authenticator authenticates the tokens of one issuer. It implements [authenticator.Token] and
// checks audiences. It sets the extra tenant.ExtraKey, and the same extras as upstream
// (credential-id, pod and node under authentication.kubernetes.io).
type Authenticator struct {
	keys *Keys
	o    Options
}

// New returns an authenticator for the tokens that keys verify.
func New(keys *Keys, o Options) *Authenticator {
	if len(o.Audiences) == 0 {
		o.Audiences = authenticator.Audiences{o.Issuer}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Authenticator{keys, o}
}

// Issuers returns the values of iss that [Authenticator.AuthenticateToken] claims.
func (a *Authenticator) Issuers() []string {
	if a.o.Legacy {
		return []string{a.o.Issuer, LegacyIssuer}
	}
	return []string{a.o.Issuer}
}

// AuthenticateToken implements [authenticator.Token]. It does not abstain. Callers MUST pass
// only tokens with one of its Issuers.
//
// The identity has a method Revalidate(ctx) error, which checks the bound objects and the owner of
// the namespace. A caller that caches the result MUST call Revalidate each time it uses the result.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	c := &claims{}
	parser := jwt.NewParser(jwt.WithoutClaimsValidation())
	if _, err := parser.ParseWithClaims(token, c, a.keys.verificationKeys); err != nil {
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
	// The objects are checked first, so that a token of a deleted object causes no further requests.
	if err := u.checkObjects(ctx); err != nil {
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

// owner calls Options.Owner. It replaces any error except [tenant.ErrInvalid], because the error
// may contain names.
func (a *Authenticator) owner(ctx context.Context, namespace string) (tenant.ID, error) {
	id, err := a.o.Owner(ctx, namespace)
	if err != nil && !errors.Is(err, tenant.ErrInvalid) {
		return tenant.ID{}, ErrLookup
	}
	return id, err
}

// check checks the registered claims and returns the audiences for which the token is valid.
func (a *Authenticator) check(ctx context.Context, c *claims) (authenticator.Audiences, error) {
	if c.Issuer != a.o.Issuer && (!a.o.Legacy || !c.isLegacy()) {
		return nil, ErrIssuer
	}
	wanted, limited := authenticator.AudiencesFrom(ctx)
	if !limited {
		wanted = a.o.Audiences
	}
	tokenAudiences := authenticator.Audiences(c.Audience)
	if len(tokenAudiences) == 0 && c.isLegacy() {
		tokenAudiences = a.o.Audiences
	}
	matching := tokenAudiences.Intersect(wanted)
	if len(matching) == 0 {
		return nil, ErrAudience
	}
	return matching, c.checkTimes(a.o.Now())
}

// checkTenant compares the signed tenant claims with the owner of the namespace.
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
	sum    [sha256.Size]byte // the SHA-256 of the token
}

// Revalidate returns an error if the namespace has another owner now, or if the bound objects no
// longer exist or cannot be read.
func (i *identity) Revalidate(ctx context.Context) error {
	if err := i.checkObjects(ctx); err != nil {
		return err
	}
	owner, err := i.a.owner(ctx, i.claims.namespace())
	if err == nil && owner != i.id {
		err = ErrTenantClaim
	}
	return err
}

// The keys of the audit annotations about tokens that should be replaced. Upstream writes the
// same annotations.
const (
	// legacyTokenAuditAnnotation specifies the service account of a legacy token. It is written if the
	// request has a token from a Secret.
	legacyTokenAuditAnnotation = "authentication.k8s.io/legacy-token"
	// staleTokenAuditAnnotation specifies the service account and the age of a token after its warning
	// threshold. It is written if a client did not refresh its token in time.
	staleTokenAuditAnnotation = "authentication.k8s.io/stale-token"
)

// checkObjects checks the bound objects if Options.Objects is set. Like upstream, it adds audit
// annotations about tokens that should be replaced.
func (i *identity) checkObjects(ctx context.Context) error {
	if i.claims.isLegacy() {
		audit.AddAuditAnnotation(ctx, legacyTokenAuditAnnotation, i.claims.Subject)
	}
	if after, now := i.claims.warnAfter(), i.a.o.Now(); !after.IsZero() && now.After(after) {
		audit.AddAuditAnnotation(ctx, staleTokenAuditAnnotation,
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", i.claims.Subject, int64(now.Sub(after)/time.Second)))
	}
	if i.a.o.Objects == nil {
		return nil
	}
	return i.checkBoundObjects(ctx)
}

// reasonOf returns the reason for an error from the JWT library. The text of that error may
// contain parts of the token.
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

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package keystone authenticates OpenStack Keystone tokens (Identity API v3). It validates each
// token with Keystone, unless the result is cached. The scope of the token and the domain of the
// user determine the tenant.
//
// A project-scoped or domain-scoped token belongs to the tenant of the user's domain. The
// project must be in the user's domain, and a domain-scoped token must be for the user's domain.
// A system-scoped token belongs to the system tenant. Tokens without a scope are not accepted.
// [Options.Scopes] specifies which scopes are accepted.
//
// The groups of a project-scoped token are "project:<project>", "role:<project>:<role>" and
// "role-id:<project ID>:<role ID>". The groups of the other scopes are "role-id:domain:<domain
// ID>:<role ID>" and "role-id:system:<role ID>". In names and IDs, %, : and characters that are not
// well-formed are percent-escaped.
//
// The token of a caller is sent to Keystone in a request header, and is never stored in the
// client that sends the request. The cache contains only a keyed hash of the token.
package keystone

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/authn/internal/tokencache"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// timeout is the maximum duration of one validation, including the time that it waits for a slot
	// of [outbound.Gate]. A login of the service user has the same limit. A validation with a login
	// takes at most twice as long.
	timeout = 5 * time.Second
	// maxTokenBytes is the maximum size of a token. Fernet tokens have up to 255 bytes, and Keystone's
	// signed tokens (JWS) up to 2 KiB. Web servers limit a header to 8 KiB.
	maxTokenBytes = 4 << 10
	// maxConcurrent is the maximum number of concurrent validations, in case Keystone hangs. Tokens
	// that are cached as valid and other tokens have separate limits.
	maxConcurrent = 256
	// cacheEntries is the maximum number of entries in each of the two caches. Valid and invalid
	// tokens have separate caches, so that invalid tokens, which any client can send, never
	// evict valid tokens.
	cacheEntries = 32 << 10
	// cacheBytes is the maximum size of each of the two caches in bytes.
	cacheBytes = 32 << 20
)

// The errors for a rejected token. Test for them with [errors.Is]. They contain no part of the
// token or of Keystone's response.
var (
	ErrUnknown = errors.New("token not accepted by Keystone: it is invalid, revoked or expired, " +
		"or its user, project or domain is disabled")
	ErrUnavailable    = error(outbound.Unavailable("Keystone is unavailable"))
	ErrBusy           = error(outbound.Unavailable("too many concurrent requests to Keystone"))
	ErrResponse       = errors.New("invalid response from Keystone")
	ErrExpired        = errors.New("token expired")
	ErrUnscoped       = errors.New("unscoped token")
	ErrProjectScope   = errors.New("project-scoped token")
	ErrSystemScope    = errors.New("system-scoped token")
	ErrDomainScope    = errors.New("domain-scoped token")
	ErrTrust          = errors.New("the token is scoped to a trust")
	ErrAccessRules    = errors.New("the token belongs to an application credential with access rules")
	ErrForeignProject = errors.New("the project and the user are in different domains")
	ErrForeignDomain  = errors.New("the token is scoped to another domain than the user's")
	ErrDomain         = errors.New("the domain does not map to a tenant")
)

// Options configure an [Authenticator].
type Options struct {
	// AuthURL is the URL of Keystone, with or without /v3. Required.
	AuthURL string
	// Scopes specifies the scopes of the tokens that are accepted. The zero value accepts no
	// token.
	Scopes Scopes
	// DomainID specifies that the domain's ID determines the tenant, instead of its name.
	DomainID bool
	// Tenants maps domain names to tenants, or domain IDs if DomainID is set. Any other domain
	// belongs to the tenant with the domain's name or ID. Its tokens are rejected if another
	// domain is mapped to this tenant, or if the name or ID is "system" or not a valid tenant.
	// The tenant of a system-scoped token does not depend on the domain.
	Tenants map[string]tenant.ID
	// LegacyExtras specifies that the extras of k8s-keystone-auth are set too, see
	// [LegacyExtras].
	LegacyExtras bool
	// TTL is how long a valid token is cached. If zero, each use of a token is validated.
	TTL time.Duration
	// NegativeTTL is how long an invalid token is cached.
	NegativeTTL time.Duration
	// Stale is how long after TTL a cached token is accepted while Keystone is unavailable. A token is
	// never accepted after its own expiry.
	Stale time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Authenticator authenticates tokens of one Keystone. It implements [authenticator.Token], and does
// not check audiences. It sets the extras tenant.ExtraKey, tenant.KeystoneDomainKey,
// tenant.KeystoneRolesKey and authentication.kubernetes.io/credential-id (the first audit ID). With
// a project-scoped token, it also sets tenant.KeystoneProjectKey. With LegacyExtras, it also sets
// the extras of [LegacyExtras].
type Authenticator struct {
	o        Options
	service  func() *service
	users    *tokencache.Cache[cachedUser]
	failures *tokencache.Cache[error]
	flights  singleflight.Group
	// known limits the concurrent validations of tokens that are cached as valid. unknown limits
	// the validations of all other tokens, which any client can send.
	known, unknown outbound.Gate
	downUntil      atomic.Int64 // the end of an assumed outage in Unix nanoseconds, or 0
}

// cachedUser is the cached result of a valid token.
type cachedUser struct {
	user       user.Info
	freshUntil time.Time // the token is not validated again before this time
}

func newAuthenticator(o Options, s func() *service) *Authenticator {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Authenticator{
		o:        o,
		service:  s,
		users:    tokencache.New[cachedUser](tokencache.Limits{Entries: cacheEntries, Bytes: cacheBytes}, o.Now),
		failures: tokencache.New[error](tokencache.Limits{Entries: cacheEntries, Bytes: cacheBytes}, o.Now),
		known:    make(outbound.Gate, maxConcurrent),
		unknown:  make(outbound.Gate, maxConcurrent),
	}
}

// AuthenticateToken implements [authenticator.Token]. It does not abstain. Callers MUST pass
// only tokens that may be Keystone tokens, see [LooksLike].
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > maxTokenBytes {
		return nil, false, ErrUnknown
	}
	key := a.users.Key(token, nil)
	known, found := a.users.Get(key)
	if found && a.o.Now().Before(known.freshUntil) {
		return &authenticator.Response{User: known.user}, true, nil
	}
	if err, refused := a.failures.Get(key); refused {
		return nil, false, err
	}
	if found && a.isDown() {
		return &authenticator.Response{User: known.user}, true, nil
	}
	gate := a.unknown
	if found {
		gate = a.known
	}
	u, err := a.validate(ctx, gate, found, key, token)
	switch {
	case err == nil:
		return &authenticator.Response{User: u}, true, nil
	case errors.Is(err, ErrUnavailable) && found:
		return &authenticator.Response{User: known.user}, true, nil
	}
	return nil, false, err
}

// validate validates a token with Keystone, once for all concurrent callers. An outage is recorded
// only if the token is cached as valid, because any client can invent other tokens.
func (a *Authenticator) validate(
	ctx context.Context, gate outbound.Gate, found bool, key tokencache.Key, token string,
) (user.Info, error) {
	flight := a.flights.DoChan(string(key[:]), outbound.Recover(ErrResponse, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		if err := gate.Enter(ctx); err != nil {
			return nil, ErrBusy // not an outage, because Keystone was not called
		}
		defer gate.Leave()
		// An earlier validation of the token may have ended after the caller's cache lookup.
		if known, ok := a.users.Get(key); ok && a.o.Now().Before(known.freshUntil) {
			return known.user, nil
		}
		if err, refused := a.failures.Get(key); refused {
			return nil, err
		}
		body, err := a.service().validate(ctx, token)
		var u user.Info
		if err == nil {
			u, err = a.identity(body)
		}
		switch {
		case errors.Is(err, ErrBusy): // the state of Keystone and of the token is unknown
			return nil, ErrBusy
		case errors.Is(err, ErrUnavailable) && found:
			a.downUntil.Store(a.o.Now().Add(backoff).UnixNano())
		case err == nil, found:
			a.downUntil.Store(0)
		}
		switch now := a.o.Now(); {
		case err == nil:
			fresh := earlier(now.Add(a.o.TTL), body.Expires)
			a.users.Set(key, cachedUser{u, fresh}, tokencache.SizeOf(u), earlier(now.Add(a.o.TTL+a.o.Stale), body.Expires))
			return u, nil
		case !errors.Is(err, ErrUnavailable):
			a.users.Remove(key)
			a.failures.Set(key, err, 0, now.Add(a.o.NegativeTTL))
		}
		return nil, err
	}))
	select {
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(user.Info), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// isDown reports whether Keystone was recently unavailable. A caller with a cached result then uses
// the result without calling Keystone. After each backoff, isDown returns false to one caller,
// which calls Keystone again.
func (a *Authenticator) isDown() bool {
	until := a.downUntil.Load()
	now := a.o.Now()
	if until == 0 {
		return false
	}
	return now.UnixNano() < until || !a.downUntil.CompareAndSwap(until, now.Add(backoff).UnixNano())
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// fernet is the prefix of every Fernet token. It encodes the version byte and the first bytes of
// the time, which are zero until 2106.
const fernet = "gAAAA"

// LooksLike reports whether a token has the form of a Keystone token. The forms are a Fernet token,
// 32 hexadecimal digits (UUID), and a signed token (JWS) with claims that only Keystone writes.
func LooksLike(token string) bool {
	if rest, ok := strings.CutPrefix(token, fernet); ok {
		return rest != "" && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=%") == ""
	}
	return len(token) == 32 && strings.Trim(token, "0123456789abcdefABCDEF") == "" || isSigned(token)
}

// isSigned reports whether a token has the form of Keystone's JWS provider. A token in this form
// has no claim iss, but has claims such as openstack_methods
// (keystone/token/token_formatters.py, 2024.1).
func isSigned(token string) bool {
	parts := strings.SplitN(token, ".", 4)
	if len(parts) != 3 {
		return false
	}
	var header, claims map[string]json.RawMessage
	for i, into := range []*map[string]json.RawMessage{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(data, into) != nil {
			return false
		}
	}
	if _, ok := claims["iss"]; ok || header == nil {
		return false
	}
	for name := range claims {
		if strings.HasPrefix(name, "openstack_") {
			return true
		}
	}
	return false
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/internal/tokencache"
	"github.com/kubetenant/kubetenant/authn/internal/unverified"
	"github.com/kubetenant/kubetenant/authn/internal/validity"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// tokenTTL is how long a verified token is cached. It is the same as in kube-apiserver
	// (TokenSuccessCacheTTL, k8s.io/kubernetes pkg/kubeapiserver/options/authentication.go, v1.37.1).
	tokenTTL = 10 * time.Second
	// tokenEntries is the maximum number of cached tokens. As in upstream, it is about twice the sum
	// of 5,000 nodes and 10,000 namespaces.
	tokenEntries = 32 << 10
	// tokenBytes is the maximum size of the cache in bytes. A typical entry has about 1 KiB, so only
	// large identities reach this limit.
	tokenBytes = 64 << 20
)

// errUnclaimed passes an abstention through upstream's adapters. They would otherwise turn it into
// an error, and the server's own token sources would not be called.
var errUnclaimed = errors.New("no source accepts tokens of this kind")

// errNotAccepted reports that the selected source abstains. No other source may then receive the
// token.
var errNotAccepted = errors.New("token not accepted")

// Match specifies which tokens a source may receive. The zero value matches no token.
type Match struct {
	// Every matches every token. The source receives each uncached token before the other sources. It
	// MUST only compare the token with its own data, and MUST NOT send the token elsewhere.
	Every bool
	// Issuers are values of the claim iss of JSON Web Tokens. An issuer may belong to one source only.
	Issuers []string
	// Prefix is the prefix of tokens without an issuer. No prefix may begin with the prefix of
	// another source.
	Prefix string
	// Form recognizes tokens without an issuer that do not have the prefix of a source.
	Form func(token string) bool
	// Rest matches all remaining tokens, except JSON Web Tokens and bootstrap tokens.
	Rest bool
}

// bootstrap matches bootstrap tokens (k8s.io/cluster-bootstrap token/api, v0.37.1), which belong to
// the server.
var bootstrap = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// tokens passes each bearer token first to the sources that match every token. If they abstain, it
// passes the token to the one source that may claim it.
type tokens struct {
	lookups    []*tokenSource // the sources that match every token
	byIssuer   map[string]*tokenSource
	byPrefix   []*tokenSource
	byForm     []*tokenSource
	rest       *tokenSource
	cache      *tokencache.Cache[verified]
	now        func() time.Time
	revoked    func() *Revocations
	acceptance acceptance
	metrics    *Metrics
	logged     atomic.Int64 // the time of the last log entry about an unclaimed token, in Unix nanoseconds
}

// tokenSource is a source and its Token. Unless the source is AudienceAware, authenticate also
// checks the server's audiences.
type tokenSource struct {
	Source
	authenticate authenticator.Token
}

// verified is the cached result of an accepted token.
type verified struct {
	resp  *authenticator.Response
	token unverified.Token // the source has verified the claims
	// issued and expires are zero if they are unknown.
	issued, expires time.Time
	revalidate      func(context.Context) error
	source          *tokenSource
}

// Revalidator is implemented by the user.Info of a source whose identities depend on more than
// the token. Revalidate is called each time a cached result is used. If it fails, the request is
// rejected, and the result is removed from the cache.
type Revalidator interface {
	Revalidate(ctx context.Context) error
}

func newTokens(c *Chain) *tokens {
	d := &tokens{
		byIssuer:   map[string]*tokenSource{},
		cache:      tokencache.New[verified](tokencache.Limits{Entries: tokenEntries, Bytes: tokenBytes}, c.now()),
		now:        c.now(),
		revoked:    c.Revoked,
		acceptance: c.Accepts,
		metrics:    c.Metrics,
	}
	for _, s := range c.Sources {
		if s.Token == nil {
			continue
		}
		src := &tokenSource{s, s.Token}
		if !s.AudienceAware {
			src.authenticate = authenticator.WrapAudienceAgnosticToken(c.Audiences, s.Token)
		}
		for _, issuer := range s.Match.Issuers {
			d.byIssuer[issuer] = src
		}
		switch {
		case s.Match.Every:
			d.lookups = append(d.lookups, src)
		case s.Match.Prefix != "":
			d.byPrefix = append(d.byPrefix, src)
		case s.Match.Form != nil:
			d.byForm = append(d.byForm, src)
		case s.Match.Rest:
			d.rest = src
		}
	}
	return d
}

// AuthenticateToken implements [authenticator.Token]. It returns errUnclaimed if no source claims
// the token.
func (d *tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, _ := authenticator.AudiencesFrom(ctx)
	key := d.cache.Key(token, audiences)
	if v, found := d.cache.Get(key); found {
		d.metrics.hit()
		if v.revalidate != nil {
			if err := v.revalidate(ctx); err != nil {
				d.cache.Remove(key)
				return v.source.refuse(err)
			}
		}
		return d.accept(ctx, &v)
	}
	for _, src := range d.lookups {
		if resp, ok, err := src.authenticate.AuthenticateToken(ctx, token); ok || err != nil {
			if resp, ok, err = src.Rules.apply(resp, ok, err); err != nil || !ok {
				return resp, ok, err
			}
			return d.acceptance.check(ctx, src.Rules.Source, resp, time.Time{})
		}
	}
	if err := wellFormed(token); err != nil {
		return nil, false, &refusal{source: tokenSourceName, err: err}
	}
	seen, err := unverified.Read(token)
	src := d.selectSource(token, &seen)
	switch {
	case src == nil && err != nil && seen.Issuer == "": // another parser may read one of our issuers
		return nil, false, &refusal{source: tokenSourceName, err: err}
	case src == nil:
		d.logUnclaimed(ctx, &seen)
		return nil, false, errUnclaimed
	case err != nil:
		return src.refuse(err)
	}
	d.metrics.miss()
	return d.verify(ctx, key, token, &seen, src)
}

// tokenSourceName is the source in errors about tokens that belong to no source.
const tokenSourceName = "token"

// maxTokenBytes is the maximum size of a token. The largest known tokens contain several hundred
// groups.
const maxTokenBytes = 64 << 10

// ErrForm reports that different parsers could read a token differently, or that the token is too
// long.
var ErrForm = errors.New("malformed token: it is ambiguous or too long, or contains invisible characters")

// wellFormed rejects a token that is too long, or that another parser might read differently.
func wellFormed(token string) error {
	if len(token) > maxTokenBytes || !unverified.IsVisible(token) {
		return ErrForm
	}
	return nil
}

// unclaimedEvery is the minimum time between two log entries about unclaimed tokens.
const unclaimedEvery = 5 * time.Second

// logUnclaimed logs that no source claims a JSON Web Token without an issuer. The rate of log
// entries is limited, because any client can send these tokens.
func (d *tokens) logUnclaimed(ctx context.Context, seen *unverified.Token) {
	last := d.logged.Load()
	now := d.now().UnixNano()
	if seen.Issuerless && (last == 0 || now-last >= int64(unclaimedEvery)) && d.logged.CompareAndSwap(last, now) {
		klog.FromContext(ctx).Info("No source of kubetenant accepts the token",
			"reason", "a JSON Web Token without an issuer")
	}
}

// selectSource returns the source that may claim a token after the sources that match every token
// have abstained, or nil. A JSON Web Token with an issuer goes only to the source of that issuer. A
// JSON Web Token without an issuer is matched by prefix and form, but never by Rest. No source is
// selected for a bootstrap token.
func (d *tokens) selectSource(token string, seen *unverified.Token) *tokenSource {
	switch {
	case seen.JWT && !seen.Issuerless:
		return d.byIssuer[seen.Issuer]
	case bootstrap.MatchString(token):
		return nil
	}
	for _, src := range d.byPrefix {
		if strings.HasPrefix(token, src.Match.Prefix) {
			return src
		}
	}
	for _, src := range d.byForm {
		if src.Match.Form(token) {
			return src
		}
	}
	if seen.JWT {
		return nil
	}
	return d.rest
}

func (d *tokens) verify(
	ctx context.Context, key tokencache.Key, token string, seen *unverified.Token, src *tokenSource,
) (*authenticator.Response, bool, error) {
	resp, ok, err := src.authenticate.AuthenticateToken(ctx, token)
	if err == nil && !ok {
		err = errNotAccepted
	}
	if err != nil {
		return src.refuse(err)
	}
	v := verified{token: *seen, source: src}
	if v.issued, v.expires = validity.Of(resp.User); seen.JWT && v.issued.IsZero() && v.expires.IsZero() {
		v.issued, v.expires = seen.IssuedAt, seen.Expires
	}
	if revalidator, is := resp.User.(Revalidator); is {
		v.revalidate = revalidator.Revalidate
	}
	if v.resp, _, err = src.Rules.apply(resp, true, nil); err != nil {
		return nil, false, err
	}
	if !src.Uncached {
		until := d.now().Add(tokenTTL)
		if !v.expires.IsZero() && v.expires.Before(until) {
			until = v.expires
		}
		d.cache.Set(key, v, tokencache.SizeOf(v.resp.User), until)
	}
	return d.accept(ctx, &v)
}

// accept returns the result of a verified token, unless the token is revoked or may belong to a
// deleted tenant.
func (d *tokens) accept(ctx context.Context, v *verified) (*authenticator.Response, bool, error) {
	if d.revoked != nil {
		if entry := d.revoked().tokenEntry(&v.token); entry != "" {
			id, _ := tenant.Of(v.resp.User) // the source has set this user's tenant
			return refuse(v.source.Rules.Source, v.resp.User, &revocation{entry, callerOf(nil, id, v.resp.User)})
		}
	}
	resp, ok, err := d.acceptance.check(ctx, v.source.Rules.Source, v.resp, v.issued)
	if ok && err == nil {
		recordExpiry(ctx, v.expires)
	}
	return resp, ok, err
}

func (s *tokenSource) refuse(err error) (*authenticator.Response, bool, error) {
	return s.Rules.apply(nil, false, err)
}

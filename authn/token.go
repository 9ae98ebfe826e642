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
	// tokenTTL is how long a verified token is believed without looking again: kube-apiserver's own
	// (TokenSuccessCacheTTL, k8s.io/kubernetes pkg/kubeapiserver/options/authentication.go, v1.37.1).
	tokenTTL = 10 * time.Second
	// tokenEntries bounds the cache: 5,000 nodes and 10,000 namespaces, twice, as upstream's.
	tokenEntries = 32 << 10
	// tokenBytes bounds it too: 1 KiB for each of so many, and no more than 64 MiB
	// if identities are large.
	tokenBytes = 64 << 20
)

// errUnclaimed passes "no source knows this token" through upstream's adapters, which turn an
// abstention into an error and would so keep the server's own token sources from being asked.
var errUnclaimed = errors.New("no source accepts tokens of this kind")

// errNotAccepted is for a source that was chosen for a token and abstains: nobody else may have it.
var errNotAccepted = errors.New("token not accepted")

// Match says which tokens a source may be shown. The zero value is none.
type Match struct {
	// Every token is shown to a source that looks it up in what it holds itself, and to nobody else.
	Every bool
	// Issuers are the values of the claim iss of JSON Web Tokens. No two sources may have one.
	Issuers []string
	// Prefix begins tokens that are not JSON Web Tokens with an issuer. No prefix may begin another.
	Prefix string
	// Form recognizes tokens that are not JSON Web Tokens with an issuer, and have no source's prefix.
	Form func(token string) bool
	// Rest is all tokens that are no JSON Web Tokens, no bootstrap tokens and no other source's.
	Rest bool
}

// bootstrap is the form of bootstrap tokens (k8s.io/cluster-bootstrap token/api, v0.37.1),
// which are the server's own.
var bootstrap = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// tokens dispatches bearer tokens: each goes to the one source that may claim it.
type tokens struct {
	lookups  []*tokenSource // asked about every token
	byIssuer map[string]*tokenSource
	byPrefix []*tokenSource
	byForm   []*tokenSource
	rest     *tokenSource
	cache    *tokencache.Cache[verified]
	now      func() time.Time
	revoked  func() *Revocations
	accepts  acceptance
	metrics  *Metrics
	logged   atomic.Int64 // when an unclaimed token was last logged, in Unix nanoseconds
}

// tokenSource is a source with audiences and hygiene put around it.
type tokenSource struct {
	Source
	authenticate authenticator.Token
}

// verified is what is remembered of a token that its source accepted.
type verified struct {
	resp  *authenticator.Response
	token unverified.Token // whose claims are verified by now
	// issued and expires are zero where the token does not say when.
	issued, expires time.Time
	live            func(context.Context) error
	from            *tokenSource
}

// Living is implemented by the user.Info of a source whose identities depend on more than their
// token. Live is asked whenever a remembered answer is used, and ends the request with its error.
type Living interface {
	Live(ctx context.Context) error
}

func newTokens(c *Chain) *tokens {
	d := &tokens{
		byIssuer: map[string]*tokenSource{},
		cache:    tokencache.New[verified](tokencache.Limits{Entries: tokenEntries, Bytes: tokenBytes}, c.now()),
		now:      c.now(),
		revoked:  c.Revoked,
		accepts:  c.Accepts,
		metrics:  c.Metrics,
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

// AuthenticateToken implements [authenticator.Token]; it answers errUnclaimed where no
// source claims the token.
func (d *tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, _ := authenticator.AudiencesFrom(ctx)
	key := d.cache.Key(token, audiences)
	if v, found := d.cache.Get(key); found {
		d.metrics.hit()
		if v.live != nil {
			if err := v.live(ctx); err != nil {
				d.cache.Remove(key)
				return v.from.refuse(err)
			}
		}
		return d.counts(ctx, &v)
	}
	for _, src := range d.lookups {
		if resp, ok, err := src.authenticate.AuthenticateToken(ctx, token); ok || err != nil {
			if resp, ok, err = src.Hygiene.apply(resp, ok, err); err != nil || !ok {
				return resp, ok, err
			}
			return d.accepts.check(ctx, src.Hygiene.Source, resp, time.Time{})
		}
	}
	if err := wellFormed(token); err != nil {
		return nil, false, &refusal{source: tokenSourceName, err: err}
	}
	seen, err := unverified.Read(token)
	src := d.choose(token, &seen)
	switch {
	case src == nil && err != nil && seen.Issuer == "": // another reader may find one of our issuers in it
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

// tokenSourceName names, in refusals, what is no source's token.
const tokenSourceName = "token"

// maxTokenBytes bounds tokens that are not looked up: the largest known hold some hundred groups.
const maxTokenBytes = 64 << 10

// ErrForm says that two readers could read the token as two.
var ErrForm = errors.New("malformed token: it is ambiguous or too long, or contains invisible characters")

// wellFormed refuses a token, of whatever source, that another reader might read in another way.
func wellFormed(token string) error {
	if len(token) > maxTokenBytes || !unverified.IsVisible(token) {
		return ErrForm
	}
	return nil
}

// unclaimedEvery is the least time between two lines of the log about tokens that no source claims.
const unclaimedEvery = 5 * time.Second

// logUnclaimed logs, now and then, that no source claims tokens without an issuer. Anyone can send
// such tokens.
func (d *tokens) logUnclaimed(ctx context.Context, seen *unverified.Token) {
	last, now := d.logged.Load(), d.now().UnixNano()
	if seen.Issuerless && (last == 0 || now-last >= int64(unclaimedEvery)) && d.logged.CompareAndSwap(last, now) {
		klog.FromContext(ctx).Info("No source of kubetenant accepts the token",
			"reason", "a JSON Web Token without an issuer")
	}
}

// choose returns the one source that may claim the token, nil if none does. A JSON Web Token with an
// issuer is shown only to the source of that issuer. A token without one goes by its prefix and
// form, as other tokens do, and never to the source of the rest. No source is shown a bootstrap token.
func (d *tokens) choose(token string, seen *unverified.Token) *tokenSource {
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
	v := verified{token: *seen, from: src}
	if v.issued, v.expires = validity.Of(resp.User); seen.JWT && v.issued.IsZero() && v.expires.IsZero() {
		v.issued, v.expires = seen.IssuedAt, seen.Expires
	}
	if living, is := resp.User.(Living); is {
		v.live = living.Live
	}
	if v.resp, _, err = src.Hygiene.apply(resp, true, nil); err != nil {
		return nil, false, err
	}
	if !src.Uncached {
		until := d.now().Add(tokenTTL)
		if !v.expires.IsZero() && v.expires.Before(until) {
			until = v.expires
		}
		d.cache.Set(key, v, tokencache.SizeOf(v.resp.User), until)
	}
	return d.counts(ctx, &v)
}

// counts answers with what is known of a token, unless it is revoked or a deleted tenant's.
func (d *tokens) counts(ctx context.Context, v *verified) (*authenticator.Response, bool, error) {
	if d.revoked != nil {
		if entry := d.revoked().tokenEntry(&v.token); entry != "" {
			id, _ := tenant.Of(v.resp.User) // a source has set the tenant of this user
			return refuse(v.from.Hygiene.Source, v.resp.User, &revocation{entry, callerOf(nil, id, v.resp.User)})
		}
	}
	resp, ok, err := d.accepts.check(ctx, v.from.Hygiene.Source, v.resp, v.issued)
	if ok && err == nil {
		noteExpiry(ctx, v.expires)
	}
	return resp, ok, err
}

func (s *tokenSource) refuse(err error) (*authenticator.Response, bool, error) {
	return s.Hygiene.apply(nil, false, err)
}

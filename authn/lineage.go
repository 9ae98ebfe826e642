// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn/internal/unverified"
	"github.com/kubetenant/kubetenant/internal/bearer"
	"github.com/kubetenant/kubetenant/tenant"
)

// ErrPredecessor says that a credential was issued before its tenant was made, or does not say
// when: it may be one of the deleted tenant that had the name before.
var ErrPredecessor = errors.New("the credential belongs to a deleted tenant of the same name, " +
	"or has no time of issue (see spec.acceptUndated of the Tenant)")

// acceptance is [Chain.Accepts].
type acceptance func(ctx context.Context, id tenant.ID, issued time.Time) bool

// check refuses an identity that left hygiene, whose credential was issued at a time, zero for not
// known, where it may be one of a deleted tenant.
func (accepts acceptance) check(
	ctx context.Context, source string, resp *authenticator.Response, issued time.Time,
) (*authenticator.Response, bool, error) {
	if accepts == nil {
		return resp, true, nil
	}
	id, err := tenant.Of(resp.User)
	if err != nil {
		return nil, false, &refusal{source: source, err: err}
	}
	if !accepts(ctx, id, issued) {
		return refuse(source, resp.User, ErrPredecessor)
	}
	return resp, true, nil
}

// refuse refuses an authenticated caller; its credential-id tells the audit log whom.
func refuse(source string, u user.Info, err error) (*authenticator.Response, bool, error) {
	credential := strings.Join(u.GetExtra()[user.CredentialIDKey], ",")
	return nil, false, &refusal{source: source, err: err, credential: credential}
}

// checkBuiltIn is [acceptance.check] of an identity that BuiltIn answered to a request whose token
// was issued at a time, zero for none or not known.
func (c *Chain) checkBuiltIn(req *http.Request, issued time.Time, u user.Info) error {
	if c.Accepts == nil {
		return nil
	}
	id, err := c.Subject(req.Context(), u)
	switch {
	case isNobodys(err):
		return nil
	case err != nil: // who cannot be told might be a deleted tenant's
		return err
	}
	if isCertificate(u) && req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		issued = req.TLS.PeerCertificates[0].NotBefore
	}
	if !c.Accepts(req.Context(), id, issued) {
		return ErrPredecessor
	}
	return nil
}

// isNobodys reports whether a tenant is not told since there is none, which
// is the boundary's to deny.
func isNobodys(err error) bool {
	return errors.Is(err, tenant.ErrUnbound) || errors.Is(err, tenant.ErrInvalid) || errors.Is(err, tenant.ErrAmbiguous)
}

func isCertificate(u user.Info) bool {
	return slices.ContainsFunc(u.GetExtra()[user.CredentialIDKey], func(id string) bool {
		return strings.HasPrefix(id, certificateCredential)
	})
}

// tokenLooker returns an authenticator of nothing that looks at a request's tokens before
// upstream's adapters take them from the request. It keeps when the oldest was issued, since any
// of them may be the one that they accept, and returns ErrForm or ErrRevoked, within others',
// for one that may not go on.
func (c *Chain) tokenLooker(oldest *time.Time) authenticator.Request {
	found := false
	look := func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if err := wellFormed(token); err != nil {
			return nil, false, err
		}
		seen, err := unverified.Read(token)
		if !found || seen.IssuedAt.Before(*oldest) {
			found, *oldest = true, seen.IssuedAt
		}
		if c.Revoked == nil {
			return nil, false, errUnclaimed
		}
		if err != nil { // another reader may find in it who is revoked
			return nil, false, ErrForm
		}
		if entry := c.Revoked().tokenEntry(&seen); entry != "" {
			return nil, false, &revocation{entry: entry}
		}
		return nil, false, errUnclaimed
	}
	return bearer.New(authenticator.TokenFunc(look), errUnclaimed, ErrForm)
}

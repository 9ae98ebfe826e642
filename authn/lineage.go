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

// ErrPredecessor reports that a credential was issued before its tenant was created, or has no time
// of issue. The credential may belong to a deleted tenant of the same name.
var ErrPredecessor = errors.New("the credential belongs to a deleted tenant of the same name, " +
	"or has no time of issue (see spec.acceptUndated of the Tenant)")

// acceptance is the type of [Chain.Accepts].
type acceptance func(ctx context.Context, id tenant.ID, issued time.Time) bool

// check rejects a validated identity if its credential may belong to a deleted tenant. issued is
// zero if the time of issue is unknown.
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

// refuse rejects an authenticated caller. The credential-id of the caller is written to the audit
// event.
func refuse(source string, u user.Info, err error) (*authenticator.Response, bool, error) {
	credential := strings.Join(u.GetExtra()[user.CredentialIDKey], ",")
	return nil, false, &refusal{source: source, err: err, credential: credential}
}

// checkBuiltIn checks an identity from BuiltIn in the same way as [acceptance.check]. issued is
// the time of issue of the request's token, or zero if that is unknown. For a client
// certificate, NotBefore is used instead.
func (c *Chain) checkBuiltIn(req *http.Request, issued time.Time, u user.Info) error {
	if c.Accepts == nil {
		return nil
	}
	id, err := c.Subject(req.Context(), u)
	switch {
	case isNoTenant(err):
		return nil
	case err != nil: // the tenant is unknown and may be a deleted tenant
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

// isNoTenant reports whether an error means that the identity has no valid tenant. Package authz
// treats the identity as a caller without a tenant.
func isNoTenant(err error) bool {
	return errors.Is(err, tenant.ErrUnbound) || errors.Is(err, tenant.ErrInvalid) || errors.Is(err, tenant.ErrAmbiguous)
}

func isCertificate(u user.Info) bool {
	return slices.ContainsFunc(u.GetExtra()[user.CredentialIDKey], func(id string) bool {
		return strings.HasPrefix(id, certificateCredential)
	})
}

// tokenInspector returns an authenticator that accepts no request. It reads the tokens of a
// request before upstream's adapters remove them. It sets oldest to the earliest time of issue,
// because BuiltIn may accept any of the tokens. If a token must be rejected, it fails with
// ErrForm or an error of kind ErrRevoked.
func (c *Chain) tokenInspector(oldest *time.Time) authenticator.Request {
	found := false
	inspect := func(_ context.Context, token string) (*authenticator.Response, bool, error) {
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
		if err != nil { // another parser may read a revoked token
			return nil, false, ErrForm
		}
		if entry := c.Revoked().tokenEntry(&seen); entry != "" {
			return nil, false, &revocation{entry: entry}
		}
		return nil, false, errUnclaimed
	}
	return bearer.New(authenticator.TokenFunc(inspect), errUnclaimed, ErrForm)
}

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
	"github.com/kubetenant/kubetenant/tenant"
)

// ErrPredecessor says that a credential was issued before its tenant was made, or does not say when: it may be one of the
// deleted tenant that had the name before.
var ErrPredecessor = errors.New("credential of a deleted tenant of this name, or one that does not say when it was issued (spec.acceptUndated of the Tenant)")

// acceptance is [Chain.Accepts].
type acceptance func(id tenant.ID, issued time.Time) bool

// check refuses an identity that left hygiene, whose credential was issued at a time, zero for not known, where it may be one
// of a deleted tenant.
func (accepts acceptance) check(source string, resp *authenticator.Response, issued time.Time) (*authenticator.Response, bool, error) {
	if accepts == nil {
		return resp, true, nil
	}
	id, err := tenant.Of(resp.User)
	if err != nil {
		return nil, false, &refusal{source: source, err: err}
	}
	if !accepts(id, issued) {
		return predecessor(source, resp.User)
	}
	return resp, true, nil
}

// predecessor refuses who may be a deleted tenant's.
func predecessor(source string, u user.Info) (*authenticator.Response, bool, error) {
	return nil, false, &refusal{source: source, err: ErrPredecessor, credential: strings.Join(u.GetExtra()[user.CredentialIDKey], ",")}
}

// isBuiltInOfPredecessor reports whether an identity that BuiltIn answered may be a deleted tenant's. token is the request's,
// the zero value where it has none. Whose tenant cannot be told is the boundary's to deny.
func (c *Chain) isBuiltInOfPredecessor(req *http.Request, token *unverified.Token, u user.Info) bool {
	if c.Accepts == nil {
		return false
	}
	id, err := c.Subject(req.Context(), u)
	if err != nil {
		return false
	}
	if isCertificate(u) && req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		return !c.Accepts(id, req.TLS.PeerCertificates[0].NotBefore)
	}
	return !c.Accepts(id, token.IssuedAt)
}

func isCertificate(u user.Info) bool {
	return slices.ContainsFunc(u.GetExtra()[user.CredentialIDKey], func(id string) bool { return strings.HasPrefix(id, certificateCredential) })
}

// tokenLooker returns an authenticator of nothing that looks at a request's token before upstream's adapters take it from the
// request, and into seen. It returns ErrForm or ErrRevoked, within others', for one that may not go on.
func (c *Chain) tokenLooker(seen *unverified.Token) authenticator.Request {
	return newTokenAdapter(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if err := wellFormed(token); err != nil {
			return nil, false, err
		}
		var err error
		*seen, err = unverified.Read(token)
		switch {
		case c.Revoked == nil:
		case err != nil: // another reader may find in it who is revoked
			return nil, false, ErrForm
		case c.Revoked().hasToken(seen):
			return nil, false, ErrRevoked
		}
		return nil, false, errUnclaimed
	}))
}

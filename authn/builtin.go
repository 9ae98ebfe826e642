package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn/internal/unverified"
	"github.com/kubetenant/kubetenant/tenant"
)

// builtInSource names the server's own chain in refusals.
const builtInSource = "built-in"

// cleanBuiltIn refuses identities of the server's own chain that speak with our words, since no
// credential that we did not check may name a tenant, and tokens that were revoked.
func (c *Chain) cleanBuiltIn(next authenticator.Request) authenticator.Request {
	// Upstream's adapters take the token from a request that they authenticate, so it is looked at before.
	tokens := newTokenAdapter(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if err := wellFormed(token); err != nil {
			return nil, false, err
		}
		if c.Revoked != nil {
			switch seen, err := unverified.Read(token); {
			case err != nil: // another reader may find in it who is revoked
				return nil, false, ErrForm
			case c.Revoked().hasToken(&seen):
				return nil, false, ErrRevoked
			}
		}
		return nil, false, errUnclaimed
	}))
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if _, _, err := tokens.AuthenticateRequest(req); errors.Is(err, ErrRevoked) || errors.Is(err, ErrForm) {
			return nil, false, &refusal{source: builtInSource, err: err}
		}
		resp, ok, err := next.AuthenticateRequest(req)
		if err != nil {
			return nil, false, &short{err}
		}
		if !ok {
			return nil, false, nil
		}
		for _, group := range resp.User.GetGroups() {
			if strings.HasPrefix(group, tenant.GroupPrefix) {
				return nil, false, &refusal{source: builtInSource, err: ErrReservedGroup}
			}
		}
		for key := range resp.User.GetExtra() {
			if isOwnKey(key) {
				return nil, false, &refusal{source: builtInSource, err: ErrReservedExtra}
			}
		}
		if err := c.Limits.OrDefault().Check(resp.User); err != nil {
			return nil, false, &refusal{source: builtInSource, err: err}
		}
		if c.isOfRevokedAuthority(req, resp.User) {
			return revoked(builtInSource, resp.User)
		}
		return resp, ok, nil
	})
}

// isOfRevokedAuthority reports whether a certificate that BuiltIn took leads to its authorities over nothing but
// revoked ones, which need not have been presented.
func (c *Chain) isOfRevokedAuthority(req *http.Request, u user.Info) bool {
	if c.Revoked == nil || c.BuiltInChains == nil || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return false
	}
	list := c.Revoked()
	if list == nil || len(list.Serials)+len(list.Fingerprints) == 0 || !slices.ContainsFunc(u.GetExtra()[user.CredentialIDKey], func(id string) bool { return strings.HasPrefix(id, certificateCredential) }) {
		return false
	}
	return !slices.ContainsFunc(c.BuiltInChains(req.TLS.PeerCertificates), func(chain []*x509.Certificate) bool {
		return !slices.ContainsFunc(chain[1:], list.HasCertificate)
	})
}

package authn

import (
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// builtInSource names the server's own chain in refusals.
const builtInSource = "built-in"

// cleanBuiltIn refuses identities of the server's own chain that speak with our words, since no
// credential that we did not check may name a tenant, and tokens that were revoked.
func (c *Chain) cleanBuiltIn(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		var issued time.Time
		_, _, err := c.tokenLooker(&issued).AuthenticateRequest(req)
		if errors.Is(err, ErrRevoked) || errors.Is(err, ErrForm) {
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
			return refuse(builtInSource, resp.User, ErrRevoked)
		}
		if err := c.checkBuiltIn(req, issued, resp.User); err != nil {
			return refuse(builtInSource, resp.User, err)
		}
		return resp, ok, nil
	})
}

// isOfRevokedAuthority reports whether a certificate that BuiltIn took leads to its authorities
// over nothing but revoked ones, which need not have been presented.
func (c *Chain) isOfRevokedAuthority(req *http.Request, u user.Info) bool {
	if c.Revoked == nil || c.BuiltInChains == nil || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return false
	}
	list := c.Revoked()
	if list == nil || len(list.Serials)+len(list.Fingerprints) == 0 || !isCertificate(u) {
		return false
	}
	return !slices.ContainsFunc(c.BuiltInChains(req.TLS.PeerCertificates), func(chain []*x509.Certificate) bool {
		return !slices.ContainsFunc(chain[1:], list.HasCertificate)
	})
}

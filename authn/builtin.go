// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// builtInSource is the name of the server's own authenticator in errors and metrics.
const builtInSource = "built-in"

// validatedBuiltIn validates the identities from BuiltIn. It rejects the groups of tenants and
// the extra keys of this project, because only configured sources may assert a tenant. It also
// rejects identities that exceed Limits, malformed or revoked tokens, certificates with a
// revoked authority, and credentials that may belong to a deleted tenant.
func (c *Chain) validatedBuiltIn(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		var issued time.Time
		_, _, err := c.tokenInspector(&issued).AuthenticateRequest(req)
		if errors.Is(err, ErrRevoked) || errors.Is(err, ErrForm) {
			return nil, false, &refusal{source: builtInSource, err: err}
		}
		resp, ok, err := next.AuthenticateRequest(req)
		if err != nil {
			return nil, false, &shortError{err}
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
		if entry := c.revokedAuthority(req, resp.User); entry != "" {
			return refuse(builtInSource, resp.User, &revocation{entry, callerOf(req, tenant.ID{}, resp.User)})
		}
		if err := c.checkBuiltIn(req, issued, resp.User); err != nil {
			return refuse(builtInSource, resp.User, err)
		}
		return resp, ok, nil
	})
}

// revokedAuthority returns the revocation entry that revokes an authority of a certificate that
// BuiltIn accepted, or "". A certificate is revoked if every chain to a trusted authority
// contains a revoked authority, or if no chain leads to a trusted authority. The client need not
// have presented the revoked authority.
func (c *Chain) revokedAuthority(req *http.Request, u user.Info) (entry string) {
	if c.Revoked == nil || c.BuiltInChains == nil || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return ""
	}
	list := c.Revoked()
	if list == nil || len(list.Serials)+len(list.Fingerprints) == 0 || !isCertificate(u) {
		return ""
	}
	for _, chain := range c.BuiltInChains(req.TLS.PeerCertificates) {
		i := slices.IndexFunc(chain[1:], list.HasCertificate)
		if i < 0 {
			return ""
		}
		entry = list.certificateEntry(chain[1+i])
	}
	if entry == "" { // no chain leads to a trusted authority
		entry = "certificates"
	}
	return entry
}

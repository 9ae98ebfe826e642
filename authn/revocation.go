// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn/internal/unverified"
	"github.com/kubetenant/kubetenant/tenant"
)

// ErrRevoked is the kind of the errors about a revoked credential, tenant or user. Test for it with
// [errors.Is]. The error of a refused request also names the caller and the entry of the list.
var ErrRevoked = errors.New("revoked")

// certificateCredential begins the credential-id of identities from client certificates
// (k8s.io/apiserver pkg/authentication/request/x509, v0.37.1).
const certificateCredential = "X509SHA256=" // #nosec G101 -- the beginning of an identifier

// revocationSource names the list of revocations in refusals of requests, whatever their source.
const revocationSource = "revocation"

// Revocations are what no longer counts, whatever the source. The zero value, and nil, revoke
// nothing. It is safe for concurrent use as long as nobody changes it.
type Revocations struct {
	// Serials are certificates by their serial number in lower-case hexadecimal digits without leading
	// zeros, each with the issuers, in the form of RFC 2253 as OpenSSL writes it, for which it counts.
	Serials map[string][]string
	// Fingerprints are certificates by the SHA-256 of their DER form, in
	// lower-case hexadecimal digits.
	Fingerprints map[string]struct{}
	// Tokens are JSON Web Tokens by their issuer; one rule is enough.
	Tokens map[string][]TokenRule
	// Users of tenants, by the name that leaves the chain.
	Users map[TenantUser]struct{}
	// ServiceAccounts by their UID.
	ServiceAccounts map[string]struct{}
	// Tenants, with everybody in them.
	Tenants map[tenant.ID]struct{}
}

// TokenRule revokes the tokens that fit all of its fields that are set. A rule without a field
// revokes nothing.
type TokenRule struct {
	// ID is the claim jti.
	ID string
	// Subject is the claim sub.
	Subject string
	// IssuedBefore revokes tokens issued before it, and those that do not say when they were.
	IssuedBefore time.Time
}

// TenantUser is a user of a tenant.
type TenantUser struct {
	Tenant tenant.ID
	Name   string
}

func (r TokenRule) fits(t *unverified.Token) bool {
	if r.ID == "" && r.Subject == "" && r.IssuedBefore.IsZero() {
		return false
	}
	return (r.ID == "" || r.ID == t.ID) && (r.Subject == "" || r.Subject == t.Subject) &&
		(r.IssuedBefore.IsZero() || t.IssuedAt.Before(r.IssuedBefore))
}

// tokenEntry returns the entry of the list that revokes a token by its claims, or "".
func (r *Revocations) tokenEntry(t *unverified.Token) string {
	if r == nil || !t.JWT || len(r.Tokens) == 0 {
		return ""
	}
	for _, rule := range r.Tokens[t.Issuer] {
		if rule.fits(t) {
			return rule.entry(t.Issuer)
		}
	}
	return ""
}

// entry returns the rule as the file writes it.
func (r TokenRule) entry(issuer string) string {
	text := fmt.Sprintf("tokens { issuer: %q", issuer)
	if r.ID != "" {
		text += fmt.Sprintf(", id: %q", r.ID)
	}
	if r.Subject != "" {
		text += fmt.Sprintf(", subject: %q", r.Subject)
	}
	if !r.IssuedBefore.IsZero() {
		text += ", issuedBefore: " + r.IssuedBefore.UTC().Format(time.RFC3339)
	}
	return text + " }"
}

// HasToken reports whether a JSON Web Token is revoked by its claims, for who authenticates tokens
// outside of a [Chain]; one that two readers could read as two is, where any is. The caller MUST
// have verified its signature.
func (r *Revocations) HasToken(token string) bool {
	if r == nil || len(r.Tokens) == 0 {
		return false
	}
	seen, err := unverified.Read(token)
	return err != nil || r.tokenEntry(&seen) != ""
}

// HasPresented reports whether one of the certificates that came with a request is revoked. It
// need not be the request's credential: nobody speaks over a revoked certificate's connection.
func (r *Revocations) HasPresented(req *http.Request) bool {
	return r.presentedEntry(req) != ""
}

// HasCertificate reports whether a certificate is revoked, by its serial number and
// issuer or by its fingerprint. A fingerprint revokes both forms in which a certificate
// signed by ECDSA can be written.
func (r *Revocations) HasCertificate(c *x509.Certificate) bool {
	return r.certificateEntry(c) != ""
}

// certificateEntry returns the entry of the list that revokes a certificate, or "".
func (r *Revocations) certificateEntry(c *x509.Certificate) string {
	if r == nil {
		return ""
	}
	serial := c.SerialNumber.Text(16)
	if issuers := r.Serials[serial]; len(issuers) > 0 {
		if issuer := distinguishedName(c.RawIssuer); slices.Contains(issuers, issuer) {
			return fmt.Sprintf("certificates { serial: %q, issuer: %q }", serial, issuer)
		}
	}
	if len(r.Fingerprints) == 0 {
		return ""
	}
	for _, sum := range fingerprints(c.Raw) {
		if _, revoked := r.Fingerprints[sum]; revoked {
			return fmt.Sprintf("certificates { sha256: %q }", sum)
		}
	}
	return ""
}

// CheckCertificate returns an error of kind [ErrRevoked] that names the entry of the list if a
// certificate is revoked.
func (r *Revocations) CheckCertificate(c *x509.Certificate) error {
	if entry := r.certificateEntry(c); entry != "" {
		return &revocation{entry: entry}
	}
	return nil
}

// presentedEntry returns the entry of the list that revokes a certificate that came with a request,
// or "".
func (r *Revocations) presentedEntry(req *http.Request) string {
	if r == nil || req.TLS == nil || len(r.Serials)+len(r.Fingerprints) == 0 {
		return ""
	}
	for _, c := range req.TLS.PeerCertificates {
		if entry := r.certificateEntry(c); entry != "" {
			return entry
		}
	}
	return ""
}

// userEntry returns the entry of the list that revokes a user of a tenant, or "".
func (r *Revocations) userEntry(id tenant.ID, u user.Info) string {
	if r == nil {
		return ""
	}
	if _, revoked := r.Tenants[id]; revoked && !id.IsZero() {
		return fmt.Sprintf("tenants { name: %q }", id)
	}
	if _, revoked := r.ServiceAccounts[u.GetUID()]; revoked && tenant.IsServiceAccountName(u.GetName()) {
		return fmt.Sprintf("serviceAccounts { uid: %q }", u.GetUID())
	}
	if _, revoked := r.Users[TenantUser{id, u.GetName()}]; revoked {
		return fmt.Sprintf("users { tenant: %q, name: %q }", id, u.GetName())
	}
	return ""
}

// revocation is an error of kind ErrRevoked that names the entry of the list.
type revocation struct{ entry, caller string }

func (r *revocation) Error() string {
	text := ErrRevoked.Error()
	if r.caller != "" {
		text += ": " + r.caller
	}
	return text + ", by the entry " + r.entry
}

// Is implements the interface that [errors.Is] uses.
func (r *revocation) Is(target error) bool { return target == ErrRevoked }

// callerOf describes the caller of a request for the log: the user, the tenant, and the serial
// number of the certificate that was presented.
func callerOf(req *http.Request, id tenant.ID, u user.Info) string {
	text := fmt.Sprintf("user %q", u.GetName())
	if !id.IsZero() {
		text += fmt.Sprintf(" in tenant %q", id)
	}
	if req != nil && req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		text += fmt.Sprintf(" with the certificate of serial number %q", req.TLS.PeerCertificates[0].SerialNumber.Text(16))
	}
	return text
}

// Covers reports whether a caller of a tenant, zero for none, is revoked by what its identity says:
// the tenant, its name, a service account's UID or a certificate's fingerprint. Whoever sees the
// credential itself knows more: serial numbers and the claims of tokens.
func (r *Revocations) Covers(id tenant.ID, u user.Info) bool {
	switch {
	case r == nil:
		return false
	case r.userEntry(id, u) != "":
		return true
	}
	for _, credential := range u.GetExtra()[user.CredentialIDKey] {
		if sum, ok := strings.CutPrefix(credential, certificateCredential); ok {
			if _, revoked := r.Fingerprints[strings.ToLower(sum)]; revoked {
				return true
			}
		}
	}
	return false
}

// MayCover is [Revocations.Covers], and reports callers too whose token may be revoked: an identity
// does not name its issuer, nor the time or the subject that a rule may be about.
func (r *Revocations) MayCover(id tenant.ID, u user.Info) bool {
	switch {
	case r == nil:
		return false
	case r.Covers(id, u):
		return true
	}
	for _, credential := range u.GetExtra()[user.CredentialIDKey] {
		name, isToken := strings.CutPrefix(credential, "JTI=")
		for _, rules := range r.Tokens {
			if isToken && slices.ContainsFunc(rules, func(rule TokenRule) bool { return rule.ID == "" || rule.ID == name }) {
				return true
			}
		}
	}
	return false
}

// unrevoked refuses who is revoked by certificate, name or tenant, whatever the source said.
func (c *Chain) unrevoked(next authenticator.Request) authenticator.Request {
	if c.Revoked == nil {
		return next
	}
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		entry := c.Revoked().presentedEntry(req)
		resp, ok, err := next.AuthenticateRequest(req)
		if err != nil || !ok {
			return resp, ok, err
		}
		id, err := tenant.Of(resp.User)
		if errors.Is(err, tenant.ErrUnbound) {
			id, err = c.Subject(req.Context(), resp.User)
		}
		switch {
		case err == nil, isNobodys(err):
		default: // who cannot be told might be revoked
			return nil, false, &refusal{source: revocationSource, err: err}
		}
		if entry == "" {
			entry = c.Revoked().userEntry(id, resp.User)
		}
		if entry != "" {
			source := revocationSource
			if names := resp.User.GetExtra()[tenant.SourceKey]; len(names) == 1 {
				source = names[0]
			}
			return refuse(source, resp.User, &revocation{entry, callerOf(req, id, resp.User)})
		}
		return resp, ok, nil
	})
}

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

// ErrRevoked is the error for a revoked credential, tenant or user. Test for it with [errors.Is].
// The error of a rejected request also names the caller and the revocation entry.
var ErrRevoked = errors.New("revoked")

// certificateCredential is the prefix of the credential-id of a client certificate
// (k8s.io/apiserver pkg/authentication/request/x509, v0.37.1).
const certificateCredential = "X509SHA256=" // #nosec G101 -- the beginning of an identifier

// revocationSource is the source in errors about revoked requests if no other source is known.
const revocationSource = "revocation"

// Revocations are the revoked credentials, users and tenants of all sources. The zero value and
// nil revoke nothing. Revocations is safe for concurrent use if it is not changed.
type Revocations struct {
	// Serials are the revoked certificates, keyed by serial number in lower-case hexadecimal
	// digits without leading zeros. The values are the issuers of the revoked certificates, in
	// the form of RFC 2253 that OpenSSL writes.
	Serials map[string][]string
	// Fingerprints are the revoked certificates, keyed by the SHA-256 of their DER encoding in
	// lower-case hexadecimal digits.
	Fingerprints map[string]struct{}
	// Tokens are the rules for JSON Web Tokens, keyed by issuer. A token is revoked if it
	// matches at least one rule for its issuer.
	Tokens map[string][]TokenRule
	// Users are the revoked users. The name of each is the final user name, with all prefixes.
	Users map[TenantUser]struct{}
	// ServiceAccounts are the revoked service accounts, keyed by UID.
	ServiceAccounts map[string]struct{}
	// Tenants are the tenants whose callers are all revoked.
	Tenants map[tenant.ID]struct{}
}

// TokenRule revokes the tokens that match all set fields. A rule without fields revokes nothing.
type TokenRule struct {
	// ID is the claim jti.
	ID string
	// Subject is the claim sub.
	Subject string
	// IssuedBefore revokes tokens that were issued before this time or have no time of issue.
	IssuedBefore time.Time
}

// TenantUser is a user of a tenant.
type TenantUser struct {
	Tenant tenant.ID
	Name   string
}

func (r TokenRule) matches(t *unverified.Token) bool {
	if r.ID == "" && r.Subject == "" && r.IssuedBefore.IsZero() {
		return false
	}
	return (r.ID == "" || r.ID == t.ID) && (r.Subject == "" || r.Subject == t.Subject) &&
		(r.IssuedBefore.IsZero() || t.IssuedAt.Before(r.IssuedBefore))
}

// tokenEntry returns the revocation entry that revokes a token by its claims, or "".
func (r *Revocations) tokenEntry(t *unverified.Token) string {
	if r == nil || !t.JWT || len(r.Tokens) == 0 {
		return ""
	}
	for _, rule := range r.Tokens[t.Issuer] {
		if rule.matches(t) {
			return rule.entry(t.Issuer)
		}
	}
	return ""
}

// entry formats the rule in the same way as the revocation file.
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

// HasToken reports whether the claims of a JSON Web Token are revoked, for programs that
// authenticate tokens outside of a [Chain]. If there are token rules, a token that is ambiguous
// or malformed is revoked. The caller MUST have verified the signature.
func (r *Revocations) HasToken(token string) bool {
	if r == nil || len(r.Tokens) == 0 {
		return false
	}
	seen, err := unverified.Read(token)
	return err != nil || r.tokenEntry(&seen) != ""
}

// HasPresented reports whether the client of a request presented a revoked certificate. If true,
// the request MUST be rejected even if the certificate is not its credential.
func (r *Revocations) HasPresented(req *http.Request) bool {
	return r.presentedEntry(req) != ""
}

// HasCertificate reports whether a certificate is revoked, by its serial number and issuer or by
// its fingerprint. A fingerprint revokes both encodings of a certificate with an ECDSA signature.
func (r *Revocations) HasCertificate(c *x509.Certificate) bool {
	return r.certificateEntry(c) != ""
}

// certificateEntry returns the revocation entry that revokes a certificate, or "".
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

// CheckCertificate returns an error of kind [ErrRevoked] if a certificate is revoked. The error
// names the revocation entry.
func (r *Revocations) CheckCertificate(c *x509.Certificate) error {
	if entry := r.certificateEntry(c); entry != "" {
		return &revocation{entry: entry}
	}
	return nil
}

// presentedEntry returns the revocation entry that revokes a certificate that the client of a
// request presented, or "".
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

// userEntry returns the revocation entry that revokes a user of a tenant, or "".
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

// revocation is an error of kind ErrRevoked that names the revocation entry.
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

// callerOf describes the caller of a request for an error. It names the user, the tenant and the
// serial number of the client certificate.
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

// Covers reports whether the identity of a caller is revoked, by tenant, name, UID of a service
// account or fingerprint of a certificate. id is zero if the caller has no tenant. Covers cannot
// check serial numbers and the claims of tokens, because an identity does not contain them.
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

// MayCover is like [Revocations.Covers], but also returns true if the caller's token may be
// revoked. MayCover compares only token IDs, because an identity does not contain the issuer,
// the subject or the time of issue of its token.
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

// withRevocation rejects callers from all sources and from BuiltIn whose certificate, user name,
// service account or tenant is revoked. It does not check the rules for tokens.
func (c *Chain) withRevocation(next authenticator.Request) authenticator.Request {
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
		if err != nil && !isNoTenant(err) { // the unknown tenant may be revoked
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

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/tenant"
)

// The errors for a rejected token. Test for them with [errors.Is]. The text may also contain parts
// of the configuration and of the provider's documents, such as names of claims, messages of rules,
// and URLs. It never contains the value of a claim.
var (
	ErrMalformed   = errors.New("malformed token")
	ErrAlgorithm   = errors.New("algorithm not allowed")
	ErrSignature   = errors.New("invalid signature")
	ErrNoKey       = errors.New("no usable key")
	ErrKeys        = error(outbound.Unavailable("cannot fetch the issuer's keys"))
	ErrAudience    = errors.New("wrong audience")
	ErrExpired     = errors.New("token expired")
	ErrNotYetValid = errors.New("token not valid yet")
	ErrClaim       = errors.New("invalid claim")
	ErrUsername    = errors.New("no user name in the claims")
	ErrGroups      = errors.New("invalid groups claim")
	ErrRule        = errors.New("a claim or user validation rule failed")
	ErrTenant      = errors.New("the claims do not name exactly one tenant")
	ErrMapping     = errors.New("a claim mapping failed")
	ErrDistributed = errors.New("groups overage: the token refers to a server for the groups, and does not contain them")
	ErrRefused     = errors.New("token refused")
)

// noRequests is the transport of the HTTP client that is passed to upstream. It rejects all
// requests, because keys come from a [keySet]. Upstream would need the client only for distributed
// claims (OpenID Connect Core 1.0, section 5.6.2). It would then contact any server that a token
// names.
type noRequests struct{}

func (noRequests) RoundTrip(*http.Request) (*http.Response, error) { return nil, ErrDistributed }

// signatureResult receives the result of [keySet.VerifySignature] for the token of one call.
type signatureResult struct {
	payload []byte // set if the signature is valid
	err     error
}

type signatureResultKey struct{}

func signatureResultFrom(ctx context.Context) *signatureResult {
	v, _ := ctx.Value(signatureResultKey{}).(*signatureResult)
	return v
}

// reasons converts an error from upstream or go-oidc to an error of this package. The original
// error begins with a fixed text and parts of the configuration. It may also contain claims from
// the token, which the converted error omits.
type reasons struct {
	jwt        *apiserver.JWTAuthenticator
	tenantFrom string
}

// fixedReasons returns the prefixes of original errors that do not depend on the configuration,
// with the converted errors.
func fixedReasons() []struct {
	text   string
	reason error
} {
	return []struct {
		text   string
		reason error
	}{
		{"oidc: verify token: oidc: malformed jwt", ErrMalformed},
		{"oidc: verify token: oidc: id token not signed", ErrMalformed},
		{"oidc: verify token: oidc: multiple signatures", ErrMalformed},
		{"oidc: parse claims: ", ErrMalformed},
		{"oidc: verify token: oidc: id token signed with unsupported algorithm", ErrAlgorithm},
		{"oidc: verify token: oidc: failed to obtain source", withDetail(ErrClaim, "_claim_names names no source")},
		{
			"oidc: verify token: oidc: source does not exist",
			withDetail(ErrClaim, "_claim_sources lacks a source of _claim_names"),
		},
		{
			"oidc: verify token: oidc: id token issued by a different provider",
			withDetail(ErrClaim, "iss names another issuer"),
		},
		{"oidc: verify token: oidc: expected audience", ErrAudience},
		{
			"oidc: verify token: oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)",
			withDetail(ErrClaim, "exp is missing"),
		},
		{"oidc: verify token: oidc: token is expired", ErrExpired},
		{"oidc: verify token: oidc: current time", ErrNotYetValid},
		{"oidc: could not expand distributed claims: while getting distributed claim", ErrDistributed},
		{"oidc: could not expand distributed claims: ", withDetail(ErrClaim, "_claim_names or _claim_sources is malformed")},
		{
			"oidc: empty username via CEL expression",
			withDetail(ErrUsername, "claimMappings.username.expression gives an empty string"),
		},
		{"oidc: parse 'email_verified' claim", withDetail(ErrClaim, "email_verified is not true: it is not a boolean")},
		{"oidc: email not verified", withDetail(ErrClaim, "email_verified is not true")},
	}
}

func withDetail(reason error, detail string) error { return fmt.Errorf("%w: %s", reason, detail) }

func (r reasons) reasonOf(text string, v *signatureResult) error {
	if v.err != nil {
		return v.err
	}
	if strings.HasPrefix(text, "oidc: verify token: oidc: failed to unmarshal claims") {
		return registeredClaim(v.payload)
	}
	for _, f := range fixedReasons() {
		if strings.HasPrefix(text, f.text) {
			return f.reason
		}
	}
	for _, find := range []func(string) error{r.claimReason, r.requiredReason, r.mappingReason, r.ruleReason} {
		if reason := find(text); reason != nil {
			return reason
		}
	}
	return ErrRefused
}

// seconds decodes a time like go-oidc (jsonTime, v2.5.0).
type seconds struct{}

func (*seconds) UnmarshalJSON(data []byte) error {
	var n json.Number
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	_, err := n.Float64()
	return err
}

// registeredClaim returns an error that names the claim that go-oidc cannot decode (idToken,
// v2.5.0). Like go-oidc, it uses encoding/json, which accepts names in any case.
func registeredClaim(payload []byte) error {
	for _, c := range []struct {
		name, kind string
		into       any
	}{
		{"iss", "a string", new(struct {
			V string `json:"iss"`
		})},
		{"sub", "a string", new(struct {
			V string `json:"sub"`
		})},
		{"exp", "a number", new(struct {
			V seconds `json:"exp"`
		})},
		{"iat", "a number", new(struct {
			V seconds `json:"iat"`
		})},
		{"nbf", "a number", new(struct {
			V *seconds `json:"nbf"`
		})},
		{"nonce", "a string", new(struct {
			V string `json:"nonce"`
		})},
		{"at_hash", "a string", new(struct {
			V string `json:"at_hash"`
		})},
		{"_claim_names", "an object of strings", new(struct {
			V map[string]string `json:"_claim_names"`
		})},
		{"_claim_sources", "an object of endpoints", new(struct {
			V map[string]struct {
				Endpoint string `json:"endpoint"`
				Token    string `json:"access_token"`
			} `json:"_claim_sources"`
		})},
	} {
		if json.Unmarshal(payload, c.into) != nil {
			return withDetail(ErrClaim, c.name+" is "+nullOr("not "+c.kind, payload, c.name))
		}
	}
	return withDetail(ErrClaim, "aud is not a string or a list of strings") // the only remaining claim
}

// nullOr returns "missing" if a claim is null. If not, it returns the parameter otherwise.
func nullOr(otherwise string, payload []byte, name string) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(payload, &all) == nil && string(all[name]) == "null" {
		return "missing"
	}
	return otherwise
}

// claimReason returns the reason for an error about a mapped claim.
func (r reasons) claimReason(text string) error {
	m := &r.jwt.ClaimMappings
	for _, c := range []struct {
		begin  string
		claim  string
		reason error
		kind   string
	}{
		{fmt.Sprintf("oidc: parse username claims %q: ", m.Username.Claim), m.Username.Claim, ErrUsername, "a string"},
		{
			fmt.Sprintf("oidc: parse groups claim %q: ", m.Groups.Claim),
			m.Groups.Claim, ErrGroups, "a string or a list of strings",
		},
		{fmt.Sprintf("oidc: parse uid claim %q: ", m.UID.Claim), m.UID.Claim, ErrClaim, "a string"},
	} {
		if rest, ok := strings.CutPrefix(text, c.begin); ok {
			return withDetail(c.reason, c.claim+" is "+missingOr("not "+c.kind, rest))
		}
	}
	return nil
}

// missingOr returns "missing" if upstream reports that a token does not have the claim. If not,
// it returns the parameter otherwise.
func missingOr(otherwise, rest string) string {
	if rest == "claim not present" {
		return "missing"
	}
	return otherwise
}

// requiredReason returns the reason for an error about a rule that requires the value of a claim.
func (r reasons) requiredReason(text string) error {
	for i := range r.jwt.ClaimValidationRules {
		claim := r.jwt.ClaimValidationRules[i].Claim
		if claim == "" {
			continue
		}
		detail := ""
		switch {
		case text == "oidc: required claim "+claim+" not present in ID token":
			detail = "is missing"
		case strings.HasPrefix(text, "oidc: required claim "+claim+" value does not match. "):
			detail = "does not have the required value"
		case strings.HasPrefix(text, "oidc: parse claim "+claim+": "):
			detail = "is not a string"
		default:
			continue
		}
		return withDetail(ErrRule, fmt.Sprintf("claimValidationRules[%d]: %s %s", i, claim, detail))
	}
	return nil
}

// mappingReason returns the reason for an error from an expression that maps claims.
func (r reasons) mappingReason(text string) error {
	m := &r.jwt.ClaimMappings
	for _, e := range []struct{ begin, path, expression string }{
		{"oidc: error evaluating username claim expression: ", "claimMappings.username", m.Username.Expression},
		{"oidc: error evaluating group claim expression: ", "claimMappings.groups", m.Groups.Expression},
		{"oidc: error evaluating uid claim expression: ", "claimMappings.uid", m.UID.Expression},
	} {
		if rest, ok := strings.CutPrefix(text, e.begin); ok {
			return withDetail(ErrMapping, e.path+": "+celReason(e.expression, rest))
		}
	}
	rest, _ := strings.CutPrefix(text, "oidc: error evaluating extra claim expression: ")
	for i, e := range m.Extra {
		if !strings.HasPrefix(rest, "expression '"+e.ValueExpression+"' ") &&
			!strings.HasPrefix(rest, e.ValueExpression+": ") {
			continue
		}
		if e.Key == tenant.ExtraKey {
			return r.tenantReason(rest)
		}
		return withDetail(ErrMapping, fmt.Sprintf("claimMappings.extra[%d]: %s", i, celReason(e.ValueExpression, rest)))
	}
	return nil
}

// tenantReason returns the reason for an error about the mapping of the tenant.
func (r reasons) tenantReason(text string) error {
	switch {
	case r.tenantFrom == "":
		return ErrTenant
	case strings.Contains(text, "' resulted in error: no such key"):
		return withDetail(ErrTenant, r.tenantFrom+" is missing")
	case strings.Contains(text, "' resulted in error: "):
		return withDetail(ErrTenant, r.tenantFrom+" failed")
	}
	return withDetail(ErrTenant, r.tenantFrom+" is not a string")
}

// ruleReason returns the reason for an error from a CEL validation rule.
func (r reasons) ruleReason(text string) error {
	if rest, ok := strings.CutPrefix(text, "oidc: error evaluating claim validation expression: "); ok {
		for i, rule := range r.jwt.ClaimValidationRules {
			if reason := ruleReason(rest, rule.Expression, rule.Message); reason != "" {
				return withDetail(ErrRule, fmt.Sprintf("claimValidationRules[%d]: %s", i, reason))
			}
		}
		return ErrRule
	}
	if rest, ok := strings.CutPrefix(text, "oidc: error evaluating user info validation rule: "); ok {
		for i, rule := range r.jwt.UserValidationRules {
			if reason := ruleReason(rest, rule.Expression, rule.Message); reason != "" {
				return withDetail(ErrRule, fmt.Sprintf("userValidationRules[%d]: %s", i, reason))
			}
		}
		return ErrRule
	}
	return nil
}

// ruleReason returns the reason why a rule failed, or "" if the error is about another rule.
func ruleReason(text, expression, message string) string {
	switch {
	case expression == "":
		return ""
	case text == fmt.Sprintf("validation expression '%s' failed: %s", expression, message):
		if message == "" {
			return "the expression " + quoteShort(expression) + " is false"
		}
		return message
	case strings.HasPrefix(text, "expression '"+expression+"' resulted in error: "):
		return celReason(expression, text)
	}
	return ""
}

// celReason returns the reason why an expression failed. The reason does not contain the value
// of a claim.
func celReason(expression, text string) string {
	named := "the expression " + quoteShort(expression)
	_, cause, _ := strings.Cut(text, "' resulted in error: ")
	for _, known := range []string{"no such key", "no such overload", "index out of bounds", "invalid argument"} {
		if strings.HasPrefix(cause, known) {
			return named + " failed: " + known
		}
	}
	if strings.Contains(text, "must return") {
		return named + " gives a value of another type"
	}
	return named + " failed"
}

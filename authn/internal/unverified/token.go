// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package unverified tells what can be seen of a bearer token without verifying it: enough to
// choose the source that may claim it, and nothing that may be believed before that source has
// verified the token.
package unverified

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Why a token of a known issuer is not even verified; to be tested with [errors.Is].
var (
	// ErrDuplicate says that a claim stands twice in one object, or a registered claim also in
	// another case: two readers could read two tokens. RFC 7519, section 4 allows to refuse it.
	ErrDuplicate = errors.New("duplicate claim")
	// ErrMalformed says that a token has the form of a JWT and is none.
	ErrMalformed = errors.New("malformed token")
)

// maxDepth bounds the nesting of claims; no known issuer nests deeper than 6.
const maxDepth = 32

// Token is what can be seen of a bearer token. The zero value is an opaque token.
type Token struct {
	// JWT says that the token has the form of a signed (RFC 7515, section 7.1) or encrypted (RFC
	// 7516) JSON Web Token, by its payload or by its header. It must not be sent to a service for opaque
	// tokens.
	JWT bool
	// Issuerless reports whether a signed token, of three parts, has no claim iss, whatever its value.
	// No source can be chosen by the issuer of such a token.
	Issuerless bool
	// Issuer, Subject and ID are the claims iss, sub and jti; empty if absent or no strings. An ID
	// that is a number, as some issuers have it, is its digits as they stand.
	Issuer, Subject, ID string
	// IssuedAt and Expires are the claims iat and exp; zero if absent.
	IssuedAt, Expires time.Time

	badTime   bool // a claim that must be a time is none
	hasIssuer bool // the claim iss is present
}

// Google's tokens have two forms of one issuer (OpenID Connect Core 1.0, section 15.6.2), which
// upstream takes for one too.
const google, googleOlder = "https://accounts.google.com", "accounts.google.com"

// Read looks at a token. With ErrDuplicate the token's Issuer is set, if it has one, so that the
// source that it speaks of can refuse it.
func Read(token string) (Token, error) {
	header, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	switch strings.Count(token, ".") {
	case 2, 4:
	default:
		return Token{}, nil
	}
	// Upstream's authenticators look at nothing but the payload (untrustedIssuer, k8s.io/apiserver
	// plugin/pkg/authenticator/token/oidc, v0.37.1), so no header may hide one.
	data, err := base64.RawURLEncoding.DecodeString(payload)
	data = bytes.Trim(data, " \t\r\n")
	if err != nil || !json.Valid(data) || data[0] != '{' {
		if beginsObject(header) {
			return Token{JWT: true}, ErrMalformed
		}
		return Token{}, nil
	}
	// What follows need not be careful about syntax.
	t := Token{JWT: true}
	err = (&scanner{data: data, claim: t.claim}).object(0)
	if err == nil && t.badTime {
		err = ErrMalformed
	}
	t.Issuerless = err == nil && !t.hasIssuer && strings.Count(token, ".") == 2
	return t, err
}

// IsVisible reports whether a token holds nothing but visible ASCII characters. Some readers skip
// white space within a token (jose.ParseSigned), so that it would be one thing to them and another
// to us; RFC 6750, section 2.1 allows none.
func IsVisible(token string) bool {
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// beginsObject reports whether a header decodes to something that begins as a JSON object does.
func beginsObject(header string) bool {
	if len(header) < 4 {
		return false
	}
	first, err := base64.RawURLEncoding.DecodeString(header[:4])
	return err == nil && strings.HasPrefix(strings.TrimLeft(string(first), " \t\r\n"), "{")
}

// registered are the claims that readers decode by name, some of them in any case (encoding/json).
var registered = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "kubernetes.io"}

// isVariant reports whether a reader that ignores case takes key for a registered claim that it is
// not, by the folding of Unicode too ("i\u017fs").
func isVariant(key string) bool {
	return slices.ContainsFunc(registered, func(r string) bool { return key != r && strings.EqualFold(key, r) })
}

func (t *Token) claim(key string, raw []byte) {
	switch key {
	case "iss":
		t.hasIssuer = true
		if t.Issuer = text(raw); t.Issuer == googleOlder {
			t.Issuer = google
		}
	case "sub":
		t.Subject = text(raw)
	case "jti":
		if t.ID = text(raw); raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' {
			t.ID = string(raw)
		}
	case "iat":
		t.IssuedAt = t.time(raw)
	case "exp":
		t.Expires = t.time(raw)
	case "nbf":
		if string(raw) != "null" { // as if absent, as in upstream (RFC 7519, section 4.1.5)
			t.time(raw)
		}
	}
}

// text is the content of a JSON string; empty if it is none.
func text(raw []byte) string {
	if raw[0] != '"' {
		return ""
	}
	if !bytes.ContainsRune(raw, '\\') && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // of a valid string
	return s
}

// time is a JSON number of seconds (RFC 7519, section 2), rounded down. Some readers take texts
// too, and would know of an end that we do not.
func (t *Token) time(raw []byte) time.Time {
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(seconds) > 1<<40 {
		t.badTime = true
		return time.Time{}
	}
	return time.Unix(int64(math.Floor(seconds)), 0)
}

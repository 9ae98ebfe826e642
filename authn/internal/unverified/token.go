// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package unverified reads a bearer token without verifying it. The result is only for choosing the
// source that may claim the token. It MUST NOT be trusted before that source has verified the
// token.
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

// The errors that [Read] returns. Test for them with [errors.Is].
var (
	// ErrDuplicate reports that an object contains a claim twice, or a registered claim in
	// another case. Different parsers could read different values. RFC 7519, section 4 allows
	// the rejection of the token.
	ErrDuplicate = errors.New("duplicate claim")
	// ErrMalformed reports that a token has the form of a JWT, but its payload is not valid.
	ErrMalformed = errors.New("malformed token")
)

// maxDepth limits the nesting of claims. No known issuer uses more than 6 levels.
const maxDepth = 32

// Token is the readable content of a bearer token. The zero value is an opaque token.
type Token struct {
	// JWT reports whether the payload is a JSON object or the header begins like one. Signed
	// (RFC 7515, section 7.1) and encrypted (RFC 7516) JSON Web Tokens have this form. A token
	// of this form MUST NOT be sent to a service for opaque tokens.
	JWT bool
	// Issuerless reports whether a token has three parts and a valid payload without the claim
	// iss. The issuer then cannot select the source of the token.
	Issuerless bool
	// Issuer, Subject and ID are the claims iss, sub and jti. They are empty if they are missing or
	// not strings. A numeric ID, which some issuers use, is stored as its digits.
	Issuer, Subject, ID string
	// IssuedAt and Expires are the claims iat and exp. They are zero if missing.
	IssuedAt, Expires time.Time

	badTime   bool // a claim that must be a time has another type
	hasIssuer bool // the claim iss is present
}

// Google's tokens contain their issuer in one of two forms (OpenID Connect Core 1.0, section
// 15.6.2). Upstream also treats both forms as equal.
const google, googleOlder = "https://accounts.google.com", "accounts.google.com"

// Read parses a token. If it fails with [ErrDuplicate], the Issuer of the result is still set if
// the token has an issuer. The error can then be reported for the source of this issuer.
func Read(token string) (Token, error) {
	header, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	switch strings.Count(token, ".") {
	case 2, 4:
	default:
		return Token{}, nil
	}
	// Upstream's authenticators read only the payload (untrustedIssuer, k8s.io/apiserver
	// plugin/pkg/authenticator/token/oidc, v0.37.1), so the payload is read even if the header is
	// invalid.
	data, err := base64.RawURLEncoding.DecodeString(payload)
	data = bytes.Trim(data, " \t\r\n")
	if err != nil || !json.Valid(data) || data[0] != '{' {
		if beginsObject(header) {
			return Token{JWT: true}, ErrMalformed
		}
		return Token{}, nil
	}
	// From here on, the payload is a valid JSON object.
	t := Token{JWT: true}
	err = (&scanner{data: data, onClaim: t.setClaim}).object(0)
	if err == nil && t.badTime {
		err = ErrMalformed
	}
	t.Issuerless = err == nil && !t.hasIssuer && strings.Count(token, ".") == 2
	return t, err
}

// IsVisible reports whether a token contains only visible ASCII characters. Some parsers ignore
// white space within a token (jose.ParseSigned), so they would treat two different strings as the
// same token. RFC 6750, section 2.1 allows no white space.
func IsVisible(token string) bool {
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// beginsObject reports whether a header, after base64url decoding, begins like a JSON object.
func beginsObject(header string) bool {
	if len(header) < 4 {
		return false
	}
	first, err := base64.RawURLEncoding.DecodeString(header[:4])
	return err == nil && strings.HasPrefix(strings.TrimLeft(string(first), " \t\r\n"), "{")
}

// registered lists the claims that parsers decode by name. Some parsers ignore the case of names
// (encoding/json).
var registered = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "kubernetes.io"}

// isVariant reports whether key is a registered claim in another case. A parser that ignores
// case would treat it as that claim. This includes Unicode case folding ("i\u017fs").
func isVariant(key string) bool {
	return slices.ContainsFunc(registered, func(r string) bool { return key != r && strings.EqualFold(key, r) })
}

func (t *Token) setClaim(key string, raw []byte) {
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
		if string(raw) != "null" { // null means absent, as in upstream (RFC 7519, section 4.1.5)
			t.time(raw)
		}
	}
}

// text returns the content of a JSON string, or "" for another type.
func text(raw []byte) string {
	if raw[0] != '"' {
		return ""
	}
	if !bytes.ContainsRune(raw, '\\') && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // the string is valid
	return s
}

// time returns the time of a JSON number of seconds (RFC 7519, section 2), rounded down. For any
// other value, it sets badTime, because some parsers accept strings and would use an expiry that
// we ignore.
func (t *Token) time(raw []byte) time.Time {
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(seconds) > 1<<40 {
		t.badTime = true
		return time.Time{}
	}
	return time.Unix(int64(math.Floor(seconds)), 0)
}

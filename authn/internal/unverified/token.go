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
	// 7516) JSON Web Token. It is then never to be shown to a service for opaque tokens.
	JWT bool
	// Issuer, Subject and ID are the claims iss, sub and jti; empty if absent or no strings.
	Issuer, Subject, ID string
	// IssuedAt and Expires are the claims iat and exp; zero if absent or no times.
	IssuedAt, Expires time.Time
}

// Read looks at a token. With ErrDuplicate the token's Issuer is set, if it has one, so that the
// source that it speaks of can refuse it.
func Read(token string) (Token, error) {
	header, rest, found := strings.Cut(token, ".")
	dots := strings.Count(rest, ".")
	if !found || dots != 1 && dots != 3 || !beginsObject(header) {
		return Token{}, nil
	}
	t := Token{JWT: true}
	payload, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return t, ErrMalformed
	}
	// What follows need not be careful about syntax.
	if data = bytes.Trim(data, " \t\r\n"); !json.Valid(data) || data[0] != '{' {
		return t, ErrMalformed
	}
	return t, (&scanner{data: data, claim: t.claim}).object(0)
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
		t.Issuer = text(raw)
	case "sub":
		t.Subject = text(raw)
	case "jti":
		t.ID = text(raw)
	case "iat":
		t.IssuedAt = numericDate(raw)
	case "exp":
		t.Expires = numericDate(raw)
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

// numericDate is a JSON number of seconds (RFC 7519, section 2), rounded down; zero if it is none.
func numericDate(raw []byte) time.Time {
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(seconds) > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(math.Floor(seconds)), 0)
}

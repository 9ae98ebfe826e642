// Package unverified tells what can be seen of a bearer token without verifying it: enough to
// choose the source that may claim it, and nothing that may be believed before that source has
// verified the token.
package unverified

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"time"
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

// Read looks at a token. With an error the token's Issuer may still be set, so that the source that
// it speaks of can refuse it.
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
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return t, ErrMalformed
	}
	err = t.claims(dec)
	if _, more := dec.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = ErrMalformed
	}
	return t, err
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

// claims reads the members of the outermost object. A duplicate is remembered to the end, so that
// the issuer is known whatever stands before it.
func (t *Token) claims(dec *json.Decoder) error {
	var seen names
	var problem error
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return ErrMalformed
		}
		key, _ := name.(string)
		if seen.has(key) || isVariant(key) {
			problem = ErrDuplicate
		}
		value, err := dec.Token()
		if err != nil {
			return ErrMalformed
		}
		if delim, nested := value.(json.Delim); nested {
			switch err := walk(dec, delim, 1); {
			case errors.Is(err, ErrDuplicate):
				problem = err
			case err != nil:
				return err
			}
			continue
		}
		t.claim(key, value)
	}
	if _, err := dec.Token(); err != nil {
		return ErrMalformed
	}
	return problem
}

func (t *Token) claim(key string, value json.Token) {
	text, _ := value.(string)
	switch key {
	case "iss":
		t.Issuer = text
	case "sub":
		t.Subject = text
	case "jti":
		t.ID = text
	case "iat":
		t.IssuedAt = numericDate(value)
	case "exp":
		t.Expires = numericDate(value)
	}
}

// numericDate is a JSON number of seconds (RFC 7519, section 2), rounded down; zero if it is none.
func numericDate(value json.Token) time.Time {
	number, ok := value.(json.Number)
	if !ok {
		return time.Time{}
	}
	seconds, err := number.Float64()
	if err != nil || math.Abs(seconds) > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(math.Floor(seconds)), 0)
}

// walk passes over an object or array whose delimiter was read and looks for duplicate members.
func walk(dec *json.Decoder, open json.Delim, depth int) error {
	if depth > maxDepth {
		return ErrMalformed
	}
	var seen names
	var problem error
	for dec.More() {
		value, err := dec.Token()
		if err != nil {
			return ErrMalformed
		}
		if open == '{' {
			if key, _ := value.(string); seen.has(key) {
				problem = ErrDuplicate
			}
			if value, err = dec.Token(); err != nil {
				return ErrMalformed
			}
		}
		if delim, nested := value.(json.Delim); nested {
			switch err := walk(dec, delim, depth+1); {
			case errors.Is(err, ErrDuplicate):
				problem = err
			case err != nil:
				return err
			}
		}
	}
	if _, err := dec.Token(); err != nil {
		return ErrMalformed
	}
	return problem
}

// names are the names of one object's members.
type names struct {
	few  []string
	many map[string]struct{}
}

// fewNames is up to how many names are compared one by one, which is faster than hashing them; an
// object with a hundred thousand members must not be slow either.
const fewNames = 32

// has reports whether the name was seen before, and remembers it.
func (n *names) has(name string) bool {
	if n.many == nil && len(n.few) < fewNames {
		if slices.Contains(n.few, name) {
			return true
		}
		n.few = append(n.few, name)
		return false
	}
	if n.many == nil {
		n.many = make(map[string]struct{}, 2*fewNames)
		for _, seen := range n.few {
			n.many[seen] = struct{}{}
		}
	}
	_, seen := n.many[name]
	n.many[name] = struct{}{}
	return seen
}

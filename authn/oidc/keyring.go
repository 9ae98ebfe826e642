// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

const (
	// maxCandidates is the maximum number of keys that are tried for one token. For a token with
	// a key ID (kid), usually only one key is tried. Any client can send a token without a kid.
	// Without the limit, all keys of the token's algorithm would be tried.
	maxCandidates = 32
	// maxLoggedKeys is the maximum number of unusable keys that the log names.
	maxLoggedKeys = 8
	// maxQuotedBytes is the size to which a provider's text is truncated in the log and in errors.
	maxQuotedBytes = 128
)

// keyring has the keys of one fetched key set. It is not changed after the fetch.
type keyring struct {
	fetched         time.Time
	keys            []*verifier
	byID            map[string][]*verifier
	unusableReasons map[string]string // the reason why a key cannot verify tokens, keyed by kid
	unusableCount   int               // the number of unusable keys, except encryption keys
	unusableNames   []string          // the first unusable keys and the reasons, for the log
}

// verifier is a key that verifies signatures.
type verifier struct {
	id         string
	public     any
	algorithms []jose.SignatureAlgorithm
}

// rawKey has the members of a JSON Web Key (RFC 7517) that determine whether it can verify tokens.
type rawKey struct {
	Type      string          `json:"kty"`
	ID        string          `json:"kid"`
	Use       string          `json:"use"`
	Algorithm string          `json:"alg"`
	D         json.RawMessage `json:"d"`
	K         json.RawMessage `json:"k"`
}

// newKeyring parses the keys of a set. It skips unusable keys (RFC 7517, section 5).
func newKeyring(set []json.RawMessage) *keyring {
	r := &keyring{byID: map[string][]*verifier{}, unusableReasons: map[string]string{}}
	for i, raw := range set {
		var head rawKey
		if json.Unmarshal(raw, &head) != nil {
			r.addUnusable(i, "", "it is not a JSON Web Key")
			continue
		}
		if head.Use == "enc" { // an encryption key is valid, but not for tokens
			r.unusableReasons[head.ID] = "it is for encryption"
			continue
		}
		key, reason := newVerifier(raw, &head)
		if reason != "" {
			r.addUnusable(i, head.ID, reason)
			continue
		}
		r.keys = append(r.keys, key)
		r.byID[key.id] = append(r.byID[key.id], key)
	}
	return r
}

func (r *keyring) addUnusable(index int, id, reason string) {
	r.unusableCount++
	name := "keys[" + strconv.Itoa(index) + "]"
	if id != "" {
		r.unusableReasons[id] = reason
		name = quoteShort(id)
	}
	if len(r.unusableNames) < maxLoggedKeys {
		r.unusableNames = append(r.unusableNames, name+": "+reason)
	}
}

// describeUnusable describes the unusable keys for the log. It returns "" if there are none.
func (r *keyring) describeUnusable() string {
	text := strings.Join(r.unusableNames, ", ")
	if more := r.unusableCount - len(r.unusableNames); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// newVerifier returns a key, or the reason why it is unusable. It ignores the certificates of the
// key, because the key is trusted based on the URL from which it was fetched.
func newVerifier(raw json.RawMessage, head *rawKey) (key *verifier, reason string) {
	if head.D != nil || head.K != nil {
		return nil, "it is not a public key"
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // head was decoded, so raw is an object
	for _, name := range []string{"x5c", "x5t", "x5t#S256", "x5u"} {
		delete(members, name)
	}
	plain, err := json.Marshal(members)
	var parsed jose.JSONWebKey
	if err == nil {
		err = json.Unmarshal(plain, &parsed)
	}
	switch {
	case err != nil && head.Type != "EC" && head.Type != "RSA":
		return nil, "its type " + quoteShort(head.Type) + " is not supported"
	case err != nil || !parsed.Valid() || !parsed.IsPublic():
		return nil, "its parameters are invalid"
	}
	algorithms := algorithmsOf(parsed.Key)
	if algorithms == nil {
		return nil, "its type or curve is not supported"
	}
	if head.Algorithm != "" {
		alg := jose.SignatureAlgorithm(head.Algorithm)
		if !slices.Contains(algorithms, alg) {
			return nil, "its alg " + quoteShort(head.Algorithm) + " is not a signature algorithm for this key"
		}
		algorithms = []jose.SignatureAlgorithm{alg}
	}
	return &verifier{id: head.ID, public: parsed.Key, algorithms: algorithms}, ""
}

// algorithmsOf returns the algorithms that a key can verify (RFC 7518, section 3.1). It returns
// none for a key that upstream does not support.
func algorithmsOf(public any) []jose.SignatureAlgorithm {
	var all []jose.SignatureAlgorithm
	switch p := public.(type) {
	case *rsa.PublicKey:
		for _, name := range oidc.AllValidSigningAlgorithms() {
			if !strings.HasPrefix(name, "ES") {
				all = append(all, jose.SignatureAlgorithm(name))
			}
		}
	case *ecdsa.PublicKey:
		switch p.Curve.Params().BitSize {
		case 256:
			all = append(all, jose.ES256)
		case 384:
			all = append(all, jose.ES384)
		case 521:
			all = append(all, jose.ES512)
		}
	}
	return all
}

// candidates returns the keys that may have signed a token, at most maxCandidates. If the token has
// a kid, it returns only keys with this ID. more reports whether further keys may have signed the
// token.
func (r *keyring) candidates(header *jose.Header) (keys []*verifier, more bool) {
	among := r.keys
	if header.KeyID != "" {
		among = r.byID[header.KeyID]
	}
	for _, key := range among {
		if !slices.Contains(key.algorithms, jose.SignatureAlgorithm(header.Algorithm)) {
			continue
		}
		if len(keys) == maxCandidates {
			return keys, true
		}
		keys = append(keys, key)
	}
	return keys, false
}

// lacksKey reports whether r has no key that may have signed a token.
func (r *keyring) lacksKey(signed *jose.JSONWebSignature) bool {
	keys, _ := r.candidates(&signed.Signatures[0].Header)
	return len(keys) == 0
}

// verify returns the payload of a token that one of the keys signed.
func (r *keyring) verify(ctx context.Context, signed *jose.JSONWebSignature) ([]byte, error) {
	header := &signed.Signatures[0].Header
	keys, more := r.candidates(header)
	for _, key := range keys {
		if ctx.Err() != nil {
			return nil, ErrSignature
		}
		if payload, err := signed.Verify(key.public); err == nil {
			return payload, nil
		}
	}
	switch {
	case more:
		return nil, fmt.Errorf("%w: the issuer has more than %d keys, and the token does not name the key (kid)",
			ErrNoKey, maxCandidates)
	case len(keys) > 0:
		return nil, ErrSignature
	}
	return nil, r.missing(header)
}

// missing returns the error for a token for which candidates returns no key. The error may contain
// the algorithm of the token. It contains the kid only if the issuer has a key with this ID.
func (r *keyring) missing(header *jose.Header) error {
	if reason := r.unusableReasons[header.KeyID]; header.KeyID != "" && reason != "" {
		return fmt.Errorf("%w: the key %s cannot verify it: %s", ErrNoKey, quoteShort(header.KeyID), reason)
	}
	if named := r.byID[header.KeyID]; header.KeyID != "" && len(named) > 0 {
		return fmt.Errorf("%w: the key %s is for the algorithms %v, and not for %s", ErrNoKey, quoteShort(header.KeyID),
			named[0].algorithms, header.Algorithm)
	}
	if header.KeyID != "" {
		return fmt.Errorf("%w: no key of the issuer has the kid of the token (usable keys: %d)", ErrNoKey, len(r.keys))
	}
	return fmt.Errorf("%w: no key of the issuer is for %s (usable keys: %d)", ErrNoKey, header.Algorithm, len(r.keys))
}

// quoteShort returns a provider's text for the log or an error, quoted and truncated.
func quoteShort(text string) string {
	if len(text) > maxQuotedBytes {
		text = strings.ToValidUTF8(text[:maxQuotedBytes], "") + "..."
	}
	return strconv.Quote(text)
}

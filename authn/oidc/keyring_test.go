// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/oidc"
)

// publish makes an issuer serve a key set.
func publish(issuer *authntest.Issuer, set ...any) {
	issuer.Fail(func(w http.ResponseWriter, r *http.Request) {
		document := map[string]any{"issuer": issuer.URL(), "jwks_uri": issuer.URL() + "/keys"}
		if r.URL.Path == "/keys" {
			document = map[string]any{"keys": set}
		}
		_ = json.NewEncoder(w).Encode(document)
	})
}

// with returns a key with additional members.
func with(key *authntest.Key, members map[string]any) map[string]any {
	jwk := key.JWK()
	maps.Copy(jwk, members)
	return jwk
}

// repeatKeys returns a set of n keys with different IDs and the same parameters, followed by last.
func repeatKeys(n int, last map[string]any) (set []any) {
	key := authntest.MustKey("ES256")
	for i := range n {
		set = append(set, with(key, map[string]any{"kid": fmt.Sprint("other", i)}))
	}
	return append(set, last)
}

// TestLargeSets checks that a key is found by its ID in a set of any size. The number of keys to
// try is limited only for a token without a key ID.
func TestLargeSets(t *testing.T) {
	key := authntest.MustKey("ES256")
	for _, others := range []int{0, 31, 32, 40, 119} {
		issuer, a, _ := open(t)
		publish(issuer, repeatKeys(others, key.JWK())...)
		refusedWith(t, a, key.MustSign(claims(issuer.URL())), nil)

		payload, err := json.Marshal(claims(issuer.URL()))
		if err != nil {
			t.Fatal(err)
		}
		header := key.Header()
		delete(header, "kid")
		token, err := key.Sign(header, payload)
		if err != nil {
			t.Fatal(err)
		}
		var want error
		if others >= 32 {
			want = oidc.ErrNoKey
		}
		refusedWith(t, a, token, want)
	}
}

// TestKeysWithoutIDOfOtherTypes checks that keys for other algorithms are not tried for a token
// without a key ID, and do not count toward the limit.
func TestKeysWithoutIDOfOtherTypes(t *testing.T) {
	key, rsa := authntest.MustKey("ES256"), authntest.MustKey("RS256")
	issuer, a, _ := open(t)
	set := []any{}
	for i := range 40 {
		set = append(set, with(rsa, map[string]any{"kid": fmt.Sprint(i)}))
	}
	publish(issuer, append(set, key.JWK())...)
	payload, err := json.Marshal(claims(issuer.URL()))
	if err != nil {
		t.Fatal(err)
	}
	token, err := key.Sign(map[string]any{"alg": "ES256"}, payload)
	if err != nil {
		t.Fatal(err)
	}
	refusedWith(t, a, token, nil)
}

// TestKeySetSizeLimit checks the size limit of a set in bytes.
func TestKeySetSizeLimit(t *testing.T) {
	key := authntest.MustKey("ES256")
	issuer, a, _ := open(t)
	publish(issuer, repeatKeys(0, with(key, map[string]any{"padding": strings.Repeat("x", 1<<20)}))...)
	refusedWith(t, a, key.MustSign(claims(issuer.URL())), oidc.ErrKeys)
}

// negativeSerial is the beginning of a certificate with a negative serial number, which x509 does
// not parse.
const negativeSerial = "MAwwCgIB/zAFBgMqAwQ="

// TestUnusableKeys checks that additional members do not make a key unusable. The log and the error
// name an unusable key and the reason.
func TestUnusableKeys(t *testing.T) {
	ec, rsa := authntest.MustKey("ES256"), authntest.MustKey("RS256")
	modulus := rsa.JWK()["n"].(string)
	for name, c := range map[string]struct {
		key     *authntest.Key
		members map[string]any
		why     string // empty if the key is usable
	}{
		"x5c that does not parse": {ec, map[string]any{"x5c": []string{negativeSerial}}, ""},
		"x5c of another key":      {ec, map[string]any{"x5c": []string{"AA=="}, "x5t": "AAAA", "x5u": ":"}, ""},
		"no alg":                  {rsa, map[string]any{"alg": nil}, ""},
		"an empty alg":            {rsa, map[string]any{"alg": ""}, ""},
		"alg of another hash": {
			rsa, map[string]any{"alg": "RS512"}, `is for the algorithms [RS512], and not for RS256`,
		},
		"alg of another type": {
			ec, map[string]any{"alg": "RS256"}, `its alg "RS256" is not a signature algorithm for this key`,
		},
		"an unknown alg": {
			rsa, map[string]any{"alg": "RSA"}, `its alg "RSA" is not a signature algorithm for this key`,
		},
		"alg for encryption":        {rsa, map[string]any{"alg": "RSA-OAEP"}, `its alg "RSA-OAEP" is not`},
		"padded modulus":            {rsa, map[string]any{"n": modulus + "=="}, "its parameters are invalid"},
		"no modulus":                {rsa, map[string]any{"n": nil}, "its parameters are invalid"},
		"a point outside the curve": {ec, map[string]any{"x": "AAAA"}, "its parameters are invalid"},
		"an unknown type":           {ec, map[string]any{"kty": "LWE"}, `its type "LWE" is not supported`},
		"Ed25519":                   {ec, map[string]any{"kty": "OKP", "crv": "Ed25519", "y": nil}, "is not supported"},
		"a private key":             {ec, map[string]any{"d": "SECRET"}, "it is not a public key"},
		"a shared secret":           {ec, map[string]any{"kty": "oct", "k": "SECRET"}, "it is not a public key"},
		"a key for encryption":      {rsa, map[string]any{"use": "enc"}, "it is for encryption"},
		"an unknown use":            {rsa, map[string]any{"use": "tls"}, ""},
		"an unknown member":         {rsa, map[string]any{"exp": 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			log, end, err := authntest.CaptureLog(0)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			issuer, a, _ := open(t)
			publish(issuer, with(c.key, c.members), authntest.MustKey("ES256").JWK())
			_, ok, err := a.AuthenticateToken(t.Context(), c.key.MustSign(claims(issuer.URL())))
			switch {
			case c.why == "":
				if !ok || err != nil || strings.Contains(log.String(), "unusable") {
					t.Errorf("%t, %v, log: %s", ok, err, log)
				}
				return
			case !errors.Is(err, oidc.ErrNoKey) || !strings.Contains(err.Error(), c.key.ID) ||
				!strings.Contains(err.Error(), c.why):
				t.Errorf("%v; want an error that contains %s", err, c.why)
			}
			logged := strings.Contains(c.why, "encryption") || strings.Contains(c.why, "and not for")
			if text := log.String(); strings.Contains(text, c.key.ID) == logged ||
				!logged && !strings.Contains(text, "unusable=1") || strings.Contains(text, "SECRET") {
				t.Errorf("log: %s", text)
			}
		})
	}
}

// TestUnusableKeysAreLoggedOnce checks that one log entry names the unusable keys of a set.
// Fetching the same set again adds no entry.
func TestUnusableKeysAreLoggedOnce(t *testing.T) {
	key := authntest.MustKey("ES256")
	log, end, err := authntest.CaptureLog(0)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	issuer, a, clock := open(t)
	set := repeatKeys(0, key.JWK())
	for i := range 20 {
		set = append(set, map[string]any{"kty": "LWE", "kid": fmt.Sprint("lattice", i)})
	}
	publish(issuer, append(set, nil, map[string]any{"kty": "EC", "kid": 7})...)
	for range 3 {
		refusedWith(t, a, key.MustSign(claims(issuer.URL())), nil)
		clock.Advance(6 * 60e9)
	}
	text := log.String()
	for _, want := range []string{"usable=1", "unusable=22", "lattice0", "and 14 more", issuer.URL()} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	if n := strings.Count(text, "unusable=22"); n != 1 {
		t.Errorf("%d lines: %s", n, text)
	}
}

// TestNoKeyOrNoSignature checks that a missing key and a wrong signature have different reasons. No
// reason contains a kid that the issuer does not have.
func TestNoKeyOrNoSignature(t *testing.T) {
	key, other := authntest.MustKey("ES256"), authntest.MustKey("ES256")
	issuer, a, _ := open(t, key)
	payload, err := json.Marshal(claims(issuer.URL()))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		header map[string]any
		want   error
	}{
		"the issuer's kid": {map[string]any{"alg": "ES256", "kid": key.ID}, oidc.ErrSignature},
		"another kid":      {map[string]any{"alg": "ES256", "kid": "CANARY"}, oidc.ErrNoKey},
		"no kid":           {map[string]any{"alg": "ES256"}, oidc.ErrSignature},
		"another type":     {map[string]any{"alg": "RS256"}, oidc.ErrNoKey},
		"a numeric kid":    {map[string]any{"alg": "ES256", "kid": 7}, oidc.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := other.Sign(c.header, payload)
			if err != nil {
				t.Fatal(err)
			}
			_, ok, err := a.AuthenticateToken(t.Context(), token)
			if ok || !errors.Is(err, c.want) || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%t, %v; want %v", ok, err, c.want)
			}
		})
	}
}

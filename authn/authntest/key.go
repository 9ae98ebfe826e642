// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package authntest creates valid and forged JSON Web Tokens and their issuers, for tests and for
// the scenario runner. It does not use a JWT library, because such libraries refuse to create some
// of the forged tokens.
package authntest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
)

// Key signs tokens with one algorithm.
type Key struct {
	// ID is the key ID, derived as in kube-apiserver.
	ID string
	// Algorithm is ES256 or RS256.
	Algorithm string
	// Private is an *ecdsa.PrivateKey or an *rsa.PrivateKey.
	Private crypto.Signer
}

// NewKey creates a key for ES256 or RS256.
func NewKey(algorithm string) (*Key, error) {
	k := &Key{Algorithm: algorithm}
	var err error
	if algorithm == "RS256" {
		k.Private, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		k.Private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, err
	}
	return k, k.setID()
}

func (k *Key) setID() error {
	der, err := x509.MarshalPKIXPublicKey(k.Private.Public())
	sum := sha256.Sum256(der)
	k.ID = encode(sum[:])
	return err
}

// LoadKey reads a PEM-encoded private ECDSA key.
func LoadKey(path string) (*Key, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- a test's own file
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	private, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	k := &Key{Algorithm: "ES256", Private: private}
	return k, k.setID()
}

// MustKey is like [NewKey], but panics on an error. It is for tests.
func MustKey(algorithm string) *Key {
	k, err := NewKey(algorithm)
	if err != nil {
		panic(err)
	}
	return k
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// PublicPEM returns the PEM-encoded public key.
func (k *Key) PublicPEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.Private.Public())
	if err != nil {
		panic(err) // this package created the key
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// WriteFile writes the public key to a file.
func (k *Key) WriteFile(path string) error { return os.WriteFile(path, k.PublicPEM(), 0o600) }

// Header returns the header of tokens that the key signs.
func (k *Key) Header() map[string]any {
	return map[string]any{"alg": k.Algorithm, "kid": k.ID, "typ": "JWT"}
}

// Sign returns a signed token (RFC 7515, section 7.1) with the given header and payload, which need
// not be valid.
func (k *Key) Sign(header map[string]any, payload []byte) (string, error) {
	input, err := signingInput(header, payload)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(input))
	signature, err := k.signature(sum[:])
	return input + "." + encode(signature), err
}

// MustSign returns a signed token with the given claims and the header of [Key.Header]. It panics
// on an error. It is for tests.
func (k *Key) MustSign(claims map[string]any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	token, err := k.Sign(k.Header(), payload)
	if err != nil {
		panic(err)
	}
	return token
}

func (k *Key) signature(sum []byte) ([]byte, error) {
	private, ok := k.Private.(*ecdsa.PrivateKey)
	if !ok {
		return k.Private.Sign(rand.Reader, sum, crypto.SHA256)
	}
	r, s, err := ecdsa.Sign(rand.Reader, private, sum)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 64) // RFC 7518, section 3.4
	r.FillBytes(out[:32])
	s.FillBytes(out[32:])
	return out, nil
}

// Unsigned returns a token with the given header and payload and an empty signature.
func Unsigned(header map[string]any, payload []byte) (string, error) {
	input, err := signingInput(header, payload)
	return input + ".", err
}

// SignHMAC returns a forged token. Its signature is an HMAC with the PEM-encoded public key as the
// shared secret.
func (k *Key) SignHMAC(header map[string]any, payload []byte) (string, error) {
	input, err := signingInput(header, payload)
	h := hmac.New(sha256.New, k.PublicPEM())
	_, _ = h.Write([]byte(input))
	return input + "." + encode(h.Sum(nil)), err
}

func signingInput(header map[string]any, payload []byte) (string, error) {
	head, err := json.Marshal(header)
	return encode(head) + "." + encode(payload), err
}

// JWK returns the public key as a JSON Web Key (RFC 7518, section 6).
func (k *Key) JWK() map[string]any {
	jwk := map[string]any{"use": "sig", "kid": k.ID, "alg": k.Algorithm}
	switch public := k.Private.Public().(type) {
	case *ecdsa.PublicKey:
		point, err := public.Bytes() // 4, followed by the two coordinates (SEC 1, section 2.3.3)
		if err != nil {
			panic(err) // this package created the key
		}
		half := (len(point) - 1) / 2
		jwk["kty"], jwk["crv"] = "EC", "P-256"
		jwk["x"], jwk["y"] = encode(point[1:1+half]), encode(point[1+half:])
	case *rsa.PublicKey:
		jwk["kty"], jwk["n"], jwk["e"] = "RSA", encode(public.N.Bytes()), encode(big.NewInt(int64(public.E)).Bytes())
	}
	return jwk
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubetenant/kubetenant/internal/reload"
)

// algorithms are the algorithms that [algorithmOf] can return.
var algorithms = []string{"RS256", "ES256", "ES384", "ES512"}

// minRSABits is the minimum size of an RSA key (NIST SP 800-131A).
const minRSABits = 2048

// Keys are the public keys of one or more files. Each file may contain several keys. To rotate
// keys, add a new key before it signs tokens, and remove the old key after its tokens have
// expired. Create Keys with [OpenKeys]. It is safe for concurrent use.
type Keys struct {
	files []*reload.File[[]key]
}

// key verifies signatures of one algorithm.
type key struct {
	id        string // derived as in kube-apiserver
	algorithm string
	public    crypto.PublicKey
}

// OpenKeys reads PEM-encoded public keys, private keys or certificates. It uses only the public
// part of a private key. The error names the file. Changes take effect while [Keys.Run] runs.
func OpenKeys(paths []string, report reload.Report) (*Keys, error) {
	k := &Keys{}
	for _, path := range paths {
		file, err := reload.Open(path, parseKeys, report)
		if err != nil {
			return nil, err
		}
		k.files = append(k.files, file)
	}
	return k, nil
}

// Run starts loading new versions of the files until ctx ends. It does not block.
func (k *Keys) Run(ctx context.Context) {
	for _, file := range k.files {
		go file.Run(ctx)
	}
}

func parseKeys(data []byte) ([]key, error) {
	parsed, err := keyutil.ParsePublicKeysPEM(data)
	if err != nil {
		return nil, errors.New("no PEM-encoded public keys found") // the library's error may quote the file
	}
	keys := make([]key, 0, len(parsed))
	for i, public := range parsed {
		algorithm, err := algorithmOf(public)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		// The key ID is the same as in keyIDFromPublicKey (k8s.io/kubernetes
		// pkg/serviceaccount/jwt.go, v1.37.1).
		sum := sha256.Sum256(der)
		keys = append(keys, key{base64.RawURLEncoding.EncodeToString(sum[:]), algorithm, public})
	}
	return keys, nil
}

// algorithmOf returns the algorithm that kube-apiserver uses to sign with a key of this type
// (k8s.io/kubernetes pkg/serviceaccount/jwt.go, v1.37.1).
func algorithmOf(public crypto.PublicKey) (string, error) {
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < minRSABits {
			return "", fmt.Errorf("an RSA key must have at least %d bits", minRSABits)
		}
		return jwt.SigningMethodRS256.Name, nil
	case *ecdsa.PublicKey:
		methods := []*jwt.SigningMethodECDSA{jwt.SigningMethodES256, jwt.SigningMethodES384, jwt.SigningMethodES512}
		for _, method := range methods {
			if p.Curve.Params().BitSize == method.CurveBits {
				return method.Name, nil
			}
		}
	}
	return "", errors.New("must be an RSA key, or an ECDSA key with curve P-256, P-384 or P-521")
}

// verificationKeys returns the keys that may have signed the token. The keys match the token's
// algorithm, and its key ID if it has one.
func (k *Keys) verificationKeys(token *jwt.Token) (any, error) {
	id, isText := token.Header["kid"].(string)
	if _, stated := token.Header["kid"]; stated && !isText {
		return nil, ErrMalformed
	}
	if _, critical := token.Header["crit"]; critical {
		return nil, ErrMalformed // RFC 7515, section 4.1.11: reject unknown extensions
	}
	algorithm := token.Method.Alg()
	if !slices.Contains(algorithms, algorithm) {
		return nil, ErrAlgorithm
	}
	set := jwt.VerificationKeySet{}
	for _, file := range k.files {
		for _, key := range *file.Load() {
			if key.algorithm == algorithm && (id == "" || id == key.id) {
				set.Keys = append(set.Keys, key.public)
			}
		}
	}
	if len(set.Keys) == 0 {
		return nil, ErrUnknownKey
	}
	return set, nil
}

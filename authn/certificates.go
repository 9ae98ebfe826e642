// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"net/http"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// The errors for certificates that are rejected before any source is called. Test for them with
// [errors.Is].
var (
	// ErrChain reports that too many or too large certificates were presented. The verification of a
	// long chain can take seconds of CPU time.
	ErrChain = errors.New("the client presented too many or too large certificates")
	// ErrEncoding reports that bytes of a certificate can be changed without invalidating its
	// signature. A revocation by fingerprint would not apply to the changed certificate.
	ErrEncoding = errors.New("the certificate contains bytes that are not signed")
)

const (
	// maxCertificates and maxCertificateBytes are the maximum number and the maximum total size of the
	// certificates that a client presents. Chains on the public web have up to 5 certificates of about
	// 2 KiB.
	maxCertificates     = 8
	maxCertificateBytes = 32 << 10
)

// certificateSource is the source in errors about presented certificates.
const certificateSource = "client certificate"

// withCertificateChecks rejects requests with too many, too large or ambiguously encoded
// certificates. It runs before all sources and BuiltIn, even if the request has other credentials.
func withCertificateChecks(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if req.TLS != nil {
			if err := checkPresented(req.TLS.PeerCertificates); err != nil {
				return nil, false, &refusal{source: certificateSource, err: err}
			}
		}
		return next.AuthenticateRequest(req)
	})
}

func checkPresented(certificates []*x509.Certificate) error {
	size := 0
	for _, c := range certificates {
		size += len(c.Raw)
	}
	if len(certificates) > maxCertificates || size > maxCertificateBytes {
		return ErrChain
	}
	for _, c := range certificates {
		if _, ok := readCertificate(c.Raw); !ok {
			return ErrEncoding
		}
	}
	return nil
}

// signedPart has the three parts of a certificate (RFC 5280, section 4.1). The signature covers
// only the bytes in the field signed.
type signedPart struct {
	signed, algorithm, signature cryptobyte.String
}

// readCertificate splits a certificate into its parts. It returns false if bytes could be changed
// without invalidating the signature. Go's parser already rejects encodings that are not the
// shortest, but ignores bytes after the signature and unused bits of the signature (crypto/x509, Go
// 1.26).
func readCertificate(raw []byte) (c signedPart, ok bool) {
	var outer, signature cryptobyte.String
	input := cryptobyte.String(raw)
	ok = input.ReadASN1(&outer, asn1.SEQUENCE) && input.Empty() &&
		outer.ReadASN1Element(&c.signed, asn1.SEQUENCE) && outer.ReadASN1Element(&c.algorithm, asn1.SEQUENCE) &&
		outer.ReadASN1(&signature, asn1.BIT_STRING) && outer.Empty() &&
		len(signature) > 1 && signature[0] == 0
	if ok {
		c.signature = signature[1:]
	}
	return c, ok
}

// fingerprints returns the SHA-256 of a certificate. If an ECDSA signature (r, s) is valid, (r,
// n-s) is valid too (SEC 1, section 4.1.4), where n is the order of the curve. Any client can
// therefore create an equivalent certificate. fingerprints also returns the SHA-256 of that
// certificate.
func fingerprints(raw []byte) []string {
	all := []string{fingerprint(raw)}
	c, ok := readCertificate(raw)
	if !ok {
		return all
	}
	var pair cryptobyte.String
	signature := c.signature
	r, s := new(big.Int), new(big.Int)
	if !signature.ReadASN1(&pair, asn1.SEQUENCE) || !pair.ReadASN1Integer(r) || !pair.ReadASN1Integer(s) {
		return all // not an ECDSA signature
	}
	for _, order := range orders(max(r.BitLen(), s.BitLen())) {
		var b cryptobyte.Builder
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddBytes(c.signed)
			b.AddBytes(c.algorithm)
			b.AddASN1(asn1.BIT_STRING, func(b *cryptobyte.Builder) {
				b.AddUint8(0)
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1BigInt(r)
					b.AddASN1BigInt(new(big.Int).Sub(order, s))
				})
			})
		})
		if twin, err := b.Bytes(); err == nil {
			all = append(all, fingerprint(twin))
		}
	}
	return all
}

// orders returns the orders of the curves that match the bit length of the numbers in a
// signature. The order of the issuer's curve is almost certainly included, because the numbers
// are random. The probability that a number is 64 bits shorter than the order is about 2^-64.
func orders(bits int) []*big.Int {
	var fitting []*big.Int
	for _, curve := range []elliptic.Curve{elliptic.P224(), elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		if n := curve.Params().N; n.BitLen() >= bits && n.BitLen() < bits+64 {
			fitting = append(fitting, n)
		}
	}
	return fitting
}

func fingerprint(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

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

// Why certificates are refused before anybody looks at whom they name; to be
// tested with [errors.Is].
var (
	// ErrChain says that too much was presented: to verify a long chain takes seconds of a processor,
	// and how long it is shows only then.
	ErrChain = errors.New("the client presented too many or too large certificates")
	// ErrEncoding says that a certificate can be written in another way, with another fingerprint.
	ErrEncoding = errors.New("the certificate contains bytes that are not signed")
)

const (
	// maxCertificates and maxCertificateBytes bound what a client presents: the public web's chains
	// have up to 5 certificates of about 2 KiB.
	maxCertificates     = 8
	maxCertificateBytes = 32 << 10
)

// certificateSource names what was presented in refusals, since no source was asked.
const certificateSource = "client certificate"

// presentable refuses requests over connections whose certificates are too many or not in their one
// form, whatever else the requests bring: before any source and the server's own chain.
func presentable(next authenticator.Request) authenticator.Request {
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

// signedPart is a certificate (RFC 5280, section 4.1) taken apart: all but the
// outermost parts is signed.
type signedPart struct {
	signed, algorithm, signature cryptobyte.String
}

// readCertificate takes a certificate apart that has one form only. Go's parser refuses what
// is not in its shortest form, but reads over bytes after the signature and unused bits of
// it (crypto/x509, Go 1.26).
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

// fingerprints are the SHA-256 of a certificate and, if ECDSA signed it, of its twin: with the
// signature (r, s) goes (r, n-s), which anybody can compute and nobody can tell from the genuine
// one (SEC 1, section 4.1.4).
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
		return all // no ECDSA
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

// orders are those of the curves that a signature of numbers of so many bits may be of. The
// issuer's own is always among them, since its numbers are at random: one that is 64 bits
// shorter comes once in 2^64.
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

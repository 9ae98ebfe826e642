// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/tenant"
)

// issue returns the certificate of a CA with the given key, and a client certificate that the CA
// signed. Both certificates contain the same public key.
func issue(tb testing.TB, key crypto.Signer) (ca, leaf *x509.Certificate) {
	tb.Helper()
	sign := func(template, parent *x509.Certificate) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		if err != nil {
			tb.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			tb.Fatal(err)
		}
		return c
	}
	until := time.Now().Add(time.Hour)
	ca = sign(&x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotAfter:              until,
		IsCA:                  true,
		BasicConstraintsValid: true,
	},
		&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}})
	leaf = sign(&x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "alice"},
		NotAfter:     until,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca)
	return ca, leaf
}

// certificateParts has the parts of a certificate. The signature covers the part Signed.
type certificateParts struct {
	Signed, Algorithm asn1.RawValue
	Signature         asn1.BitString
}

type ecdsaSignature struct{ R, S *big.Int }

func reencode(tb testing.TB, c *x509.Certificate, change func(*certificateParts) []byte) *x509.Certificate {
	tb.Helper()
	var parts certificateParts
	if _, err := asn1.Unmarshal(c.Raw, &parts); err != nil {
		tb.Fatal(err)
	}
	after := change(&parts)
	der, err := asn1.Marshal(parts)
	if err != nil {
		tb.Fatal(err)
	}
	if after != nil {
		var outer asn1.RawValue
		if _, err := asn1.Unmarshal(der, &outer); err != nil {
			tb.Fatal(err)
		}
		if der, err = asn1.Marshal(asn1.RawValue{
			Tag:        asn1.TagSequence,
			IsCompound: true,
			Bytes:      append(outer.Bytes, after...),
		}); err != nil {
			tb.Fatal(err)
		}
	}
	again, err := x509.ParseCertificate(der)
	if err != nil {
		return nil // Go's parser rejects the certificate
	}
	return again
}

func authenticatePresented(certificates ...*x509.Certificate) func(*authn.Chain) error {
	return func(c *authn.Chain) error {
		c.BuiltIn = identity(&user.DefaultInfo{Name: "alice"})
		req := bearing(context.Background(), "")
		req.TLS = &tls.ConnectionState{PeerCertificates: certificates}
		_, ok, err := authn.New(*c).AuthenticateRequest(req)
		if !ok && err == nil {
			return errors.New("not authenticated")
		}
		return err
	}
}

func signers(tb testing.TB) map[string]crypto.Signer {
	tb.Helper()
	keys := map[string]crypto.Signer{}
	for _, curve := range []elliptic.Curve{elliptic.P224(), elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			tb.Fatal(err)
		}
		keys[curve.Params().Name] = key
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	keys["RSA"], keys["Ed25519"] = rsaKey, edKey
	return keys
}

// TestReencodedCertificatesAreRejectedOrRevoked checks certificates that a client re-encoded
// without the signer's key. They are rejected, or they are revoked together with the original.
func TestReencodedCertificatesAreRejectedOrRevoked(t *testing.T) {
	for name, key := range signers(t) {
		ca, leaf := issue(t, key)
		sum := sha256.Sum256(leaf.Raw)
		revoked := &authn.Revocations{Fingerprints: map[string]struct{}{hex.EncodeToString(sum[:]): {}}}
		chain := func(list *authn.Revocations) *authn.Chain {
			return &authn.Chain{
				Revoked: func() *authn.Revocations { return list },
				Subject: func(context.Context, user.Info) (tenant.ID, error) {
					return tenant.ID{}, tenant.ErrUnbound
				},
			}
		}
		if err := authenticatePresented(leaf)(chain(nil)); err != nil {
			t.Errorf("%s: the certificate itself: %v", name, err)
		}
		if err := authenticatePresented(leaf)(chain(revoked)); !errors.Is(err, authn.ErrRevoked) {
			t.Errorf("%s: the revoked certificate: %v", name, err)
		}
		for form, change := range map[string]func(*certificateParts) []byte{
			"null after the signature":            func(*certificateParts) []byte { return []byte{5, 0} },
			"an integer after the signature":      func(*certificateParts) []byte { return []byte{2, 1, 0} },
			"an octet string after the signature": func(*certificateParts) []byte { return []byte{4, 2, 1, 2} },
			"one byte after the signature":        func(*certificateParts) []byte { return []byte{0} },
			"shifted, with unused bits": func(p *certificateParts) []byte { // the first two bits must be zero
				shifted := new(big.Int).Lsh(new(big.Int).SetBytes(p.Signature.Bytes), 2)
				p.Signature.Bytes = shifted.FillBytes(make([]byte, len(p.Signature.Bytes)+1))
				if p.Signature.Bytes[0] != 0 {
					return []byte{0} // no room, so the test uses an invalid certificate
				}
				p.Signature.Bytes = p.Signature.Bytes[1:]
				p.Signature.BitLength -= 2
				return nil
			},
			"an unused bit": func(p *certificateParts) []byte { p.Signature.BitLength--; return nil },
			"an additional byte in the signature": func(p *certificateParts) []byte {
				p.Signature.Bytes = append(slices.Clone(p.Signature.Bytes), 0)
				p.Signature.BitLength += 8
				return nil
			},
		} {
			t.Run(form, func(t *testing.T) {
				other := reencode(t, leaf, change)
				if other == nil {
					return
				}
				for where, presented := range map[string][]*x509.Certificate{"alone": {other}, "after another": {leaf, other}} {
					err := authenticatePresented(presented...)(chain(nil))
					if isGenuine := ca.CheckSignature(other.SignatureAlgorithm,
						other.RawTBSCertificate, other.Signature) == nil; isGenuine && !errors.Is(err, authn.ErrEncoding) {
						t.Errorf("%s: %s, %s: %v", name, form, where, err)
					}
				}
			})
		}
		if ec, is := key.(*ecdsa.PrivateKey); is {
			twin := reencode(t, leaf, func(p *certificateParts) []byte {
				var signature ecdsaSignature
				if _, err := asn1.Unmarshal(p.Signature.Bytes, &signature); err != nil {
					t.Fatal(err)
				}
				signature.S.Sub(ec.Params().N, signature.S)
				p.Signature.Bytes, _ = asn1.Marshal(signature)
				p.Signature.BitLength = 8 * len(p.Signature.Bytes)
				return nil
			})
			if err := twin.CheckSignatureFrom(ca); err != nil || twin.Equal(leaf) {
				t.Fatalf("%s: the twin is not a valid other certificate: %v", name, err)
			}
			if err := authenticatePresented(twin)(chain(nil)); err != nil {
				t.Errorf("%s: the twin of a certificate that is not revoked: %v", name, err)
			}
			if err := authenticatePresented(twin)(chain(revoked)); !errors.Is(err, authn.ErrRevoked) {
				t.Errorf("%s: the twin of the revoked certificate: %v", name, err)
			}
		}
	}
}

// TestLongChainsAreRejected checks that long chains are rejected before any authenticator is
// called, including BuiltIn.
func TestLongChainsAreRejected(t *testing.T) {
	_, leaf := issue(t, signers(t)["P-256"])
	large := &x509.Certificate{Raw: slices.Repeat([]byte{0}, 32<<10)}
	for name, c := range map[string]struct {
		presented []*x509.Certificate
		err       error
	}{
		"none":        {nil, nil},
		"eight":       {slices.Repeat([]*x509.Certificate{leaf}, 8), nil},
		"nine":        {slices.Repeat([]*x509.Certificate{leaf}, 9), authn.ErrChain},
		"ninety-nine": {slices.Repeat([]*x509.Certificate{leaf}, 99), authn.ErrChain},
		"large":       {[]*x509.Certificate{leaf, large}, authn.ErrChain},
		"unreadable":  {[]*x509.Certificate{large}, authn.ErrEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			if err := authenticatePresented(c.presented...)(&authn.Chain{}); !errors.Is(err, c.err) ||
				err != nil && c.err == nil {
				t.Errorf("%v, want %v", err, c.err)
			}
		})
	}
}

// TestBuiltInRevokedAuthority checks that an identity from BuiltIn is rejected if each chain to
// the authorities of BuiltIn contains a revoked authority. It is also rejected if there is no
// chain.
func TestBuiltInRevokedAuthority(t *testing.T) {
	ca, leaf := issue(t, signers(t)["P-256"])
	other, _ := issue(t, signers(t)["P-256"])
	byFingerprint := func(all ...*x509.Certificate) *authn.Revocations {
		list := &authn.Revocations{Fingerprints: map[string]struct{}{}}
		for _, c := range all {
			sum := sha256.Sum256(c.Raw)
			list.Fingerprints[hex.EncodeToString(sum[:])] = struct{}{}
		}
		return list
	}
	for name, c := range map[string]struct {
		chains     [][]*x509.Certificate
		credential string
		list       *authn.Revocations
		revoked    bool
	}{
		"empty list":        {[][]*x509.Certificate{{leaf, ca}}, "X509SHA256=1", &authn.Revocations{}, false},
		"no list":           {[][]*x509.Certificate{{leaf, ca}}, "X509SHA256=1", nil, false},
		"the authority":     {[][]*x509.Certificate{{leaf, ca}}, "X509SHA256=1", byFingerprint(ca), true},
		"another authority": {[][]*x509.Certificate{{leaf, ca}}, "X509SHA256=1", byFingerprint(other), false},
		"one of two chains": {[][]*x509.Certificate{{leaf, ca}, {leaf, other}}, "X509SHA256=1", byFingerprint(ca), false},
		"both chains": {
			[][]*x509.Certificate{{leaf, ca}, {leaf, other}}, "X509SHA256=1", byFingerprint(ca, other), true,
		},
		"no chain": {nil, "X509SHA256=1", byFingerprint(other), true},
		"a token":  {[][]*x509.Certificate{{leaf, ca}}, "JTI=1", byFingerprint(ca), false},
	} {
		t.Run(name, func(t *testing.T) {
			chain := &authn.Chain{
				Revoked:       func() *authn.Revocations { return c.list },
				BuiltInChains: func([]*x509.Certificate) [][]*x509.Certificate { return c.chains },
				Subject:       func(context.Context, user.Info) (tenant.ID, error) { return tenant.ID{}, tenant.ErrUnbound },
				BuiltIn: identity(&user.DefaultInfo{
					Name:  "alice",
					Extra: map[string][]string{user.CredentialIDKey: {c.credential}},
				}),
			}
			req := bearing(t.Context(), "")
			req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
			if _, ok, err := authn.New(*chain).AuthenticateRequest(req); errors.Is(err, authn.ErrRevoked) != c.revoked ||
				ok == c.revoked {
				t.Errorf("%t, %v", ok, err)
			}
		})
	}
}

// TestErrorSizeIsLimited checks that the size of logged errors is limited.
func TestErrorSizeIsLimited(t *testing.T) {
	long := errors.New(strings.Repeat("é", 10_000))
	c := authn.Chain{
		BuiltIn: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return nil, false, long
		}),
	}
	_, _, err := authn.New(c).AuthenticateRequest(bearing(t.Context(), ""))
	if !errors.Is(err, long) || len(err.Error()) > 520 || !strings.HasSuffix(err.Error(), "é...") {
		t.Errorf("%d bytes: %.20q", len(err.Error()), err)
	}
}

// FuzzReencode changes, adds and removes bytes of a revoked certificate. If Go parses the result
// and its signature is valid, the chain must reject it.
func FuzzReencode(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	ca, leaf := issue(f, key)
	sum := sha256.Sum256(leaf.Raw)
	revoked := &authn.Revocations{Fingerprints: map[string]struct{}{hex.EncodeToString(sum[:]): {}}}
	f.Add(len(leaf.Raw), []byte{5, 0}, 0)
	f.Add(3, []byte{0x81}, 1)
	f.Add(len(leaf.Raw)-10, []byte{}, 2)
	f.Fuzz(func(t *testing.T, at int, put []byte, cut int) {
		at = max(0, min(at, len(leaf.Raw)))
		raw := slices.Concat(leaf.Raw[:at], put, leaf.Raw[min(len(leaf.Raw), at+max(0, min(cut, len(leaf.Raw)))):])
		if len(raw) > 4 && raw[1] == 0x82 { // adjusts the outer length
			raw[2], raw[3] = byte((len(raw)-4)>>8), byte(len(raw)-4)
		}
		other, err := x509.ParseCertificate(raw)
		if err != nil || ca.CheckSignature(other.SignatureAlgorithm, other.RawTBSCertificate, other.Signature) != nil {
			return
		}
		c := &authn.Chain{
			Revoked: func() *authn.Revocations { return revoked },
			Subject: func(context.Context, user.Info) (tenant.ID, error) {
				return tenant.ID{}, tenant.ErrUnbound
			},
		}
		if err := authenticatePresented(other)(c); !errors.Is(err, authn.ErrRevoked) && !errors.Is(err, authn.ErrEncoding) {
			t.Fatalf("accepted: %x", raw)
		}
	})
}

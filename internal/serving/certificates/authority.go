// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const day = 24 * time.Hour

// Lifetimes of certificates. A certificate is replaced caReplace or leafReplace before its expiry.
const (
	caLifetime       = 365 * day
	secondCALifetime = caLifetime / 2 // initial lifetime of the second authority, which must not expire with the first
	caReplace        = 90 * day
	leafLifetime     = 90 * day
	leafReplace      = 30 * day
	// backdate is how long before its creation a certificate is already valid, to allow for clock
	// skew.
	backdate = 5 * time.Minute
)

// keyPair is a certificate and its private key.
type keyPair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var errKeyPair = errors.New("expected one certificate and its ECDSA private key")

// parseKeyPair parses a certificate and its key from PEM.
func parseKeyPair(certificate, key []byte) (*keyPair, error) {
	certs, err := cert.ParseCertsPEM(certificate)
	if err != nil || len(certs) != 1 {
		return nil, errKeyPair
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, errKeyPair
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(certs[0].PublicKey) {
		return nil, errKeyPair
	}
	return &keyPair{certs[0], private}, nil
}

func (p *keyPair) certPEM() []byte { return certPEM(p.cert) }

func (p *keyPair) keyPEM() ([]byte, error) { return keyutil.MarshalPrivateKeyToPEM(p.key) }

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
}

// newAuthority creates a self-signed authority.
func newAuthority(now time.Time, lifetime time.Duration) (*keyPair, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubetenant-webhook-ca " + now.UTC().Format(time.DateOnly)},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}, nil)
}

// newLeaf creates a serving certificate for DNS names and IP addresses. The certificate expires no
// later than its authority.
func (p *keyPair) newLeaf(now time.Time, names []string) (*keyPair, error) {
	end := now.Add(leafLifetime)
	if p.cert.NotAfter.Before(end) {
		end = p.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: names[0]},
		NotBefore:             now.Add(-backdate),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return issue(template, p)
}

// issue creates a key and a certificate for the key. If signer is nil, the certificate is
// self-signed.
func issue(template *x509.Certificate, signer *keyPair) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	if signer == nil {
		signer = &keyPair{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	return &keyPair{parsed, key}, err
}

// expiresWithin reports whether a certificate expires within the duration d after now.
func (p *keyPair) expiresWithin(now time.Time, d time.Duration) bool {
	return !now.Add(d).Before(p.cert.NotAfter)
}

// isValidFor reports whether a serving certificate is valid for all names, is signed by one of the
// authorities, and need not be replaced yet.
func (p *keyPair) isValidFor(now time.Time, names []string, authorities []*x509.Certificate) bool {
	if p.expiresWithin(now, leafReplace) {
		return false
	}
	roots := x509.NewCertPool()
	for _, a := range authorities {
		roots.AddCert(a)
	}
	for _, name := range names {
		if p.cert.VerifyHostname(name) != nil {
			return false
		}
	}
	_, err := p.cert.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err == nil
}

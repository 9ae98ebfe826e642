// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// sign creates a key and a certificate for it. The authority ca signs the certificate. If ca is
// nil, the certificate is self-signed.
func sign(template *x509.Certificate, ca *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// encode returns a certificate and its key in PEM.
func encode(pair *tls.Certificate) (certificate, key []byte, err error) {
	key, err = keyutil.MarshalPrivateKeyToPEM(pair.PrivateKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), key, err
}

// servingCertificate returns a certificate of a server at the address 127.0.0.1. If ca is nil, the
// certificate is self-signed and is an authority.
func servingCertificate(t *testing.T, name string, ca *tls.Certificate, lifetime time.Duration) (
	certificate, key []byte, pair *tls.Certificate,
) {
	t.Helper()
	pair, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  ca == nil,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-2 * time.Hour),
		NotAfter:              time.Now().Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}, ca)
	if err == nil {
		certificate, key, err = encode(pair)
	}
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key, pair
}

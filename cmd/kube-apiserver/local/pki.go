// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Lifetimes of certificates. Leaf certificates are renewed at each start.
const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
)

// authority is a certificate authority whose certificate and key are stored in files.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openAuthority reads the authority in dir/name.crt and dir/name.key. It creates missing files.
func openAuthority(dir, name string) (*authority, error) {
	key, err := openKey(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name+".crt")
	certs, err := cert.CertsFromFile(path)
	if err == nil {
		return &authority{certs[0], key}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kubetenant-local-" + name},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	a := &authority{template, key}
	der, err := a.sign(template, key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, os.WriteFile(path, certPEM(der), 0o600)
}

// openKey reads the ECDSA key at path. If the file does not exist, openKey creates it.
func openKey(path string) (*ecdsa.PrivateKey, error) {
	made, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path) // #nosec G304 -- below the directory that the operator names
	if errors.Is(err, fs.ErrNotExist) {
		data, err = made, os.WriteFile(path, made, 0o600)
	}
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New(path + ": not an ECDSA key")
	}
	return ec, nil
}

func (a *authority) sign(template *x509.Certificate, public *ecdsa.PrivateKey) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, template, a.cert, public.Public(), a.key)
}

// issue creates a key and a certificate for subject, and returns both as PEM.
func (a *authority) issue(subject pkix.Name, usage x509.ExtKeyUsage) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	der, err := a.sign(&x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(leafLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		DNSNames:     []string{"localhost", "kubernetes.default.svc"},
	}, private)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return certPEM(der), key, err
}

// issueFiles is like issue, but writes the results to dir/name.crt and dir/name.key.
func (a *authority) issueFiles(dir, name string, subject pkix.Name, usage x509.ExtKeyUsage) error {
	certificate, key, err := a.issue(subject, usage)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), key, 0o600)
}

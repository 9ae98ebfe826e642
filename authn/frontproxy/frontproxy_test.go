// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package frontproxy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kubetenant/kubetenant/authn/frontproxy"
)

// authority returns a CA certificate for key, self-signed or signed with the key in by.
func authority(t *testing.T, key *ecdsa.PrivateKey, serial int64, by ...*ecdsa.PrivateKey) []byte {
	t.Helper()
	template := func(serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber:          big.NewInt(serial),
			Subject:               pkix.Name{CommonName: "ca" + big.NewInt(serial).String()},
			NotAfter:              time.Now().Add(time.Hour),
			IsCA:                  true,
			BasicConstraintsValid: true,
			KeyUsage:              x509.KeyUsageCertSign,
		}
	}
	parent, signer := template(serial), key
	if len(by) > 0 {
		parent, signer = template(1), by[0]
	}
	der, err := x509.CreateCertificate(rand.Reader, template(serial), parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestCheckAuthorities(t *testing.T) {
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	proxyKey := key()
	proxy, renewed, other := authority(t, proxyKey, 1), authority(t, proxyKey, 2), authority(t, key(), 3)
	middleKey := key()
	intermediate := authority(t, middleKey, 4, proxyKey)
	below := authority(t, key(), 5, proxyKey)
	content, err := dynamiccertificates.NewStaticCAContent("proxy", proxy)
	if err != nil {
		t.Fatal(err)
	}
	config := func(names ...string) *authenticatorfactory.RequestHeaderConfig {
		return &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:  content,
			AllowedClientNames: headerrequest.StaticStringSlice(names),
		}
	}
	for _, c := range []struct {
		name    string
		config  *authenticatorfactory.RequestHeaderConfig
		clients [][]byte
		want    error
	}{
		{"no front proxy", nil, [][]byte{proxy}, nil},
		{"another authority", config(), [][]byte{other}, nil},
		{"the same authority for one name", config("front-proxy-client"), [][]byte{proxy}, nil},
		{"the same authority for any name", config(), [][]byte{proxy}, frontproxy.ErrSharedAuthority},
		{
			"the same authority in a bundle",
			config(),
			[][]byte{other, append(append([]byte{}, other...), proxy...)},
			frontproxy.ErrSharedAuthority,
		},
		{"an authority that the proxy's authority signed", config(), [][]byte{intermediate}, frontproxy.ErrSharedAuthority},
		{"another authority that the proxy's authority signed", config(), [][]byte{below}, frontproxy.ErrSharedAuthority},
		{"a signed authority, for one name", config("front-proxy-client"), [][]byte{intermediate}, nil},
		{"the same authority, renewed", config(), [][]byte{renewed}, frontproxy.ErrSharedAuthority},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := frontproxy.CheckAuthorities(c.config, c.clients...); !errors.Is(err, c.want) {
				t.Errorf("CheckAuthorities() = %v, want %v", err, c.want)
			}
		})
	}
	if err := frontproxy.CheckAuthorities(config(), []byte("no certificate")); err == nil {
		t.Error("a client CA that cannot be read is accepted")
	}
}

package x509_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	upstream "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	ours "github.com/kubetenant/kubetenant/authn/x509"
	"github.com/kubetenant/kubetenant/tenant"
)

// signer is a certificate authority, or an intermediate.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func sign(t testing.TB, by *signer, subject pkix.Name, isCA bool, notAfter time.Time) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter,
		IsCA: isCA, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if isCA {
		template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageCertSign, nil
	}
	parent := by
	if by == nil {
		parent = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert, key}
}

func pool(roots ...*signer) x509.VerifyOptions {
	p := x509.NewCertPool()
	for _, r := range roots {
		p.AddCert(r.cert)
	}
	return x509.VerifyOptions{Roots: p, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

func request(chain ...*signer) *http.Request {
	r := &http.Request{TLS: &tls.ConnectionState{}}
	for _, c := range chain {
		r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, c.cert)
	}
	return r
}

var tenantA = pkix.Name{CommonName: "u", Organization: []string{"tenant:a"}, OrganizationalUnit: []string{"dev"}}

func inAYear() time.Time { return time.Now().Add(365 * 24 * time.Hour) }

func TestTheIdentityIsUpstreams(t *testing.T) {
	ca := sign(t, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	leaf := sign(t, ca, tenantA, false, inAYear())
	want, _, err := upstream.New(pool(ca), upstream.CommonNameUserConversion).AuthenticateRequest(request(leaf))
	if err != nil {
		t.Fatal(err)
	}
	a := ours.New(upstream.StaticVerifierFn(pool(ca)), ours.Options{})
	for _, when := range []string{"verified", "remembered"} {
		got, ok, err := a.AuthenticateRequest(request(leaf))
		if err != nil || !ok {
			t.Fatal(when, ok, err)
		}
		id, err := tenant.Of(got.User)
		if err != nil || id.String() != "a" || got.User.GetName() != want.User.GetName() || !slices.Equal(got.User.GetGroups(), []string{"dev"}) ||
			!slices.Equal(got.User.GetExtra()[user.CredentialIDKey], want.User.GetExtra()[user.CredentialIDKey]) {
			t.Errorf("%s: %+v, %v", when, got.User, err)
		}
		got.Audiences = authenticator.Audiences{"changed"} // by the audience wrapper
	}
}

// TestRememberedChains: what was accepted is accepted no longer than it would be anew.
func TestRememberedChains(t *testing.T) {
	root := sign(t, nil, pkix.Name{CommonName: "root"}, true, inAYear())
	short := time.Now().Add(time.Hour)
	middle := sign(t, root, pkix.Name{CommonName: "middle"}, true, short)
	leaf := sign(t, middle, tenantA, false, inAYear())
	direct := sign(t, root, tenantA, false, inAYear())

	now := time.Now()
	options := pool(root)
	a := ours.New(func() (x509.VerifyOptions, bool) {
		options := options
		options.CurrentTime = now
		return options, true
	}, ours.Options{Now: func() time.Time { return now }})
	accepted := func(chain ...*signer) bool {
		t.Helper()
		_, ok, _ := a.AuthenticateRequest(request(chain...))
		return ok
	}
	for range 2 { // verified, then remembered
		if !accepted(leaf, middle) || !accepted(direct) {
			t.Fatal("good chains are refused")
		}
	}
	if accepted(leaf) {
		t.Error("a leaf is accepted without the intermediate that it was accepted with before")
	}
	now = short.Add(time.Second)
	if accepted(leaf, middle) {
		t.Error("a chain is accepted after its intermediate expired")
	}
	if !accepted(direct) {
		t.Error("a chain that is still valid is refused")
	}
	options = pool(sign(t, nil, pkix.Name{CommonName: "other"}, true, inAYear()))
	if accepted(direct) {
		t.Error("a chain is accepted after its authority was removed")
	}
	options = pool(root)
	if !accepted(direct) {
		t.Error("a chain is refused after its authority came back")
	}
}

func TestNotReady(t *testing.T) {
	ca := sign(t, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	leaf := sign(t, ca, tenantA, false, inAYear())
	a := ours.New(func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }, ours.Options{})
	for name, r := range map[string]*http.Request{"no authorities yet": request(leaf), "no certificate": request(), "no TLS": {}} {
		if resp, ok, err := a.AuthenticateRequest(r); resp != nil || ok || err != nil {
			t.Errorf("%s: %v, %v, %v; want an abstention", name, resp, ok, err)
		}
	}
}

func TestConcurrentChains(t *testing.T) {
	ca := sign(t, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	a := ours.New(upstream.StaticVerifierFn(pool(ca)), ours.Options{})
	names := []string{"a", "b", "c", "d"}
	var leaves []*signer
	for _, name := range names {
		leaves = append(leaves, sign(t, ca, pkix.Name{CommonName: "u", Organization: []string{"tenant:" + name}}, false, inAYear()))
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			resp, ok, err := a.AuthenticateRequest(request(leaves[i%4]))
			if !ok || err != nil {
				t.Error(ok, err)
				return
			}
			if id, _ := tenant.Of(resp.User); id.String() != names[i%4] {
				t.Errorf("certificate of %s is %s's", names[i%4], id)
			}
		})
	}
	all.Wait()
}

// BenchmarkAuthenticate presents one P-256 leaf again and again.
func BenchmarkAuthenticate(b *testing.B) {
	ca := sign(b, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	r := request(sign(b, ca, tenantA, false, inAYear()))
	verify := upstream.StaticVerifierFn(pool(ca))
	for name, a := range map[string]authenticator.Request{
		"upstream":   upstream.NewDynamic(verify, upstream.CommonNameUserConversion),
		"kubetenant": ours.New(verify, ours.Options{}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := a.AuthenticateRequest(r); !ok {
					b.Fatal(err)
				}
			}
		})
	}
}

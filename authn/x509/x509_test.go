// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package x509_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	upstream "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn/internal/validity"
	ours "github.com/kubetenant/kubetenant/authn/x509"
	"github.com/kubetenant/kubetenant/tenant"
)

// signer is a certificate authority or an intermediate.
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
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              notAfter,
		IsCA:                  isCA,
		BasicConstraintsValid: true,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
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

func authorities(t testing.TB, roots ...*signer) *ours.Authorities {
	t.Helper()
	var data []byte
	for _, r := range roots {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.cert.Raw})...)
	}
	a, err := ours.ParseAuthorities(data)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// source returns a source with these authorities only.
func source(t testing.TB, roots ...*signer) authenticator.Request {
	t.Helper()
	a := authorities(t, roots...)
	return ours.New(ours.NewVerifier(nil), func() *ours.Authorities { return a }, ours.Options{})
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

func TestIdentityEqualsUpstream(t *testing.T) {
	ca := sign(t, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	leaf := sign(t, ca, tenantA, false, inAYear())
	want, _, err := upstream.New(pool(ca), upstream.CommonNameUserConversion).AuthenticateRequest(request(leaf))
	if err != nil {
		t.Fatal(err)
	}
	a := source(t, ca)
	for _, when := range []string{"verified", "cached"} {
		got, ok, err := a.AuthenticateRequest(request(leaf))
		if err != nil || !ok {
			t.Fatal(when, ok, err)
		}
		id, err := tenant.Of(got.User)
		if err != nil || id.String() != "a" || got.User.GetName() != want.User.GetName() ||
			!slices.Equal(got.User.GetGroups(), []string{"dev"}) ||
			!slices.Equal(got.User.GetExtra()[user.CredentialIDKey], want.User.GetExtra()[user.CredentialIDKey]) {
			t.Errorf("%s: %+v, %v", when, got.User, err)
		}
		got.Audiences = authenticator.Audiences{"changed"} // as the audience wrapper does
	}
}

// TestCachedChainsExpire checks that a cached chain is not accepted longer than it would be without
// the cache.
func TestCachedChainsExpire(t *testing.T) {
	root := sign(t, nil, pkix.Name{CommonName: "root"}, true, inAYear())
	short := time.Now().Add(time.Hour)
	middle := sign(t, root, pkix.Name{CommonName: "middle"}, true, short)
	leaf := sign(t, middle, tenantA, false, inAYear())
	direct := sign(t, root, tenantA, false, inAYear())

	now := time.Now()
	current := authorities(t, root)
	a := ours.New(ours.NewVerifier(func() time.Time { return now }),
		func() *ours.Authorities { return current }, ours.Options{})
	accepted := func(chain ...*signer) bool {
		t.Helper()
		_, ok, _ := a.AuthenticateRequest(request(chain...))
		return ok
	}
	for range 2 { // verified, then cached
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
	current = authorities(t, sign(t, nil, pkix.Name{CommonName: "other"}, true, inAYear()))
	if accepted(direct) {
		t.Error("a chain is accepted after its authority was removed")
	}
	current = authorities(t, root)
	if !accepted(direct) {
		t.Error("a chain is refused after its authority came back")
	}
}

func TestAbstains(t *testing.T) {
	a := source(t, sign(t, nil, pkix.Name{CommonName: "ca"}, true, inAYear()))
	other := sign(t, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	for name, r := range map[string]*http.Request{
		"no certificate":             request(),
		"no TLS":                     {},
		"another authority":          request(sign(t, other, tenantA, false, inAYear())),
		"another authority, expired": request(sign(t, other, tenantA, false, time.Now().Add(-time.Minute))),
	} {
		t.Run(name, func(t *testing.T) {
			if resp, ok, err := a.AuthenticateRequest(r); resp != nil || ok || err != nil {
				t.Errorf("%v, %v, %v; want an abstention", resp, ok, err)
			}
		})
	}
}

// TestSharedVerification checks that sources with a shared verifier return the same results as
// separate sources.
func TestSharedVerification(t *testing.T) {
	past := time.Now().Add(-time.Minute)
	one, two := sign(t, nil, pkix.Name{CommonName: "one"}, true, inAYear()),
		sign(t, nil, pkix.Name{CommonName: "two"}, true, inAYear())
	middle := sign(t, one, pkix.Name{CommonName: "middle"}, true, inAYear())
	worn := sign(t, one, pkix.Name{CommonName: "worn"}, true, past)
	unfit := tenantA
	unfit.Organization = []string{"tenant:a", "tenant:b"}
	presented := map[string]*http.Request{
		"signed by one":                request(sign(t, one, tenantA, false, inAYear())),
		"signed by two":                request(sign(t, two, tenantA, false, inAYear())),
		"signed by one, expired":       request(sign(t, one, tenantA, false, past)),
		"signed by two, expired":       request(sign(t, two, tenantA, false, past)),
		"signed by one, ambiguous":     request(sign(t, one, unfit, false, inAYear())),
		"over an intermediate":         request(sign(t, middle, tenantA, false, inAYear()), middle),
		"over an expired intermediate": request(sign(t, worn, tenantA, false, inAYear()), worn),
		"without its issuer":           request(sign(t, middle, tenantA, false, inAYear())),
		"an authority itself":          request(one),
		"signed by another authority": request(
			sign(t, sign(t, nil, pkix.Name{CommonName: "one"}, true, inAYear()), tenantA, false, inAYear()),
		),
	}
	lone := sign(t, one, tenantA, false, inAYear())
	presented["signed by one, and an authority itself"] = request(lone)
	lists := [][]*signer{{one}, {two}, {one, two}, {middle}, {lone}}
	verifier := ours.NewVerifier(nil)
	var shared []authenticator.Request
	for _, roots := range lists {
		a := authorities(t, roots...)
		shared = append(shared, ours.New(verifier, func() *ours.Authorities { return a }, ours.Options{}))
	}
	for name, r := range presented {
		t.Run(name, func(t *testing.T) {
			for i, roots := range lists {
				want, wantOK, wantErr := source(t, roots...).AuthenticateRequest(r)
				for range 2 { // verified, then cached
					got, ok, err := shared[i].AuthenticateRequest(r)
					if ok != wantOK || (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
						t.Errorf("%s, list %d: %v, %t, %v; alone %v, %t, %v", name, i, got, ok, err, want, wantOK, wantErr)
					}
				}
				theirs, upstreamOK, _ := upstream.New(pool(roots...), upstream.CommonNameUserConversion).AuthenticateRequest(r)
				if wantOK && (!upstreamOK || theirs.User.GetName() != want.User.GetName()) {
					t.Errorf("%s, list %d: accepted, but not by upstream", name, i)
				}
			}
		})
	}
}

// TestManyAuthoritiesOfTheSameName checks that authorities of other sources do not use up the
// number of signatures that Go checks.
func TestManyAuthoritiesOfTheSameName(t *testing.T) {
	verifier := ours.NewVerifier(nil)
	var all []authenticator.Request
	var last *signer
	for range 110 {
		last = sign(t, nil, pkix.Name{CommonName: "kubernetes"}, true, inAYear())
		a := authorities(t, last)
		all = append(all, ours.New(verifier, func() *ours.Authorities { return a }, ours.Options{}))
	}
	foreign := request(
		sign(t, sign(t, nil, pkix.Name{CommonName: "kubernetes"}, true, inAYear()), tenantA, false, inAYear()),
	)
	own := request(sign(t, last, tenantA, false, inAYear()))
	for i, source := range all {
		for range 2 {
			if _, ok, err := source.AuthenticateRequest(foreign); ok || err != nil {
				t.Fatalf("source %d, a foreign certificate: %t, %v", i, ok, err)
			}
			if _, ok, err := source.AuthenticateRequest(own); ok != (i == len(all)-1) || err != nil {
				t.Fatalf("source %d, a certificate from the last authority: %t, %v", i, ok, err)
			}
		}
	}
}

// TestRevokedAuthority checks that a chain with a revoked authority is rejected even if the
// client does not present the authority. If another chain contains no revoked authority, the
// certificate is accepted.
func TestRevokedAuthority(t *testing.T) {
	root, other := sign(t, nil, pkix.Name{CommonName: "root"}, true, inAYear()),
		sign(t, nil, pkix.Name{CommonName: "other"}, true, inAYear())
	middle := sign(t, root, pkix.Name{CommonName: "middle"}, true, inAYear())
	crossed := crossSign(t, other, middle)
	leaf := sign(t, middle, tenantA, false, inAYear())
	errRevoked := errors.New("revoked")
	for name, c := range map[string]struct {
		revoked   []*signer
		presented *http.Request
		err       error
	}{
		"no revocation":              {nil, request(leaf, middle), nil},
		"the root":                   {[]*signer{root}, request(leaf, middle), errRevoked},
		"the intermediate":           {[]*signer{middle}, request(leaf, middle), errRevoked},
		"another authority":          {[]*signer{other}, request(leaf, middle), nil},
		"one of two chains":          {[]*signer{root}, request(leaf, middle, crossed), nil},
		"both chains":                {[]*signer{root, other}, request(leaf, middle, crossed), errRevoked},
		"the leaf, not checked here": {[]*signer{leaf}, request(leaf, middle), nil},
	} {
		t.Run(name, func(t *testing.T) {
			all := authorities(t, root, other)
			a := ours.New(ours.NewVerifier(nil), func() *ours.Authorities { return all },
				ours.Options{Revoked: func(cert *x509.Certificate) error {
					if slices.ContainsFunc(c.revoked, func(s *signer) bool { return s.cert.Equal(cert) }) {
						return errRevoked
					}
					return nil
				}})
			if _, ok, err := a.AuthenticateRequest(c.presented); !errors.Is(err, c.err) || ok != (c.err == nil) {
				t.Errorf("%t, %v; want %v", ok, err, c.err)
			}
		})
	}
}

// TestExpiry checks that a certificate expires when its last accepted chain expires. A chain
// expires when the first of its certificates expires.
func TestExpiry(t *testing.T) {
	root, other := sign(t, nil, pkix.Name{CommonName: "root"}, true, inAYear()),
		sign(t, nil, pkix.Name{CommonName: "other"}, true, time.Now().Add(3*time.Hour))
	short := time.Now().Add(time.Hour)
	middle := sign(t, root, pkix.Name{CommonName: "middle"}, true, short)
	long := sign(t, root, pkix.Name{CommonName: "long"}, true, inAYear())
	a := source(t, root, other)
	for what, c := range map[string]struct {
		presented *http.Request
		want      time.Time
	}{
		"the leaf first":         {request(sign(t, long, tenantA, false, short), long), short},
		"the intermediate first": {request(sign(t, middle, tenantA, false, inAYear()), middle), short},
		"two chains": {
			request(sign(t, long, tenantA, false, time.Now().Add(5*time.Hour)), long, crossSign(t, other, long)),
			time.Now().Add(5 * time.Hour),
		},
		"the authority first": {request(sign(t, other, tenantA, false, inAYear())), time.Now().Add(3 * time.Hour)},
	} {
		t.Run(what, func(t *testing.T) {
			resp, ok, err := a.AuthenticateRequest(c.presented)
			if err != nil || !ok {
				t.Fatalf("%t, %v", ok, err)
			}
			if _, end := validity.Of(resp.User); end.Sub(c.want).Abs() > time.Minute {
				t.Errorf("%v, want %v", end, c.want)
			}
		})
	}
}

// crossSign returns the authority of the parameter of, with another certificate that the
// authority by signed.
func crossSign(t *testing.T, by, of *signer) *signer {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, of.cert, by.cert, of.cert.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert, of.key}
}

func TestConcurrentChains(t *testing.T) {
	ca := sign(t, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	a := source(t, ca)
	names := []string{"a", "b", "c", "d"}
	var leaves []*signer
	for _, name := range names {
		leaves = append(leaves,
			sign(t, ca, pkix.Name{CommonName: "u", Organization: []string{"tenant:" + name}}, false, inAYear()))
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
				t.Errorf("the certificate of %s belongs to %s", names[i%4], id)
			}
		})
	}
	all.Wait()
}

// BenchmarkAuthenticate measures the authentication of one P-256 certificate.
func BenchmarkAuthenticate(b *testing.B) {
	ca := sign(b, nil, pkix.Name{CommonName: "ca"}, true, inAYear())
	r := request(sign(b, ca, tenantA, false, inAYear()))
	verify := upstream.StaticVerifierFn(pool(ca))
	for name, a := range map[string]authenticator.Request{
		"upstream":   upstream.NewDynamic(verify, upstream.CommonNameUserConversion),
		"kubetenant": source(b, ca),
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

// TestErrorNamesInvalidCertificate checks that the error describes the validity at the present
// time. If the invalid certificate is an issuing certificate, the error names it.
func TestErrorNamesInvalidCertificate(t *testing.T) {
	at := func(days time.Duration) time.Time { return time.Now().Add(days * 24 * time.Hour) }
	root := sign(t, nil, pkix.Name{CommonName: "root"}, true, inAYear())
	ended := sign(t, root, pkix.Name{CommonName: "ended"}, true, at(-1))
	middle := sign(t, root, pkix.Name{CommonName: "middle"}, true, at(5))
	for name, c := range map[string]struct {
		presented *http.Request
		days      time.Duration // from now to the time of the source
		want      string
		not       string
	}{
		"the intermediate has expired": {request(sign(t, ended, tenantA, false, at(90)), ended), 0, `"CN=ended"`, "CN=root"},
		"the leaf has expired":         {request(sign(t, middle, tenantA, false, at(1)), middle), 2, "is after", "issuing"},
		"both have expired":            {request(sign(t, middle, tenantA, false, at(1)), middle), 6, "is after", "issuing"},
		"the intermediate expires first": {
			request(sign(t, middle, tenantA, false, at(90)), middle), 6, `"CN=middle"`, "CN=root",
		},
		"the authority has expired": {
			request(sign(t, middle, tenantA, false, at(900)), middle), 400, `"CN=middle"`, "CN=u",
		},
		"the authority of the leaf has expired": {request(sign(t, root, tenantA, false, at(900))), 400, `"CN=root"`, "CN=u"},
	} {
		t.Run(name, func(t *testing.T) {
			present := at(c.days)
			a := authorities(t, root)
			s := ours.New(ours.NewVerifier(func() time.Time { return present }),
				func() *ours.Authorities { return a }, ours.Options{})
			_, ok, err := s.AuthenticateRequest(c.presented)
			if ok || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.not) ||
				!strings.Contains(err.Error(), "current time "+present.Format("2006-01-02T15:04:05")) &&
					!strings.Contains(err.Error(), "current time "+present.UTC().Format("2006-01-02T15:04:05")) {
				t.Errorf("%t, %v; want %s at %s", ok, err, c.want, present)
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// startBench returns a server and a client with acme's credentials.
func startBench(b *testing.B, dir string) (*server, *http.Client) {
	b.Helper()
	s := newServer(b, dir)
	c, err := rest.HTTPClientFor(s.config(b, "acme"))
	if err != nil {
		b.Fatal(err)
	}
	return s, c
}

// longChain returns a client certificate with a chain of n intermediate authorities with P-521
// keys. The first authority names the given issuer, which did not sign it.
func longChain(b *testing.B, n int, issuer pkix.Name) tls.Certificate {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	parent := &x509.Certificate{Subject: issuer}
	var out tls.Certificate
	for i := range n + 1 {
		template := &x509.Certificate{
			SerialNumber:          big.NewInt(int64(i + 2)),
			Subject:               pkix.Name{CommonName: fmt.Sprint("i", i)},
			NotBefore:             time.Now().Add(-time.Hour),
			NotAfter:              time.Now().Add(time.Hour),
			IsCA:                  i < n,
			BasicConstraintsValid: true,
			ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		if err != nil {
			b.Fatal(err)
		}
		out.Certificate = append([][]byte{der}, out.Certificate...)
		if parent, err = x509.ParseCertificate(der); err != nil {
			b.Fatal(err)
		}
	}
	out.PrivateKey = key
	return out
}

// p99 sends requests one after the other, and returns the 99th percentile of their latency.
func p99(b *testing.B, c *http.Client, url string, during time.Duration) time.Duration {
	b.Helper()
	var all []time.Duration
	for begun := time.Now(); time.Since(begun) < during; {
		sent := time.Now()
		resp, err := c.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		all = append(all, time.Since(sent))
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// BenchmarkLongChains measures the latency of other requests during an attack. Each request of the
// attack sends 98 intermediate certificates.
func BenchmarkLongChains(b *testing.B) {
	s, c := startBench(b, b.TempDir())
	url := s.URL + "/api/v1/namespaces/acme--web/configmaps/kube-root-ca.crt"
	attack := longChain(b, 98, serverIssuer(b, s))
	const during = 10 * time.Second
	for b.Loop() {
		_ = p99(b, c, url, time.Second)
		quiet := p99(b, c, url, during)
		ctx, stop := context.WithCancel(b.Context())
		var all sync.WaitGroup
		sent := make(chan struct{}, 1<<20)
		for range 12 {
			all.Go(func() {
				for ctx.Err() == nil {
					attacker := &http.Client{Transport: &http.Transport{
						DisableKeepAlives: true,
						TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{attack}},
					}} // #nosec G402 -- a test
					if req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/version", http.NoBody); err == nil {
						if resp, err := attacker.Do(req); err == nil {
							_ = resp.Body.Close()
							sent <- struct{}{}
						}
					}
					select { // 12 callers send at most 12 requests per second
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
			})
		}
		attacked := p99(b, c, url, during)
		stop()
		all.Wait()
		b.ReportMetric(float64(quiet.Microseconds()), "quiet-p99-us")
		b.ReportMetric(float64(attacked.Microseconds()), "attacked-p99-us")
		b.ReportMetric(float64(attacked)/float64(quiet), "ratio")
		b.ReportMetric(float64(len(sent)), "attacks")
	}
}

// serverIssuer returns the name of the authority that issues client certificates for the server.
func serverIssuer(b *testing.B, s *server) pkix.Name {
	b.Helper()
	config := s.config(b, "acme")
	if err := rest.LoadTLSFiles(config); err != nil {
		b.Fatal(err)
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		b.Fatal(err)
	}
	return pair.Leaf.Issuer
}

// BenchmarkLargeIdentities measures the server's memory during and after 400 requests with
// different tokens. For each token, the authentication webhook returns 120,000 groups, and the
// server rejects the request with 401.
func BenchmarkLargeIdentities(b *testing.B) {
	answer := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview",` +
		`"status":{"authenticated":true,"user":{"username":"alice","groups":[` +
		strings.Repeat(`"g0000",`, 120_000) + `"g"]}}}`)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	b.Cleanup(service.Close)
	dir := b.TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: service.URL}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	err := errors.Join(clientcmd.WriteToFile(*kubeconfig, filepath.Join(dir, "service")),
		os.WriteFile(filepath.Join(dir, "tenancy.yaml"),
			[]byte("apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication:\n  sources:\n"+
				"  - { name: certs, x509: { clientCAFile: pki/ca.crt } }\n"+
				"  - { name: partner, tenants: [acme], webhook: { kubeConfigFile: service, match: { prefix: \"partner-\" }, "+
				"tenant: { value: acme } } }\n"), 0o600))
	if err != nil {
		b.Fatal(err)
	}
	s, _ := startBench(b, dir)
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: 16,
	} // #nosec G402 -- a test
	c := &http.Client{Transport: transport}
	ask := func(token string) int {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.URL+"/version", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := c.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for b.Loop() {
		before, most := memoryKiB(b, s.PID, "VmRSS")>>10, 0
		for i := range 400 {
			if code := ask(fmt.Sprint("partner-", i)); code != http.StatusUnauthorized {
				b.Fatalf("status %d, want 401", code)
			}
			most = max(most, memoryKiB(b, s.PID, "VmRSS")>>10)
		}
		b.ReportMetric(float64(before), "MiB-before")
		b.ReportMetric(float64(most-before), "MiB-grown-at-most")
		b.ReportMetric(float64(memoryKiB(b, s.PID, "VmRSS")>>10-before), "MiB-grown-after")
	}
}

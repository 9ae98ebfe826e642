// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// isActive reports whether a stream is still active after 100 ms.
func isActive(ended <-chan time.Time) bool {
	select {
	case <-ended:
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// streamEnd reads a stream, and sends the time at which it ended.
func streamEnd(resp *http.Response) <-chan time.Time {
	ended := make(chan time.Time, 1)
	go func() { _, _ = io.Copy(io.Discard, resp.Body); ended <- time.Now() }()
	return ended
}

const passAccountTokens = ", root: true, serviceAccounts: { tokens: Pass, " +
	"issuers: [\"https://kubernetes.default.svc\"] }"

// TestEndWithCredential checks that a stream ends when its credential expires, if
// endWithCredential is true. Streams whose credential has no expiry continue.
func TestEndWithCredential(t *testing.T) {
	for more, ending := range map[string]bool{"": false, "  sessions: { endWithCredential: true }\n": true} {
		t.Run(fmt.Sprint(ending), func(t *testing.T) {
			t.Parallel()
			c := newFakeCluster(t, defaultNamespaces())
			w := newFixture(t, clusterEntry("eu1", passAccountTokens)+more, map[string]*fakeCluster{"eu1": c})
			end := time.Now().Add(5 * time.Second).Truncate(time.Second)
			token := c.tokenUntil(t, "system:serviceaccount:acme--web:builder", end)
			account := w.open(t.Context(), token, http.MethodGet, podsPath+"?watch=1", "")
			defer func() { _ = account.Body.Close() }()
			alices := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
			defer func() { _ = alices.Body.Close() }()
			if account.StatusCode != http.StatusOK || alices.StatusCode != http.StatusOK {
				t.Fatalf("%s, %s", account.Status, alices.Status)
			}
			ended := streamEnd(account)
			if ending {
				select {
				case at := <-ended:
					if at.Before(end) {
						t.Errorf("the stream ended %v before its credential expired", end.Sub(at))
					}
				case <-time.After(eventTimeout):
					t.Error("the stream did not end")
				}
				// No event shows that the credential has expired, so the test waits.
			} else if <-time.After(time.Until(end)); !isActive(ended) {
				t.Error("the stream ended")
			}
			if code, text := w.get(token, podsPath); code != http.StatusUnauthorized { // it was valid when the stream began
				t.Errorf("an expired token: %d: %s", code, text)
			}
			if !isActive(streamEnd(alices)) {
				t.Error("a stream without an expiry ended")
			}
		})
	}
}

// newAuthority returns a certificate authority, and a function that issues the TLS configuration of
// a caller of tenant acme. The caller's certificate expires at end.
func newAuthority(t *testing.T, w *fixture) (ca []byte, issue func(end time.Time) *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	sign := func(template *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	pool := x509.NewCertPool()
	pool.AddCert(w.server.Certificate())
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(root)})
	return ca, func(end time.Time) *tls.Config {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2),
			Subject:      pkix.Name{CommonName: "carol", Organization: []string{"tenant:acme"}},
			NotBefore:    root.NotBefore,
			NotAfter:     end,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		return &tls.Config{
			RootCAs:      pool,
			ServerName:   "example.com",
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{{Certificate: [][]byte{sign(leaf)}, PrivateKey: key}},
		}
	}
}

// echo returns a handler that echoes the data of upgraded connections, and that sends nothing for
// followed logs.
func echo(t *testing.T) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" && !r.URL.Query().Has("follow") {
			return false
		}
		if r.Header.Get("Upgrade") == "" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
		return true
	}
}

// TestEndWithCertificate is [TestEndWithCredential] for a watch, a log and an upgraded connection
// that a certificate authenticated.
func TestEndWithCertificate(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	c.update(func() { c.handler = echo(t) })
	ca, issue := newAuthority(t, w)
	w.write("ca.crt", string(ca))
	w.write("tenancy.yaml", strings.Replace(configHeader, "  sources:\n",
		"  sources:\n  - { name: certs, x509: { clientCAFile: ca.crt } }\n", 1)+clusterEntry("eu1", passAccountTokens)+
		"  sessions: { endWithCredential: true }\n")
	open := func(config *tls.Config, path string) *http.Response {
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	lasting := issue(time.Now().Add(time.Hour))
	waittest.Until(t, func() error {
		if resp := open(lasting, podsPath); resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	// A busy machine may need most of this time to open all three streams.
	end := time.Now().Add(15 * time.Second).Truncate(time.Second)
	config := issue(end)
	ended := map[string]<-chan time.Time{}
	for what, path := range map[string]string{"a watch": podsPath + "?watch=1", "a log": podsPath + "/p/log?follow=true"} {
		t.Run(what, func(t *testing.T) {
			resp := open(config, path)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s", resp.Status)
			}
			ended[what] = streamEnd(resp)
		})
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp",
		strings.TrimPrefix(w.server.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST "+podsPath+"/p/exec?command=x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"+
		"Upgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	ended["an upgrade"] = streamEnd(&http.Response{Body: io.NopCloser(reader)})
	for what, at := range ended {
		t.Run(what, func(t *testing.T) {
			select {
			case at := <-at:
				if at.Before(end) {
					t.Errorf("%s ended %v before its credential expired", what, end.Sub(at))
				}
			case <-time.After(eventTimeout):
				t.Errorf("%s did not end", what)
			}
		})
	}
}

// TestEndWithCredentialEndsStreams checks that existing streams end when the configuration enables
// endWithCredential.
func TestEndWithCredentialEndsStreams(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	resp := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
	defer func() { _ = resp.Body.Close() }()
	w.write(
		"tenancy.yaml",
		configHeader+clusterEntry("eu1", passAccountTokens)+"  sessions: { endWithCredential: true }\n",
	)
	if err := waitForEnd(resp); err != nil {
		t.Error(err)
	}
}

// TestGoawayClosesOldConnections checks that the gateway closes old connections with GOAWAY frames
// after some requests, if goawayPerMillion is not 0. Active streams continue.
func TestGoawayClosesOldConnections(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	for _, c := range []struct {
		name              string
		perMillion, least int
		older             time.Duration
	}{
		{"disabled", 0, 0, time.Hour},
		{"new connections", 20_000, 0, 0},
		{"old connections", 19_999, 1, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			perMillion, least := c.perMillion, c.least
			w.server.Client().CloseIdleConnections() // existing connections would keep their age
			w.connectionAge.Store(int64(c.older))
			w.write("tenancy.yaml", strings.Replace(configHeader, "timeout: 5s",
				fmt.Sprintf("timeout: 5s, goawayPerMillion: %d", perMillion),
				1)+clusterEntry("eu1", ", root: true")+strings.ReplaceAll(clusterEntry(fmt.Sprintf("v%d", perMillion), ""),
				fmt.Sprintf("v%d-", perMillion), "eu1-"))
			waittest.Until(t, func() error {
				if now := w.gateway.Clusters(); !slices.Contains(now, fmt.Sprintf("v%d", perMillion)) {
					return fmt.Errorf("%v", now)
				}
				return nil
			})
			w.waitForStatus(http.StatusOK, "alice-token", podsPath) // streams of the previous version have ended
			watch := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
			fresh := 0
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
				if !i.Reused {
					fresh++
				}
			}})
			for range 500 {
				if code, text := w.read(w.open(ctx, "alice-token", http.MethodGet, podsPath, ""), nil); code != http.StatusOK {
					t.Fatalf("%d: %s", code, text)
				}
			}
			if fresh < least || least == 0 && fresh > 0 {
				t.Errorf("%d new connections", fresh)
			}
			if !isActive(streamEnd(watch)) {
				t.Error("the watch ended")
			}
			_ = watch.Body.Close()
		})
	}
}

// TestRevokedCallersCannotReconnect checks that a revoked caller cannot reopen a stream that the
// revocation ended. This also applies if the caller's name in the cluster differs from the name
// in the revocation.
func TestRevokedCallersCannotReconnect(t *testing.T) {
	t.Parallel()
	w := newFixture(t, clusterEntry("eu1", ", root: true, identity: { usernamePrefix: \"kt:\" }"),
		map[string]*fakeCluster{"eu1": newFakeCluster(t, defaultNamespaces())})
	for opened := 0; ; opened++ {
		resp := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
		switch {
		case resp.StatusCode == http.StatusUnauthorized && opened > 0:
			_ = resp.Body.Close()
			return
		case resp.StatusCode != http.StatusOK || opened > 0:
			t.Fatalf("opened again %d times: %s", opened, resp.Status)
		}
		w.write("revoked.yaml", noRevocations+"users: [ { tenant: acme, name: alice } ]\n")
		err := waitForEnd(resp)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRevokedAccountTokens checks that a service account's token is rejected if the token is
// revoked by its claims, or if its connection has a revoked certificate. A stored TokenReview does
// not prevent this.
func TestRevokedAccountTokens(t *testing.T) {
	const issuer = "issuer: \"https://kubernetes.default.svc\""
	for what, revoked := range map[string]string{
		"subject": "tokens: [ { " + issuer + ", subject: \"system:serviceaccount:acme--web:builder\" } ]\n",
		"time":    "tokens: [ { " + issuer + ", issuedBefore: \"2100-01-01T00:00:00Z\" } ]\n",
		"serial":  "certificates: [ { serial: \"2\", issuer: CN=ca } ]\n",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newFakeCluster(t, defaultNamespaces())
			w := newFixture(t, clusterEntry("eu1", passAccountTokens), map[string]*fakeCluster{"eu1": c})
			_, issue := newAuthority(t, w)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: issue(time.Now().Add(time.Hour))}}
			defer client.CloseIdleConnections()
			builder, other := c.token(t, "system:serviceaccount:acme--web:builder"),
				c.token(t, "system:serviceaccount:acme--web:other")
			get := func(token string) int {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+podsPath, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+token)
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				return resp.StatusCode
			}
			if code := get(builder); code != http.StatusOK {
				t.Fatal(code)
			}
			w.write("revoked.yaml", noRevocations+revoked)
			waittest.Until(t, func() error {
				if code := get(builder); code != http.StatusUnauthorized {
					return fmt.Errorf("%d", code)
				}
				return nil
			})
			want := http.StatusUnauthorized
			if what == "subject" {
				want = http.StatusOK
			}
			if code := get(other); code != want {
				t.Errorf("the token of another account: %d, want %d", code, want)
			}
		})
	}
}

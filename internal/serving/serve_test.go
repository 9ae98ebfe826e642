// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"context"
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
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// authority is a certificate authority for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
	return a
}

// sign creates a certificate from a template. If the authority has no certificate yet, the new
// certificate is self-signed.
func (a *authority) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed, key
}

func (a *authority) issue(t testing.TB, name string, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	leaf, key := a.sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		DNSNames:    []string{"webhook.test"},
	})
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// writePair replaces a certificate atomically, as the kubelet does.
func writePair(t testing.TB, dir string, c *tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := keyutil.MarshalPrivateKeyToPEM(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(dir, "data-")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		"tls.key": key,
	} {
		if err := os.WriteFile(filepath.Join(fresh, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "..data")
	if err := os.Symlink(fresh, link+"-new"); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Readlink(link) // empty at first
	if err := os.Rename(link+"-new", link); err != nil {
		t.Fatal(err)
	}
	if before != "" {
		if err := os.RemoveAll(before); err != nil {
			t.Fatal(err)
		}
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for _, path := range []string{certFile, keyFile} {
		if err := os.Symlink(filepath.Join("..data", filepath.Base(path)), path); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// testServer is a running server.
type testServer struct {
	dir, address string
	ca, clients  *authority
	server       *serving.Server
	stop         context.CancelFunc
	ended        chan error
}

func startServer(t testing.TB, handler http.Handler, drain time.Duration) *testServer {
	t.Helper()
	r := &testServer{
		dir:     t.TempDir(),
		ca:      newAuthority(t, "serving"),
		clients: newAuthority(t, "clients"),
		ended:   make(chan error, 1),
	}
	leaf := r.ca.issue(t, "first", x509.ExtKeyUsageServerAuth)
	s := serving.Serving{
		ClientCAFile: filepath.Join(r.dir, "clients.crt"),
		ClientNames:  []string{"kube-apiserver"},
		Drain:        drain,
	}
	s.CertFile, s.KeyFile = writePair(t, r.dir, &leaf)
	if err := os.WriteFile(s.ClientCAFile, r.clients.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	r.address = s.Listener.Addr().String()
	if r.server, err = serving.NewServer(s); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- r.server.Serve(ctx, handler) }()
	t.Cleanup(cancel)
	return r
}

// config returns the TLS configuration of a client. If certificate is nil, the client presents
// none.
func (r *testServer) config(certificate *tls.Certificate) *tls.Config {
	c := &tls.Config{RootCAs: r.ca.pool(), ServerName: "webhook.test", MinVersion: tls.VersionTLS12}
	if certificate != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return c
}

// get sends a request and returns the common name of the server's certificate.
func (r *testServer) get(ctx context.Context, c *tls.Config) (string, error) {
	resp, err := r.answer(ctx, c)
	if err != nil {
		return "", err
	}
	return resp.TLS.PeerCertificates[0].Subject.CommonName, nil
}

// answer sends a request and returns the response without its body.
func (r *testServer) answer(ctx context.Context, c *tls.Config) (*http.Response, error) {
	transport := &http.Transport{TLSClientConfig: c}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.address+"/livez", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	return resp, resp.Body.Close()
}

// TestDex_CVE_2024_23656 checks that the requirements for connections are the same before and after
// a certificate is replaced.
func TestDex_CVE_2024_23656(t *testing.T) {
	r := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 0)
	good := r.clients.issue(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
	check := func(when string) {
		weak := func(change func(*tls.Config)) *tls.Config {
			c := r.config(&good)
			change(c)
			return c
		}
		another, serving := r.clients.issue(t, "admin", x509.ExtKeyUsageClientAuth),
			r.clients.issue(t, "kube-apiserver", x509.ExtKeyUsageServerAuth)
		foreign := newAuthority(t, "clients").issue(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
		for name, c := range map[string]*tls.Config{
			"TLS 1.1": weak(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }),
			"a CBC cipher": weak(func(c *tls.Config) {
				c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
			}),
			"no certificate":     r.config(nil),
			"another name":       r.config(&another),
			"server certificate": r.config(&serving),
			"another authority":  r.config(&foreign),
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				if _, err := r.get(t.Context(), c); err == nil {
					t.Error("accepted")
				}
			})
		}
		for name, c := range map[string]*tls.Config{
			"TLS 1.3": r.config(&good),
			"TLS 1.2": weak(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				if _, err := r.get(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
	}
	check("with the first certificate")
	second := r.ca.issue(t, "second", x509.ExtKeyUsageServerAuth)
	writePair(t, r.dir, &second)
	served := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			name, err := r.get(t.Context(), r.config(&good))
			if err != nil {
				t.Errorf("while the certificate is replaced: %v", err)
			}
			if name != want {
				return fmt.Errorf("the certificate of %q is served", name)
			}
			return nil
		})
	}
	served("second")
	check("with the second certificate")
	// An invalid file leaves the previous certificate in use.
	if err := os.WriteFile(filepath.Join(r.dir, "..data", "tls.crt"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("with an invalid file")
	// After an invalid file, the next valid certificate is used.
	third := r.ca.issue(t, "third", x509.ExtKeyUsageServerAuth)
	writePair(t, r.dir, &third)
	served("third")
	check("after an invalid file")
}

// TestDrain checks that a shutdown under load loses no request of HTTP/1.1 and HTTP/2 clients.
func TestDrain(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			r := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				time.Sleep(time.Millisecond)
				_, _ = io.WriteString(w, "{}")
			}), time.Second) // enough for each client to send a request, even on a busy machine
			good := r.clients.issue(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
			var answered atomic.Int64
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					transport := &http.Transport{TLSClientConfig: r.config(&good), ForceAttemptHTTP2: protocol == "HTTP/2.0"}
					defer transport.CloseIdleConnections()
					for {
						// A request without a connection was never sent, and can be sent to another
						// replica.
						var sent atomic.Bool
						ctx := httptrace.WithClientTrace(context.Background(),
							&httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
						req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.address+"/x", strings.NewReader("{}"))
						resp, err := (&http.Client{Transport: transport}).Do(req)
						if err != nil {
							// HTTP/2 retries requests that the server has reported as not
							// processed.
							if sent.Load() && !errors.Is(err, syscall.ECONNREFUSED) {
								t.Errorf("a request failed: %v", err)
							}
							return
						}
						if resp.Proto != protocol {
							t.Errorf("protocol %s", resp.Proto)
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						answered.Add(1)
					}
				})
			}
			waittest.Until(t, func() error {
				if n := answered.Load(); n < 100 {
					return fmt.Errorf("%d answers", n)
				}
				return nil
			})
			r.stop()
			wg.Wait()
			if err := <-r.ended; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}

// TestReadinessFailsBeforeShutdown checks that readiness fails as soon as the shutdown begins,
// while requests are still served. Connections remain open before the shutdown, and are closed
// after it has begun.
func TestReadinessFailsBeforeShutdown(t *testing.T) {
	r := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), time.Minute)
	good := r.clients.issue(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
	if resp, err := r.answer(t.Context(), r.config(&good)); err != nil || resp.Close ||
		r.server.Draining().Check(nil) != nil {
		t.Fatalf("before: %+v, %v", resp, err)
	}
	r.stop()
	waittest.Until(t, func() error {
		if r.server.Draining().Check(nil) == nil {
			return errors.New("the server is still ready")
		}
		return nil
	})
	if resp, err := r.answer(t.Context(), r.config(&good)); err != nil || !resp.Close {
		t.Errorf("while it drains: %+v, %v", resp, err)
	}
}

// TestSlowClients checks that idle connections and clients that send their headers byte by byte do
// not delay other clients, and that the slow clients are disconnected.
func TestSlowClients(t *testing.T) {
	const idle, slow = 2_000, 50
	r := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 0)
	good := r.clients.issue(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
	var connections []net.Conn
	defer func() {
		for _, c := range connections {
			_ = c.Close()
		}
	}()
	for range idle {
		c, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatalf("after %d connections: %v", len(connections), err)
		}
		connections = append(connections, c)
	}
	cut := make(chan error, slow)
	for range slow {
		c, err := tls.Dial("tcp", r.address, r.config(&good))
		if err != nil {
			t.Fatal(err)
		}
		connections = append(connections, c)
		go func() {
			for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
				if _, err := fmt.Fprint(c, "P"); err != nil {
					cut <- nil
					return
				}
			}
			cut <- errors.New("a slow client was not disconnected")
		}()
	}
	for range 100 {
		if _, err := r.get(t.Context(), r.config(&good)); err != nil {
			t.Fatalf("with slow clients: %v", err)
		}
	}
	for range slow {
		if err := <-cut; err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnreadyReplicaClosesConnections checks that a replica that is not ready closes its
// connections, but not before they have a minimum age.
func TestUnreadyReplicaClosesConnections(t *testing.T) {
	r := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), time.Minute)
	var ready atomic.Bool
	ready.Store(true)
	r.server.Ready = ready.Load
	good := r.clients.issue(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
	transport := &http.Transport{TLSClientConfig: r.config(&good), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	get := func() (kept bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(),
			&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { kept = i.Reused }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("over %s", resp.Proto)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
		return kept
	}
	get()
	if !get() {
		t.Error("a ready replica closed a connection")
	}
	ready.Store(false)
	waittest.Until(t, func() error {
		if get() {
			return errors.New("the connection is still open")
		}
		return nil
	})
	waittest.Until(t, func() error { // a connection stays open for its first second
		if !get() {
			return errors.New("each request uses a new connection")
		}
		return nil
	})
}

// TestCertificateValid checks that a replica with an expired or not yet valid certificate is not
// ready.
func TestCertificateValid(t *testing.T) {
	r := startServer(t, http.NotFoundHandler(), 0)
	if err := r.server.CertificateValid().Check(nil); err != nil {
		t.Errorf("valid certificate: %v", err)
	}
	for name, times := range map[string][2]time.Duration{
		"expired":       {-2 * time.Hour, -time.Minute},
		"not valid yet": {time.Hour, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			template := &x509.Certificate{
				SerialNumber: big.NewInt(1),
				NotBefore:    time.Now().Add(times[0]),
				NotAfter:     time.Now().Add(times[1]),
			}
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			certFile, keyFile := writePair(t, dir, &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
			s, err := serving.NewServer(serving.Serving{CertFile: certFile, KeyFile: keyFile})
			if err != nil {
				t.Fatal(err)
			}
			if s.CertificateValid().Check(nil) == nil {
				t.Error("the check passed")
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/kubetenant/kubetenant/test/waittest"
)

const podsPath = "/api/v1/namespaces/acme--web/pods"

// gigabyte is the size of a malicious cluster's list.
const gigabyte = 1 << 30

// responseBytes is the size of the responses in TestLargeAnswers. The race detector checks each
// copy, so a gigabyte would take minutes. make test sends a gigabyte without the race detector.
var responseBytes = flag.Int64(
	"answer.bytes",
	1<<27,
	"length of the answers of TestLargeAnswers, more than may be held",
)

// maxHeapGrowth is the maximum additional memory of the process while a cluster sends large
// responses. It includes the fake clusters, the clients and the test.
const maxHeapGrowth = 96 << 20

// heapGrowth returns the maximum additional heap memory while a function runs.
func heapGrowth(do func()) uint64 {
	read := func() uint64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	// Collect garbage often, so that it does not add to the result.
	defer debug.SetGCPercent(debug.SetGCPercent(25))
	runtime.GC()
	before, most, done := read(), uint64(0), make(chan struct{})
	go func() { defer close(done); do() }()
	for {
		select {
		case <-done:
			return max(most, before) - before
		case <-time.After(5 * time.Millisecond):
			most = max(most, read())
		}
	}
}

// chunk is the text of which large responses consist.
var chunk = bytes.Repeat([]byte("x"), 1<<20)

// writeChunks writes n bytes, rounded down to whole chunks. It stops at the first error.
func writeChunks(w http.ResponseWriter, n int64) {
	for range n / int64(len(chunk)) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// serveTLS starts a TLS server that handles connections with a function. It writes a kubeconfig for
// the server to path.
func serveTLS(t *testing.T, path, token string, with func(net.Conn)) {
	t.Helper()
	base := httptest.NewUnstartedServer(http.NotFoundHandler())
	base.StartTLS() // creates its certificate
	t.Cleanup(base.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: base.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer func() { _ = conn.Close() }(); with(conn) }()
		}
	}()
	writeKubeconfig(t, path, "https://"+listener.Addr().String(), base.Certificate().Raw, token)
}

func writeKubeconfig(t testing.TB, path, server string, authority []byte, token string) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   server,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority}),
	}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
}

// TestFaultyClusterFailsInTime checks that a faulty server at a cluster's address causes an error
// within bounded time, and does not affect other clusters.
func TestFaultyClusterFailsInTime(t *testing.T) {
	t.Parallel()
	eu, us := newFakeCluster(t, defaultNamespaces()), newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", "")+clusterEntry("us1", ""), map[string]*fakeCluster{"eu1": eu, "us1": us})
	read := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }
	n := 0
	for what, fault := range map[string]struct {
		with func(net.Conn)
		want int
	}{
		"another protocol": {
			func(c net.Conn) { read(c); _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n") }, 503,
		},
		"closed connection": {func(c net.Conn) { read(c) }, 503},
		"no response":       {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, 504},
		"endless headers": {func(c net.Conn) {
			read(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for line := "X-A: " + strings.Repeat("a", 1<<16) + "\r\n"; ; {
				if _, err := io.WriteString(c, line); err != nil {
					return
				}
			}
		}, 503},
		"endless 100 Continue": {func(c net.Conn) {
			read(c)
			// The limit for headers applies long before the time limit, even on a busy machine.
			for text := "HTTP/1.1 100 Continue\r\nX-A: " + strings.Repeat("a", 1<<12) + "\r\n\r\n"; ; {
				if _, err := io.WriteString(c, text); err != nil {
					return
				}
			}
		}, 503},
		"two content lengths": {func(c net.Conn) {
			read(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")
		}, 503},
	} {
		t.Run(what, func(t *testing.T) {
			n++
			imp := fmt.Sprintf("eu1-imp-%d", n)
			serveTLS(t, filepath.Join(w.dir, imp), impersonatorToken, fault.with)
			w.useImpersonator(imp)
			held := heapGrowth(func() {
				waittest.Until(t, func() error {
					code, text := w.get("alice-token", "/clusters/eu1"+podsPath)
					if code != fault.want || strings.Contains(text, tryAgain) {
						return fmt.Errorf("%d, want %d: %s", code, fault.want, text)
					}
					if strings.Contains(text, "127.0.0.1") || strings.Contains(text, "malformed") {
						t.Errorf("the response reveals the cluster's error: %s", text)
					}
					return nil
				})
			})
			if held > maxHeapGrowth {
				t.Errorf("%d MiB are held", held>>20)
			}
			if code, text := w.getAgain("alice-token", "/clusters/us1"+podsPath); code != http.StatusOK {
				t.Errorf("%s, another cluster: %d: %s", what, code, text)
			}
		})
	}
	// A kubeconfig with the address of the cluster and another certificate authority.
	other, _, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	authority, _ := pem.Decode(other)
	writeKubeconfig(t, filepath.Join(w.dir, "eu1-imp-ca"), eu.URL, authority.Bytes, impersonatorToken)
	w.useImpersonator("eu1-imp-ca")
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/clusters/eu1"+podsPath); code != http.StatusServiceUnavailable ||
			strings.Contains(text, "x509") {
			return fmt.Errorf("another certificate: %d: %s", code, text)
		}
		return nil
	})
	w.useImpersonator("eu1-imp")
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/clusters/eu1"+podsPath); code != http.StatusOK {
			return fmt.Errorf("after the fault: %d: %s", code, text)
		}
		return nil
	})
}

// useImpersonator changes the impersonator's kubeconfig of eu1.
func (w *fixture) useImpersonator(file string) {
	w.t.Helper()
	w.write(
		"tenancy.yaml",
		configHeader+strings.Replace(clusterEntry("eu1", ""), "impersonator: { kubeConfigFile: eu1-imp }",
			"impersonator: { kubeConfigFile: "+file+" }", 1)+clusterEntry("us1", ""),
	)
}

// TestLargeAnswers checks that large responses to callers are streamed and not held in memory,
// and that reading a large response to the gateway itself fails.
func TestLargeAnswers(t *testing.T) {
	eu, us := newFakeCluster(t, defaultNamespaces()), newFakeCluster(t, defaultNamespaces())
	const pass = ", serviceAccounts: { tokens: Pass, issuers: [\"https://kubernetes.default.svc\"] }"
	w := newFixture(t, clusterEntry("eu1", pass)+clusterEntry("us1", ""), map[string]*fakeCluster{"eu1": eu, "us1": us})
	account := eu.token(t, "system:serviceaccount:acme--web:builder")
	eu.update(func() {
		eu.handler = func(w http.ResponseWriter, _ *http.Request) bool { writeChunks(w, *responseBytes); return true }
		eu.readerHandler = func(w http.ResponseWriter, r *http.Request) bool {
			if large := r.Method == http.MethodPost || r.URL.Path == "/version"; large {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"`)
				writeChunks(w, *responseBytes)
				return true
			}
			return false
		}
	})
	var passed int64
	if held := heapGrowth(func() {
		// A watch has no deadline.
		resp := w.open(t.Context(), "alice-token", http.MethodGet, "/clusters/eu1"+podsPath+"?watch=true", "")
		passed, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}); passed != *responseBytes || held > maxHeapGrowth {
		t.Errorf("%d bytes received, %d MiB held in memory", passed, held>>20)
	}
	if held := heapGrowth(func() {
		for range 4 { // the callers read nothing
			resp := w.open(t.Context(), "alice-token", http.MethodGet, "/clusters/eu1"+podsPath, "")
			defer func() { _ = resp.Body.Close() }()
		}
		time.Sleep(time.Second)
	}); held > maxHeapGrowth {
		t.Errorf("for callers that read nothing, %d MiB are held", held>>20)
	}
	if held := heapGrowth(func() {
		if code, text := w.get(account, "/clusters/eu1"+podsPath); code != http.StatusServiceUnavailable {
			t.Errorf("a service account: %d: %s", code, text)
		}
		if code, text := w.get("alice-token", "/clusters/eu1"+podsPath,
			"Impersonate-User", "bob"); code != http.StatusForbidden && code != http.StatusInternalServerError {
			t.Errorf("an impersonation: %d: %s", code, text)
		}
	}); held > maxHeapGrowth {
		t.Errorf("for reviews, %d MiB are held", held>>20)
	}
	if code, text := w.get("alice-token", "/clusters/us1"+podsPath); code != http.StatusOK {
		t.Errorf("another cluster: %d: %s", code, text)
	}
}

// TestLargeLists checks that a cluster does not become current while its lists are too large. The
// memory of the gateway is limited, and other clusters are not affected.
func TestLargeLists(t *testing.T) {
	eu, us := newFakeCluster(t, defaultNamespaces()), newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("us1", ""), map[string]*fakeCluster{"us1": us})
	eu.kubeconfig(t, filepath.Join(w.dir, "eu1-reader"), readerToken)
	eu.kubeconfig(t, filepath.Join(w.dir, "eu1-imp"), impersonatorToken)
	received := make(chan struct{}, 100)
	eu.update(func() {
		eu.readerHandler = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || r.URL.Query().Has("watch") || r.URL.Path != "/api/v1/namespaces" {
				return false
			}
			received <- struct{}{}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"`)
			writeChunks(w, gigabyte)
			return true
		}
	})
	held := heapGrowth(func() {
		w.write("tenancy.yaml", configHeader+clusterEntry("eu1", "")+clusterEntry("us1", ""))
		for range 2 {
			<-received
		}
		if code, text := w.get("alice-token", "/clusters/eu1"+podsPath); code != http.StatusForbidden {
			t.Errorf("a cluster that is not current: %d: %s", code, text)
		}
		if code, text := w.get("alice-token", "/clusters/us1"+podsPath); code != http.StatusOK {
			t.Errorf("another cluster: %d: %s", code, text)
		}
	})
	if most := uint64(4 * 128 << 20); held > most { // client-go doubles its buffer while it reads
		t.Errorf("%d MiB are held", held>>20)
	}
	eu.update(func() { eu.readerHandler = nil })
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/clusters/eu1"+podsPath); code != http.StatusOK {
			return fmt.Errorf("after the fault: %d: %s", code, text)
		}
		return nil
	})
}

// TestFailedReviewsDenyCallers checks that the gateway does not accept a caller if the cluster
// does not respond to the gateway's reviews, or returns an invalid response.
func TestFailedReviewsDenyCallers(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"no response":      func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"connection reset": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"garbage":          func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"another kind": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1"}`)
		},
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/", http.StatusTemporaryRedirect)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newFakeCluster(t, defaultNamespaces())
			w := newFixture(
				t,
				clusterEntry(
					"eu1",
					", root: true, serviceAccounts: { tokens: Pass, issuers: [\"https://kubernetes.default.svc\"] }",
				),
				map[string]*fakeCluster{"eu1": c},
			)
			account := c.token(t, "system:serviceaccount:acme--web:builder")
			c.update(func() {
				c.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
				c.readerHandler = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodPost {
						return false
					}
					answer(w, r)
					return true
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*eventTimeout)
			defer cancel()
			for callerToken, headers := range map[string][]string{account: nil, "alice-token": {"Impersonate-User", "bob"}} {
				t.Run(callerToken, func(t *testing.T) {
					resp := w.open(ctx, callerToken, http.MethodGet, podsPath+"?watch=true", "", headers...) // a watch has no deadline
					text, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode < 400 || err != nil && !errors.Is(err, io.EOF) || len(c.takeRequests()) > 0 {
						t.Errorf("%v: %s: %s, %v", headers, resp.Status, text, err)
					}
				})
			}
			if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
				t.Errorf("a caller without a review: %d: %s", code, text)
			}
		})
	}
}

// TestUnavailableKeysRevealNothing checks the response to a token that cannot be verified because
// the keys are unavailable. It reveals neither whether the cluster exists nor its state.
func TestUnavailableKeysRevealNothing(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	token := c.token(t, "system:serviceaccount:acme--web:builder")
	c.update(func() {
		c.readerHandler = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/openid/v1/jwks" {
				return false
			}
			http.Error(w, "not now", http.StatusInternalServerError)
			return true
		}
	})
	for what, token := range map[string]string{
		"signed by the cluster": token,
		"forged":                token[:len(token)-8] + "AAAAAAAA",
		"not a JWT":             "x",
	} {
		t.Run(what, func(t *testing.T) {
			code, text := w.get(token, "/clusters/eu1"+podsPath)
			missingCode, missingText := w.get(token, "/clusters/nowhere"+podsPath)
			if code != http.StatusUnauthorized || code != missingCode || text != missingText {
				t.Errorf("%d: %s, but for an unknown cluster %d: %s", code, text, missingCode, missingText)
			}
		})
	}
	c.update(func() { c.readerHandler = nil })
	w.waitForStatus(http.StatusOK, token, podsPath)
}

// TestLargeResponseHeadersAreRejected checks that a proxied server cannot make the gateway hold
// large headers in memory.
func TestLargeResponseHeadersAreRejected(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	c.update(func() {
		c.handler = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("X-Large", strings.Repeat("x", 1<<20))
			return false
		}
	})
	if code, text := w.get("alice-token", podsPath+"/x/proxy/"); code != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", code, text)
	}
}

// TestResponsesDoNotRevealTheGateway checks that responses contain neither a cluster's address
// nor the gateway's user name in the cluster.
func TestResponsesDoNotRevealTheGateway(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	const refused = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"users \"alice\" is forbidden: ` +
		`User \"system:serviceaccount:kubetenant-system:kubetenant-gateway-impersonator\" cannot impersonate resource ` +
		`\"users\" in API group \"\" at the cluster scope","reason":"Forbidden","code":403}`
	const unknown = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized",` +
		`"reason":"Unauthorized","code":401}`
	for what, a := range map[string]struct {
		path, body string
		code, want int
	}{
		"impersonation denied":                {podsPath, refused, 403, 502},
		"impersonation denied, proxy request": {podsPath + "/x/proxy/", refused, 403, 502},
		"gateway unauthorized":                {podsPath, unknown, 401, 503},
		"gateway unauthorized, proxy request": {podsPath + "/x/proxy/", unknown, 401, 503},
		"401 of the proxied server":           {podsPath + "/x/proxy/", "log in", 401, 401},
		"403 of the proxied server":           {podsPath + "/x/proxy/", "no", 403, 403},
	} {
		t.Run(what, func(t *testing.T) {
			c.update(func() {
				c.handler = func(w http.ResponseWriter, _ *http.Request) bool {
					w.WriteHeader(a.code)
					_, _ = io.WriteString(w, a.body)
					return true
				}
			})
			if code, text := w.get("alice-token", a.path); code != a.want || strings.Contains(text, "gateway-impersonator") ||
				code < 500 && text != a.body {
				t.Errorf("%d, want %d: %s", code, a.want, text)
			}
		})
	}
	c.CloseClientConnections()
	_ = c.Listener.Close()
	if code, text := w.get("alice-token", podsPath, "Impersonate-User", "carol"); code != http.StatusForbidden ||
		strings.Contains(text, "127.0.0.1") || strings.Contains(text, "https://") {
		t.Errorf("an impersonation in an unreachable cluster: %d: %s", code, text)
	}
}

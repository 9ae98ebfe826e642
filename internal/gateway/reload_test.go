// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/kubetenant/kubetenant/internal/gateway/views"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// hookedRecorder calls a function once, after the gateway has selected the route of a request and
// before it handles the request.
type hookedRecorder struct {
	*httptest.ResponseRecorder
	once   sync.Once
	do     func()
	closed chan bool
}

func (h *hookedRecorder) CloseNotify() <-chan bool         { return h.closed }
func (h *hookedRecorder) SetReadDeadline(time.Time) error  { h.once.Do(h.do); return nil }
func (h *hookedRecorder) SetWriteDeadline(time.Time) error { return nil }

// TestReloadDuringARequest checks that requests that begin while the configuration is replaced
// get a 503, so that clients retry. No watch uses the old configuration, and no view contains the
// clusters of the old configuration. A request for a cluster that the caller may not use gets the
// same response as a request for a missing cluster.
func TestReloadDuringARequest(t *testing.T) {
	t.Parallel()
	const shown = "  views: { clusters: { enabled: true } }\n"
	for what, c := range map[string]struct {
		path, token, says string
		code              int
	}{
		"a watch": {podsPath + "?watch=1", "alice-token", "try again", http.StatusServiceUnavailable},
		"the clusters view": {
			views.Path + "/apis/" + views.GroupVersion.String() + "/" + views.Resource,
			"alice-token",
			"try again",
			http.StatusServiceUnavailable,
		},
		"a cluster of other tenants": {
			"/clusters/eu1" + podsPath, "bob-token", "the cluster does not exist or is not available to the caller's " +
				"tenant", http.StatusForbidden,
		},
		"a missing cluster": {
			"/clusters/us1" + podsPath, "bob-token", "the cluster does not exist or is not available to the caller's " +
				"tenant", http.StatusForbidden,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t, defaultNamespaces())
			of := func(tenants string) string {
				return strings.Replace(clusterEntry("eu1", ", root: true"), `["*", system]`, tenants, 1) + shown
			}
			w := newFixture(t, of("[acme]"), map[string]*fakeCluster{"eu1": cluster})
			req := httptest.NewRequest(http.MethodGet, c.path, strings.NewReader("x")) // the body causes a read deadline
			req.Header.Set("Authorization", "Bearer "+c.token)
			h := &hookedRecorder{ResponseRecorder: httptest.NewRecorder(), closed: make(chan bool), do: func() {
				w.write("tenancy.yaml", configHeader+of("[initech]"))
				waittest.Until(t, func() error {
					if code, _ := w.get("alice-token", podsPath); code != http.StatusForbidden {
						return fmt.Errorf("%d", code)
					}
					return nil
				})
				cluster.takeRequests()
			}}
			ended := make(chan struct{})
			go func() { defer close(ended); w.gateway.ServeHTTP(h, req) }()
			select {
			case <-ended:
				again := h.Header().Get("Retry-After") != ""
				if received := cluster.takeRequests(); h.Code != c.code || again != (c.code == http.StatusServiceUnavailable) ||
					!strings.Contains(h.Body.String(), c.says) || len(received) > 0 {
					t.Errorf("%d: %s, Retry-After: %v; %d requests forwarded", h.Code, h.Body, again, len(received))
				}
			case <-time.After(eventTimeout):
				cluster.CloseClientConnections()
				t.Error("the request did not end")
			}
		})
	}
}

// TestActiveRequestsGet503 checks that a change of the configuration, or the shutdown of the
// gateway, ends active requests with a 503. The response has Retry-After only if the request
// cannot have written anything.
func TestActiveRequestsGet503(t *testing.T) {
	for what, act := range map[string]func(w *fixture){
		"changed during the request": func(w *fixture) {
			w.write("tenancy.yaml", configHeader+clusterEntry("eu1", ", root: true, identity: { withUID: true }"))
		},
		"is shutting down": func(w *fixture) { w.gateway.EndStreams(t.Context()) },
	} {
		for method, again := range map[string]string{http.MethodGet: "1", http.MethodPost: ""} {
			t.Run(what+" "+method, func(t *testing.T) {
				t.Parallel()
				w, c := newRootFixture(t)
				received := make(chan struct{}, 1)
				c.update(func() {
					c.handler = func(_ http.ResponseWriter, r *http.Request) bool {
						received <- struct{}{}
						<-r.Context().Done()
						return true
					}
				})
				go func() { <-received; act(w) }()
				resp := w.open(t.Context(), "alice-token", method, podsPath, "")
				code, text := w.read(resp, nil)
				if code != http.StatusServiceUnavailable || !strings.Contains(text, what) ||
					resp.Header.Get("Retry-After") != again {
					t.Errorf("%d, Retry-After %q: %s", code, resp.Header.Get("Retry-After"), text)
				}
			})
		}
	}
}

// TestReloadUnderLoad checks that no caller is authenticated by one configuration and mapped by
// another.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	w.write("others.csv", "alice-token,beta,u1,\"dev\",,acme\n")
	configs := []string{
		configHeader + clusterEntry("eu1", ", root: true"),
		strings.Replace(configHeader, "tokens.csv", "others.csv",
			1) + clusterEntry("eu1", ", root: true, identity: { usernamePrefix: \"b:\" }"),
	}
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+podsPath, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer alice-token")
				resp, err := w.server.Client().Do(req)
				if err != nil { // a response in progress was aborted
					continue
				}
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK &&
					(resp.StatusCode != http.StatusServiceUnavailable || !bytes.Contains(text, []byte("try again"))) {
					t.Errorf("%s: %s", resp.Status, text)
				}
			}
		})
	}
	seen := map[string]int{}
	for i := range 8 {
		w.write("tenancy.yaml", configs[(i+1)%2])
		want := []string{"b:beta", "alice"}[i%2]
		waittest.Until(t, func() error {
			for _, r := range c.takeRequests() {
				seen[r.Header.Get("Impersonate-User")]++
				if r.Header.Get("Impersonate-User") == want {
					return nil
				}
			}
			return errors.New("the configuration does not apply yet")
		})
	}
	stop()
	callers.Wait()
	for name := range seen {
		if name != "alice" && name != "b:beta" {
			t.Errorf("a caller was forwarded as %s: %v", name, seen)
		}
	}
}

// TestKubeconfigsAreReloaded checks that new tokens in the kubeconfigs apply, even if nothing else
// changes.
func TestKubeconfigsAreReloaded(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c})
	c.kubeconfig(t, filepath.Join(w.dir, "eu1-imp"), "rotated-token")
	waittest.Until(t, func() error { return checkToken(w, c, "rotated-token") })
	// From now on, the fake cluster accepts only the new token of the reader.
	c.update(func() { c.readerToken = "rotated-reader" })
	c.kubeconfig(t, filepath.Join(w.dir, "eu1-reader"), "rotated-reader")
	c.CloseClientConnections()
	c.setOwner("later", "acme") // only the new token can read this Namespace
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/api/v1/namespaces/later/pods"); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, text)
		}
		return checkToken(w, c, "rotated-token")
	})
}

// TestInvalidKubeconfigsAreIgnored checks that the gateway continues to use its credential if the
// new kubeconfig is invalid or belongs to another cluster.
func TestInvalidKubeconfigsAreIgnored(t *testing.T) {
	t.Parallel()
	other, _, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	authority, _ := pem.Decode(other)
	for what, write := range map[string]func(w *fixture, path string){
		"not a kubeconfig": func(w *fixture, path string) { w.write(path, "{") },
		"an empty file":    func(w *fixture, path string) { w.write(path, "") },
		"another cluster": func(w *fixture, path string) {
			writeKubeconfig(w.t, filepath.Join(w.dir, path), "https://127.0.0.1:1", authority.Bytes, "x")
		},
		"without TLS": func(w *fixture, path string) {
			writeKubeconfig(w.t, filepath.Join(w.dir, path), "http://127.0.0.1:1", authority.Bytes, "x")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newFakeCluster(t, defaultNamespaces())
			w := newFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c})
			write(w, "eu1-imp")
			// The gateway checks the file three times during this loop.
			for range 30 {
				time.Sleep(200 * time.Millisecond)
				if err := checkToken(w, c, impersonatorToken); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// checkToken sends a request as alice. It returns an error if the cluster does not receive the
// request with the gateway's token.
func checkToken(w *fixture, c *fakeCluster, token string) error {
	c.takeRequests()
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
		return fmt.Errorf("%d: %s", code, text)
	}
	sent := c.takeRequests()
	for _, r := range sent { // the transport repeats a request if its connection was closed
		if got := r.Header.Get("Authorization"); got != "Bearer "+token {
			return fmt.Errorf("the request was sent with %s, want %s", got, token)
		}
	}
	if len(sent) == 0 {
		return errors.New("the request was not sent")
	}
	return nil
}

// changeImpersonator changes the user in the kubeconfig of eu1's impersonator.
func changeImpersonator(w *fixture, change func(*clientcmdapi.AuthInfo)) {
	w.t.Helper()
	path := filepath.Join(w.dir, "eu1-imp")
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, u := range config.AuthInfos {
		change(u)
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		w.t.Fatal(err)
	}
}

// checkCertificate sends a request as alice. It returns an error if the name in the gateway's
// client certificate does not begin with want.
func checkCertificate(w *fixture, c *fakeCluster, want string) error {
	c.takeRequests()
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
		return fmt.Errorf("%d: %s", code, text)
	}
	received := c.takeRequests()
	if len(received) == 0 {
		return errors.New("the cluster received no request")
	}
	for _, r := range received {
		shown := ""
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			shown = certs[0].Subject.CommonName
		}
		if !strings.HasPrefix(shown, want) {
			return fmt.Errorf("the certificate has the name %q, want %q", shown, want)
		}
	}
	return nil
}

// TestPluginRunsAgainAfter401 checks that a plugin's credential is used until the cluster rejects
// it with 401. The rejected request gets 503 and not 401, because its caller is not at fault. The
// plugin then runs again. The next request has the plugin's new token, and is sent over a new
// connection with its new certificate.
func TestPluginRunsAgainAfter401(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c})
	setCredential := func(token, name string) {
		certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{
			"apiVersion": "client.authentication.k8s.io/v1",
			"kind":       "ExecCredential",
			"status": map[string]string{
				"token":                 token,
				"clientCertificateData": string(certificate),
				"clientKeyData":         string(key),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.write("says.json", string(text))
	}
	acceptToken := func(token string) {
		c.update(func() {
			c.handler = func(w http.ResponseWriter, r *http.Request) bool {
				known := r.Header.Get("Authorization") == "Bearer "+token
				if !known {
					w.WriteHeader(http.StatusUnauthorized)
				}
				return !known
			}
		})
	}
	setCredential("first-token", "first")
	acceptToken("first-token")
	changeImpersonator(w, func(u *clientcmdapi.AuthInfo) {
		*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion:      "client.authentication.k8s.io/v1",
			Command:         "cat",
			Args:            []string{filepath.Join(w.dir, "says.json")},
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	})
	waittest.Until(t, func() error { return checkCertificate(w, c, "first") })
	setCredential("second-token", "second")
	if err := checkCertificate(w, c, "first"); err != nil {
		t.Errorf("the plugin ran before a 401: %v", err)
	}
	acceptToken("second-token")
	if code, text := w.get("alice-token", podsPath); code != http.StatusServiceUnavailable ||
		!strings.Contains(text, "did not authenticate the gateway") {
		t.Errorf("%d: %s", code, text)
	}
	waittest.Until(t, func() error { return checkCertificate(w, c, "second") })
}

// TestCertificatesAreReloaded checks that a renewed certificate file applies to new requests. A
// stream on a connection with the old certificate continues.
func TestCertificatesAreReloaded(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c})
	renew := func(name string) {
		certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.write("imp.crt", string(certificate))
		w.write("imp.key", string(key))
	}
	renew("first")
	changeImpersonator(w, func(u *clientcmdapi.AuthInfo) { u.ClientCertificate, u.ClientKey = "imp.crt", "imp.key" })
	waittest.Until(t, func() error { return checkCertificate(w, c, "first") })
	// This keeps the old connection busy.
	watch := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
	defer func() { _ = watch.Body.Close() }()
	renew("second")
	waittest.Until(t, func() error { return checkCertificate(w, c, "second") })
	if !isActive(streamEnd(watch)) {
		t.Error("the watch ended")
	}
}

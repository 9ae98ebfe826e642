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

// hooked calls a function once, after the gateway has selected the route of a request and before it
// handles the request.
type hooked struct {
	*httptest.ResponseRecorder
	once sync.Once
	do   func()
	gone chan bool
}

func (h *hooked) CloseNotify() <-chan bool         { return h.gone }
func (h *hooked) SetReadDeadline(time.Time) error  { h.once.Do(h.do); return nil }
func (h *hooked) SetWriteDeadline(time.Time) error { return nil }

// TestReloadDuringARequest checks that requests that begin while the configuration is replaced get
// a 503, so that clients retry. No watch outlives its configuration, and no view contains the
// clusters of the old one. A cluster that the caller may not use gets the same response as a
// missing one.
func TestReloadDuringARequest(t *testing.T) {
	t.Parallel()
	const shown = "  views: { clusters: { enabled: true } }\n"
	for what, c := range map[string]struct {
		path, token, says string
		code              int
	}{
		"a watch": {podsPath + "?watch=1", "alice-token", "try again", http.StatusServiceUnavailable},
		"the view": {
			views.Path + "/apis/" + views.GroupVersion.String() + "/" + views.Resource,
			"alice-token",
			"try again",
			http.StatusServiceUnavailable,
		},
		"another's cluster": {
			"/clusters/eu1" + podsPath, "bob-token", "the cluster does not exist or is not available to the caller's " +
				"tenant", http.StatusForbidden,
		},
		"a cluster that's not": {
			"/clusters/us1" + podsPath, "bob-token", "the cluster does not exist or is not available to the caller's " +
				"tenant", http.StatusForbidden,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			at := newStandIn(t, spaces())
			of := func(tenants string) string {
				return strings.Replace(entry("eu1", ", root: true"), `["*", system]`, tenants, 1) + shown
			}
			w := newWorld(t, of("[acme]"), map[string]*standIn{"eu1": at})
			req := httptest.NewRequest(http.MethodGet, c.path, strings.NewReader("x")) // the body causes a read deadline
			req.Header.Set("Authorization", "Bearer "+c.token)
			h := &hooked{ResponseRecorder: httptest.NewRecorder(), gone: make(chan bool), do: func() {
				w.write("tenancy.yaml", header+of("[initech]"))
				waittest.Until(t, func() error {
					if code, _ := w.get("alice-token", podsPath); code != http.StatusForbidden {
						return fmt.Errorf("%d", code)
					}
					return nil
				})
				at.sent()
			}}
			ended := make(chan struct{})
			go func() { defer close(ended); w.gateway.ServeHTTP(h, req) }()
			select {
			case <-ended:
				again := h.Header().Get("Retry-After") != ""
				if came := at.sent(); h.Code != c.code || again != (c.code == http.StatusServiceUnavailable) ||
					!strings.Contains(h.Body.String(), c.says) || len(came) > 0 {
					t.Errorf("%d: %s, to be asked for again: %v; %d requests came", h.Code, h.Body, again, len(came))
				}
			case <-time.After(soon):
				at.CloseClientConnections()
				t.Error("it goes on")
			}
		})
	}
}

// TestCutOff checks that a change of the configuration, or the end of the gateway, ends active
// requests with a 503. It has Retry-After only if the request cannot have written anything.
func TestCutOff(t *testing.T) {
	for what, act := range map[string]func(w *world){
		"changed during the request": func(w *world) {
			w.write("tenancy.yaml", header+entry("eu1", ", root: true, identity: { withUID: true }"))
		},
		"is shutting down": func(w *world) { w.gateway.EndStreams(t.Context()) },
	} {
		for method, again := range map[string]string{http.MethodGet: "1", http.MethodPost: ""} {
			t.Run(what+" "+method, func(t *testing.T) {
				t.Parallel()
				w, c := rooted(t)
				came := make(chan struct{}, 1)
				c.become(func() {
					c.answer = func(_ http.ResponseWriter, r *http.Request) bool {
						came <- struct{}{}
						<-r.Context().Done()
						return true
					}
				})
				go func() { <-came; act(w) }()
				resp := w.open(t.Context(), "alice-token", method, podsPath, "")
				code, text := w.read(resp, nil)
				if code != http.StatusServiceUnavailable || !strings.Contains(text, what) ||
					resp.Header.Get("Retry-After") != again {
					t.Errorf("%d, again after %q: %s", code, resp.Header.Get("Retry-After"), text)
				}
			})
		}
	}
}

// TestReloadUnderLoad checks that no caller is authenticated by one configuration and mapped by
// another.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	w, c := rooted(t)
	w.write("others.csv", "alice-token,beta,u1,\"dev\",,acme\n")
	configs := []string{
		header + entry("eu1", ", root: true"),
		strings.Replace(header, "tokens.csv", "others.csv",
			1) + entry("eu1", ", root: true, identity: { usernamePrefix: \"b:\" }"),
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
			for _, r := range c.sent() {
				seen[r.Header.Get("Impersonate-User")]++
				if r.Header.Get("Impersonate-User") == want {
					return nil
				}
			}
			return errors.New("it does not count yet")
		})
	}
	stop()
	callers.Wait()
	for name := range seen {
		if name != "alice" && name != "b:beta" {
			t.Errorf("somebody was %s: %v", name, seen)
		}
	}
}

// TestKubeconfigsAreFollowed checks that a new credential applies, even if nothing else changes.
func TestKubeconfigsAreFollowed(t *testing.T) {
	t.Parallel()
	c := newStandIn(t, spaces())
	w := newWorld(t, entry("eu1", ", root: true"), map[string]*standIn{"eu1": c})
	c.kubeconfig(t, filepath.Join(w.dir, "eu1-imp"), "rotated-token")
	waittest.Until(t, func() error { return sendsAs(w, c, "rotated-token") })
	// From now on, the fake cluster accepts only the new token of the reader.
	c.become(func() { c.readerToken = "rotated-reader" })
	c.kubeconfig(t, filepath.Join(w.dir, "eu1-reader"), "rotated-reader")
	c.CloseClientConnections()
	c.set("later", "acme") // only the new token can read it
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/api/v1/namespaces/later/pods"); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, text)
		}
		return sendsAs(w, c, "rotated-token")
	})
}

// TestUselessKubeconfigsAreIgnored checks that the gateway keeps its credential if the new
// kubeconfig is invalid.
func TestUselessKubeconfigsAreIgnored(t *testing.T) {
	t.Parallel()
	other, _, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	authority, _ := pem.Decode(other)
	for what, write := range map[string]func(w *world, path string){
		"no kubeconfig": func(w *world, path string) { w.write(path, "{") },
		"nothing":       func(w *world, path string) { w.write(path, "") },
		"another cluster's": func(w *world, path string) {
			writeKubeconfig(w.t, filepath.Join(w.dir, path), "https://127.0.0.1:1", authority.Bytes, "x")
		},
		"without TLS": func(w *world, path string) {
			writeKubeconfig(w.t, filepath.Join(w.dir, path), "http://127.0.0.1:1", authority.Bytes, "x")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newStandIn(t, spaces())
			w := newWorld(t, entry("eu1", ", root: true"), map[string]*standIn{"eu1": c})
			write(w, "eu1-imp")
			// The gateway checks the file three times during this loop.
			for range 30 {
				time.Sleep(200 * time.Millisecond)
				if err := sendsAs(w, c, impersonatorToken); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// sendsAs sends a request as alice. It returns an error if the cluster does not receive the request
// with the gateway's token.
func sendsAs(w *world, c *standIn, token string) error {
	c.sent()
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
		return fmt.Errorf("%d: %s", code, text)
	}
	sent := c.sent()
	for _, r := range sent { // the transport repeats a request if its connection was closed
		if is := r.Header.Get("Authorization"); is != "Bearer "+token {
			return fmt.Errorf("it is sent as %s, not as %s", is, token)
		}
	}
	if len(sent) == 0 {
		return errors.New("it is not sent")
	}
	return nil
}

// changeImpersonator changes the user in the kubeconfig of eu1's impersonator.
func changeImpersonator(w *world, change func(*clientcmdapi.AuthInfo)) {
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

// shows sends a request as alice. It returns an error if the name in the gateway's client
// certificate does not have a prefix.
func shows(w *world, c *standIn, want string) error {
	c.sent()
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
		return fmt.Errorf("%d: %s", code, text)
	}
	came := c.sent()
	if len(came) == 0 {
		return errors.New("nothing came")
	}
	for _, r := range came {
		shown := ""
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			shown = certs[0].Subject.CommonName
		}
		if !strings.HasPrefix(shown, want) {
			return fmt.Errorf("it shows %q, not %q", shown, want)
		}
	}
	return nil
}

// TestPluginsAreAskedAgain checks that a plugin's credential is used until the cluster rejects it
// with 401. The rejected request gets 503 and not 401, because its caller is not at fault. The
// plugin then runs again: the next request has its new token, and its new certificate over a new
// connection.
func TestPluginsAreAskedAgain(t *testing.T) {
	t.Parallel()
	c := newStandIn(t, spaces())
	w := newWorld(t, entry("eu1", ", root: true"), map[string]*standIn{"eu1": c})
	says := func(token, name string) {
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
	knows := func(token string) {
		c.become(func() {
			c.answer = func(w http.ResponseWriter, r *http.Request) bool {
				known := r.Header.Get("Authorization") == "Bearer "+token
				if !known {
					w.WriteHeader(http.StatusUnauthorized)
				}
				return !known
			}
		})
	}
	says("first-token", "first")
	knows("first-token")
	changeImpersonator(w, func(u *clientcmdapi.AuthInfo) {
		*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion:      "client.authentication.k8s.io/v1",
			Command:         "cat",
			Args:            []string{filepath.Join(w.dir, "says.json")},
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	})
	waittest.Until(t, func() error { return shows(w, c, "first") })
	says("second-token", "second")
	if err := shows(w, c, "first"); err != nil {
		t.Errorf("it is asked before it has to be: %v", err)
	}
	knows("second-token")
	if code, text := w.get("alice-token", podsPath); code != http.StatusServiceUnavailable ||
		!strings.Contains(text, "did not authenticate the gateway") {
		t.Errorf("%d: %s", code, text)
	}
	waittest.Until(t, func() error { return shows(w, c, "second") })
}

// TestCertificatesAreFollowed checks that a renewed certificate file applies while connections use
// the old certificate. Streams on these connections continue.
func TestCertificatesAreFollowed(t *testing.T) {
	t.Parallel()
	c := newStandIn(t, spaces())
	w := newWorld(t, entry("eu1", ", root: true"), map[string]*standIn{"eu1": c})
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
	waittest.Until(t, func() error { return shows(w, c, "first") })
	// This keeps the old connection busy.
	watch := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
	defer func() { _ = watch.Body.Close() }()
	renew("second")
	waittest.Until(t, func() error { return shows(w, c, "second") })
	if !goesOn(read(watch)) {
		t.Error("what was open ended")
	}
}

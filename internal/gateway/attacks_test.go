// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/internal/gateway"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// http2Client is an HTTP/2 connection on which a test writes the frames itself.
type http2Client struct {
	*http2.Framer
	conn    *tls.Conn
	encoded bytes.Buffer
	encoder *hpack.Encoder
	host    string
	last    uint32 // ID of the last stream that was opened
}

// dialHTTP2 opens a framed connection to the gateway.
func (w *fixture) dialHTTP2() *http2Client {
	w.t.Helper()
	conn := w.dial("h2")
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		w.t.Fatal(err)
	}
	f := &http2Client{Framer: http2.NewFramer(conn, conn), conn: conn, host: strings.TrimPrefix(w.server.URL, "https://")}
	f.encoder = hpack.NewEncoder(&f.encoded)
	if err := f.WriteSettings(); err != nil {
		w.t.Fatal(err)
	}
	return f
}

// get sends a request on a new stream.
func (f *http2Client) get(token, path string) error {
	f.encoded.Reset()
	for name, value := range map[string]string{
		":method":    "GET",
		":scheme":    "https",
		":authority": f.host,
		":path":      path,
	} {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	_ = f.encoder.WriteField(hpack.HeaderField{Name: "authorization", Value: "Bearer " + token})
	if f.last += 2; f.last == 2 {
		f.last = 1
	}
	return f.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      f.last,
		BlockFragment: f.encoded.Bytes(),
		EndStream:     true,
		EndHeaders:    true,
	})
}

// drain reads all frames until the connection ends, and then sends the error that ended it.
func (f *http2Client) drain() <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			frame, err := f.ReadFrame()
			if away, ok := frame.(*http2.GoAwayFrame); ok && away.ErrCode != http2.ErrCodeNo {
				err = fmt.Errorf("GOAWAY: %v", away.ErrCode)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

// TestRapidReset checks a client that sends requests and resets them immediately
// (CVE-2023-44487). Before the resets, the cluster receives only as many requests as the tenant's
// limit allows. All requests end, and callers of other tenants get responses.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	// A random GOAWAY frame would close the connection too.
	w.write("tenancy.yaml",
		strings.Replace(configHeader, "timeout: 5s", "timeout: 5s, goawayPerMillion: 0", 1)+
			clusterEntry("eu1", ", root: true"))
	w.waitForStatus(http.StatusOK, "alice-token", podsPath)
	var open, most atomic.Int64
	c.update(func() {
		c.handler = func(_ http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, podsPath) {
				return false
			}
			now := open.Add(1)
			defer open.Add(-1)
			for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			<-r.Context().Done()
			return true
		}
	})
	f := w.dialHTTP2()
	ended := f.drain()
	const many = 200 // the server allows 250 streams on one connection
	for range many {
		if err := f.get("alice-token", podsPath); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, func() error {
		if n := open.Load(); n != 64 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	for begun := uint32(1); begun < 2*many; begun += 2 {
		if err := f.WriteRSTStream(begun, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 10_000 {
		if err := errors.Join(f.get("alice-token", podsPath), f.WriteRSTStream(f.last, http2.ErrCodeCancel)); err != nil {
			// The server of net/http closes the connection if streams arrive faster than they end.
			t.Logf("cut off after %d streams: %v", n, <-ended)
			break
		}
		if n%1000 == 0 {
			if code, text := w.get("bob-token", "/api/v1/namespaces/globex--shop/pods"); code != http.StatusOK {
				t.Errorf("another tenant: %d: %s", code, text)
			}
		}
	}
	if most.Load() > many { // the tenant's limit is 64; the cluster may not have received all resets yet
		t.Errorf("%d were open at the cluster", most.Load())
	}
	c.update(func() { c.handler = nil })
	waittest.Until(t, func() error {
		if n := open.Load(); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
		t.Errorf("afterwards: %d: %s", code, text)
	}
}

// openStalledWatches opens watches on one connection that the client does not read.
func openStalledWatches(t *testing.T, streams int64) (open *atomic.Int64, w *fixture, f *http2Client) {
	t.Helper()
	c := newFakeCluster(t, defaultNamespaces())
	w = newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	w.write("tenancy.yaml", strings.Replace(configHeader, "watches: 4",
		fmt.Sprintf("watches: %d", streams), 1)+clusterEntry("eu1", ", root: true"))
	w.waitForStatus(http.StatusOK, "alice-token", podsPath)
	open = &atomic.Int64{}
	c.update(func() {
		c.handler = func(w http.ResponseWriter, r *http.Request) bool {
			if !r.URL.Query().Has("watch") {
				return false
			}
			open.Add(1)
			defer open.Add(-1)
			writeChunks(w, 64<<20)
			return true
		}
	})
	f = w.dialHTTP2()
	for range streams {
		if err := f.get("alice-token", podsPath+"?watch=1"); err != nil {
			t.Fatal(err)
		}
	}
	return open, w, f
}

// TestStalledReadersUseLittleMemory checks that streams that the client does not read use little
// memory, although the cluster sends 64 MiB on each stream.
func TestStalledReadersUseLittleMemory(t *testing.T) {
	const streams = 200
	if held := heapGrowth(func() {
		open, w, f := openStalledWatches(t, streams)
		waittest.Until(t, func() error {
			if n := open.Load(); n < streams {
				return fmt.Errorf("%d are open", n)
			}
			return nil
		})
		if code, text := w.get("bob-token", "/api/v1/namespaces/globex--shop/pods"); code != http.StatusOK {
			t.Errorf("another tenant: %d: %s", code, text)
		}
		time.Sleep(2 * time.Second) // let the buffers fill
		_ = f.conn.Close()
		waittest.Until(t, func() error {
			if n := open.Load(); n > 0 {
				return fmt.Errorf("%d are open", n)
			}
			return nil
		})
	}); held > maxHeapGrowth {
		t.Errorf("%d MiB are held", held>>20)
	}
}

// TestStalledReadersAreDisconnected checks that streams that the client does not read end within a
// minute.
func TestStalledReadersAreDisconnected(t *testing.T) {
	t.Parallel()
	open, _, _ := openStalledWatches(t, 20)
	waittest.Until(t, func() error {
		if n := open.Load(); n < 20 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	waittest.Within(t, time.Minute, func() error {
		if n := open.Load(); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
}

// TestRecreatedNamespaceEndsStreams checks that streams in a namespace end when the namespace is
// deleted and created again, for another tenant or for the same tenant.
func TestRecreatedNamespaceEndsStreams(t *testing.T) {
	for _, owner := range []string{"globex", "acme"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			w, c := newRootFixture(t)
			c.update(func() { c.handler = echo(t) })
			_, reader := w.openUpgrade()
			ended := streamEnd(&http.Response{Body: io.NopCloser(reader)})
			if !isActive(ended) {
				t.Fatal("the stream ended before the namespace was recreated")
			}
			c.recreate("acme--web", owner)
			select {
			case <-ended:
			case <-time.After(eventTimeout):
				t.Error("the stream did not end")
			}
		})
	}
}

// TestCollectionsHaveTenantSelector checks that requests over all namespaces are forwarded with the
// tenant's label in their selector. A deletion therefore affects only the tenant's own objects. The
// continue token of another list is rejected. While labels are not verified, the gateway forwards
// no request over all namespaces.
func TestCollectionsHaveTenantSelector(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	requests := map[string]string{
		"a list": "GET /api/v1/pods",
		"a page of another list": "GET /api/v1/pods?limit=1&" +
			"continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJnbG9iZXgtLXNob3AvcCJ9",
		"a deletion":                 "DELETE /api/v1/pods",
		"a deletion with a selector": "DELETE /api/v1/pods?labelSelector=a%3Db",
	}
	for what, r := range requests {
		t.Run(what+" while labels are not verified", func(t *testing.T) {
			method, path, _ := strings.Cut(r, " ")
			if code, text := w.do("alice-token", method, path, ""); code != http.StatusForbidden || len(c.takeRequests()) > 0 {
				t.Errorf("%d: %s", code, text)
			}
		})
	}
	c.setBackfill(`{"pods":[]}`)
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/api/v1/pods"); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
	c.takeRequests()
	for what, r := range requests {
		t.Run(what+" after labels are verified", func(t *testing.T) {
			method, path, _ := strings.Cut(r, " ")
			code, text := w.do("alice-token", method, path, "")
			sent := c.takeRequests()
			if strings.Contains(path, "continue") { // the gateway did not issue this continue token
				if code != http.StatusGone || len(sent) > 0 {
					t.Errorf("%d: %s, %d requests forwarded", code, text, len(sent))
				}
				return
			}
			if code != http.StatusOK || len(sent) != 1 {
				t.Errorf("%d: %s, %d requests forwarded", code, text, len(sent))
				return
			}
			selector := sent[0].URL.Query()["labelSelector"]
			if len(selector) != 1 || !strings.Contains(selector[0], "kubetenant.dev/tenant=acme") ||
				strings.Contains(path, "labelSelector") != strings.Contains(selector[0], "a=b") {
				t.Errorf("forwarded with the selector %v", selector)
			}
		})
	}
}

// TestInvalidConfigurationsAreRejected checks that a configuration is rejected if only
// kube-apiserver supports it, or if it would record bodies.
func TestInvalidConfigurationsAreRejected(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	for what, of := range map[string]struct{ config, want string }{
		"front proxy": {
			strings.Replace(configHeader, "  sources:\n", "  sources:\n  - { name: proxy, tenants: [acme], frontProxy: {} }\n",
				1) + clusterEntry("eu1", ""),
			"frontProxy",
		},
		"no gateway section": {configHeader[:strings.Index(configHeader, "gateway:")], "gateway"},
		"request bodies in the log": {
			configHeader + clusterEntry("eu1", "") + "  audit: { policyFile: bodies.yaml, logPath: audit.log }\n", "Request",
		},
		"response bodies in the log": {
			configHeader + clusterEntry("eu1", "") + "  audit: { policyFile: answers.yaml, logPath: audit.log }\n",
			"RequestResponse",
		},
	} {
		t.Run(what, func(t *testing.T) {
			w.write("bodies.yaml",
				"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: Metadata, verbs: [get] }, { level: Request } ]\n")
			w.write("answers.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: RequestResponse } ]\n")
			w.write("other.yaml", of.config)
			ctx, stop := context.WithCancel(t.Context())
			_, err := gateway.Open(ctx, filepath.Join(w.dir, "other.yaml"),
				gateway.Options{Register: func(metrics.Registerable) error { return nil }})
			stop()
			if err == nil || !strings.Contains(err.Error(), of.want) || errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestUnreadRejectionsAreReset checks that responses to malformed or unauthenticated requests are
// reset within seconds if the client does not read them. Until then, they delay no other caller
// at the same address.
func TestUnreadRejectionsAreReset(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	for path, many := range map[string]int{
		podsPath:   1, // the 401 also closes the connection
		"/api//v1": 100,
	} {
		t.Run(path, func(t *testing.T) {
			f := w.dialHTTP2()
			if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
				t.Fatal(err)
			}
			for range many {
				if err := f.get("nobody", path); err != nil {
					t.Fatal(err)
				}
			}
			for range 5 {
				if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
					t.Errorf("another caller: %d %s", code, text)
				}
			}
			if err := f.conn.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
				t.Fatal(err)
			}
			for reset := map[uint32]bool{}; len(reset) < many; {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatalf("%d of %d responses were reset: %v", len(reset), many, err)
				}
				if frame.Header().Type == http2.FrameRSTStream {
					reset[frame.Header().StreamID] = true
				}
			}
		})
	}
}

// TestAuthenticatedCallersUseNoLimit checks that a request uses the limits of unauthenticated
// requests only until its caller is authenticated or rejected. It also checks that the gateway
// removes cookies from the request.
func TestAuthenticatedCallersUseNoLimit(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	var during atomic.Int64
	c.update(func() {
		c.handler = func(http.ResponseWriter, *http.Request) bool {
			during.Store(int64(w.gateway.Unauthenticated()) + 1)
			return false
		}
	})
	for token, want := range map[string]int{"alice-token": http.StatusOK, "nobody": http.StatusUnauthorized} {
		t.Run(token, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, podsPath, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Cookie", "a=b")
			answer := httptest.NewRecorder()
			if w.gateway.ServeHTTP(answer, r); answer.Code != want || r.Header.Get("Cookie") != "" {
				t.Errorf("%d, want %d, with cookies %q", answer.Code, want, r.Header.Get("Cookie"))
			}
		})
	}
	if during.Load() != 1 || w.gateway.Unauthenticated() != 0 {
		t.Errorf("%d unauthenticated during the response, %d afterwards", during.Load()-1, w.gateway.Unauthenticated())
	}
}

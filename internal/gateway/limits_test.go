// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestLimits checks the limits on a tenant's concurrent requests and on the size of a body. Other
// tenants can still send requests.
func TestLimits(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c})
	limits := strings.NewReplacer("timeout: 5s", "timeout: 30s, bodyBytes: 1000", "watches: 4", "inFlight: 2")
	w.write("tenancy.yaml", limits.Replace(configHeader)+clusterEntry("eu1", ", root: true"))
	post := func(token, namespace string, size int) (int, string) {
		return w.do(token, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", strings.Repeat("x", size))
	}
	waittest.Until(t, func() error { // until the configuration applies
		if code, text := post("alice-token", "acme--web", 1001); code != http.StatusRequestEntityTooLarge {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
	w.waitForStatus(http.StatusOK, "alice-token", podsPath)
	if code, text := post("alice-token", "acme--web", 1000); code != http.StatusOK {
		t.Errorf("a body of the largest size: %d: %s", code, text)
	}
	holding, release := make(chan struct{}, 2), make(chan struct{})
	c.update(func() {
		c.handler = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Has("hold") {
				holding <- struct{}{}
				<-release
			}
			return false
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, 2)
	for range 2 {
		go func() {
			resp := w.open(ctx, "alice-token", http.MethodGet, podsPath+"?hold=1", "")
			_ = resp.Body.Close()
			ended <- struct{}{}
		}()
	}
	<-holding
	<-holding
	if code, text := w.get("alice-token", podsPath); code != http.StatusTooManyRequests {
		t.Errorf("a third request: %d: %s", code, text)
	}
	if code, text := w.get("bob-token", "/api/v1/namespaces/globex--shop/pods"); code != http.StatusOK {
		t.Errorf("another tenant's: %d: %s", code, text)
	}
	close(release)
	<-ended
	<-ended
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
		t.Errorf("after both requests have ended: %d: %s", code, text)
	}
}

// TestUpgradeDoesNotBypassLimits checks that an Upgrade header cannot turn a request into a
// stream. A stream has other limits, and does not wait in the queue.
func TestUpgradeDoesNotBypassLimits(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c})
	w.waitForStatus(http.StatusOK, "alice-token", podsPath)
	c.takeRequests()
	for path, refused := range map[string]bool{
		podsPath:                    true,
		podsPath + "/p":             true,
		"/api/v1/namespaces":        true,
		podsPath + "?watch=1":       false,
		podsPath + "/p/exec":        false,
		podsPath + "/p/portforward": false,
	} {
		t.Run(path, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				if !refused && method == http.MethodDelete {
					continue
				}
				resp := w.open(t.Context(), "alice-token", method, path, "", "Connection", "Upgrade", "Upgrade", "websocket")
				_ = resp.Body.Close()
				if (resp.StatusCode == http.StatusBadRequest) != refused {
					t.Errorf("%s %s with an upgrade: %s", method, path, resp.Status)
				}
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/internal/gateway"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestShutdownEndsStreams checks a gateway that stops. It ends watches without an error, rejects
// new streams, and lets upgraded connections continue for a while.
func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	c.update(func() { c.handler = echo(t) })
	watch := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
	defer func() { _ = watch.Body.Close() }()
	conn, reader := w.openUpgrade()
	ended := make(chan struct{})
	go func() { defer close(ended); w.gateway.EndStreams(t.Context()) }()
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Errorf("the watch: %v", err)
	}
	for _, path := range []string{podsPath + "?watch=1", podsPath + "/p/log?follow=true"} {
		again := w.open(t.Context(), "alice-token", http.MethodGet, path, "")
		_ = again.Body.Close()
		if again.StatusCode != http.StatusServiceUnavailable || again.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s, Retry-After %q", path, again.Status, again.Header.Get("Retry-After"))
		}
	}
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK { // other requests are still handled
		t.Errorf("a request that is not a stream: %d: %s", code, text)
	}
	if _, err := io.WriteString(conn, "still here"); err != nil {
		t.Error(err)
	}
	echoed := make([]byte, len("still here"))
	if _, err := io.ReadFull(reader, echoed); err != nil || string(echoed) != "still here" {
		t.Errorf("the upgraded connection: %q, %v", echoed, err)
	}
	select {
	case <-ended:
		t.Error("EndStreams did not wait for the upgraded connection")
	default:
	}
	_ = conn.Close()
	select {
	case <-ended:
	case <-time.After(eventTimeout):
		t.Error("EndStreams did not return")
	}
}

// TestShutdownEndsUpgrades checks that EndStreams ends upgraded connections when its context ends.
func TestShutdownEndsUpgrades(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	c.update(func() { c.handler = echo(t) })
	_, reader := w.openUpgrade()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w.gateway.EndStreams(ctx)
	if n, err := io.Copy(io.Discard, reader); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the upgraded connection did not end: %d bytes, %v", n, err)
	}
}

// TestReadyAfterSync checks that a gateway is not ready until its caches of all clusters have
// synced. A cluster that becomes unreachable later does not change this.
func TestReadyAfterSync(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	waittest.Until(t, func() error { return w.gateway.CheckReady(nil) })
	c.CloseClientConnections()
	c.Close()
	if err := w.gateway.CheckReady(nil); err != nil {
		t.Errorf("while a cluster is unreachable: %v", err) // other clusters must not be affected
	}
	fresh, err := gateway.Open(t.Context(), filepath.Join(w.dir, "tenancy.yaml"),
		gateway.Options{Register: func(metrics.Registerable) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := fresh.CheckReady(nil); err == nil {
		t.Error("the gateway is ready before its caches have synced")
	}
}

// TestReadyGatewayDecides checks that a gateway decides the requests of tenants as soon as it is
// ready. Otherwise, a load balancer would send requests to a gateway that denies them.
func TestReadyGatewayDecides(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	for range 3 {
		fresh, err := gateway.Open(t.Context(), filepath.Join(w.dir, "tenancy.yaml"),
			gateway.Options{Register: func(metrics.Registerable) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		for fresh.CheckReady(nil) != nil { // the interval of waittest would hide a short delay
			time.Sleep(time.Millisecond)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/acme--web/pods", http.NoBody)
		r.Header.Set("Authorization", "Bearer alice-token")
		answer := httptest.NewRecorder()
		fresh.ServeHTTP(answer, r)
		if answer.Code != http.StatusOK {
			t.Errorf("%d: %s", answer.Code, answer.Body)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/webhook/service"
)

// kubeAPIServer and pod are loopback addresses from which the clients connect.
const kubeAPIServer, pod = "127.0.0.1", "127.0.0.2"

// dialFrom connects to a server from the given address.
func dialFrom(t *testing.T, address string, server *httptest.Server) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext(t.Context(), "tcp",
		server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// postFrom sends a body from an address and returns the status.
func postFrom(t *testing.T, address string, server *httptest.Server, path, body string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives:     true,
		ExpectContinueTimeout: time.Minute,
		DialContext:           (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	// Without this header, a server that rejects the request can close the connection while the
	// client writes the body.
	r.Header.Set("Expect", "100-continue")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestAnonymousClientsAreRestricted checks that a service that does not authenticate its clients
// handles only AdmissionReviews, and only from the configured networks.
func TestAnonymousClientsAreRestricted(t *testing.T) {
	w := newFixture(t)
	_, network, err := net.ParseCIDR(kubeAPIServer + "/32")
	if err != nil {
		t.Fatal(err)
	}
	w.Anonymous = &service.Anonymous{From: []net.IPNet{*network}}
	server := httptest.NewServer(w.handler(t))
	t.Cleanup(server.Close)
	small := admissionReview("CREATE", configMap(""), "")
	large := admissionReview("CREATE",
		strings.Replace(configMap(""), `"n":"1"`, `"n":"`+strings.Repeat("x", 100<<10)+`"`, 1), "")
	for name, c := range map[string]struct {
		from, path, body string
		want             int
	}{
		"a mutation":         {kubeAPIServer, service.MutatePath, small, http.StatusOK},
		"a large validation": {kubeAPIServer, service.ValidatePath, large, http.StatusOK},
		"an authentication": {
			kubeAPIServer,
			service.AuthenticatePath,
			tokenReview("v1", token),
			http.StatusNotFound,
		},
		"an authorization": {
			kubeAPIServer,
			service.AuthorizePath,
			access("v1", "groups", "a--web"),
			http.StatusNotFound,
		},
		"a mutation from a pod":         {pod, service.MutatePath, small, http.StatusNotFound},
		"a slash after the path":        {pod, service.MutatePath + "/", small, http.StatusNotFound},
		"a large validation from a pod": {pod, service.ValidatePath, large, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if got := postFrom(t, c.from, server, c.path, c.body); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestUnsentBodiesDoNotBlockOthers checks that clients that announce a body but do not send it do
// not block other clients.
func TestUnsentBodiesDoNotBlockOthers(t *testing.T) {
	w := newFixture(t)
	w.Anonymous = &service.Anonymous{}
	server := httptest.NewServer(w.handler(t))
	t.Cleanup(server.Close)
	for range 300 { // more than the memory limit allows
		conn := dialFrom(t, pod, server)
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
			service.ValidatePath, w.Limits.BodyBytes, strings.Repeat(" ", 32<<10)); err != nil {
			t.Fatal(err)
		}
	}
	slow := dialFrom(t, "127.0.0.3", server)
	if _, err := fmt.Fprintf(slow, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
		service.ValidatePath, w.Limits.BodyBytes, strings.Repeat(" ", 32<<10)); err != nil {
		t.Fatal(err)
	}
	large := admissionReview("CREATE",
		strings.Replace(configMap(""), `"n":"1"`, `"n":"`+strings.Repeat("x", 100<<10)+`"`, 1), "")
	for _, body := range []string{admissionReview("CREATE", configMap(""), ""), large} {
		if got := postFrom(t, kubeAPIServer, server, service.ValidatePath, body); got != http.StatusOK {
			t.Errorf("a review of %d bytes: %d", len(body), got)
		}
	}
	if err := slow.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil { // the test server sets no deadline
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a body that was not sent: %v, %v", resp, err)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// echoHandler hijacks a connection, as the handler of exec does, and returns the bytes that it
// receives.
func echoHandler(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// The handlers of upstream wrap the writer too.
		w = responsewriter.WrapForHTTP1Or2(&wrappedWriter{w})
		hijacker, ok := w.(http.Hijacker)
		if !ok {
			http.Error(w, "nothing to take over", http.StatusNotImplemented)
			return
		}
		conn, buffered, err := hijacker.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(conn, buffered)
	})
}

type wrappedWriter struct{ http.ResponseWriter }

func (d *wrappedWriter) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// TestHijackedConnectionsClose checks that a hijacked connection closes when its session ends, and
// not before.
func TestHijackedConnectionsClose(t *testing.T) {
	a := tenanttest.ID(t, "a")
	web := func(owner string) *corev1.Namespace {
		return &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "a--web", Labels: map[string]string{tenant.Label: owner}},
		}
	}
	const pod = "/api/v1/namespaces/a--web/pods/p/"
	for _, target := range []string{
		pod + "exec?command=sh", pod + "attach", pod + "portforward", pod + "proxy/",
		"/api/v1/namespaces/a--web/services/s/proxy/x",
	} {
		for name, c := range map[string]struct {
			user user.Info
			act  func(*authz.Sessions)
			ends bool
		}{
			"the namespace gets another owner": {
				callerOf("a"), func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnUpdate(web("a"), web("b")) }, true,
			},
			"the namespace is deleted": {
				callerOf("a"), func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnDelete(web("a")) }, true,
			},
			"the tenant's access becomes stricter": {callerOf("a"), func(s *authz.Sessions) { s.EndTenants(isTenant(a)) }, true},
			"the caller is revoked": {
				callerOf("a"), func(s *authz.Sessions) { s.EndRevoked(func(c *authz.Caller) bool { return c.Tenant == a }) }, true,
			},
			"a system caller is revoked": {
				callerOf("system"),
				func(s *authz.Sessions) { s.EndRevoked(func(c *authz.Caller) bool { return c.Tenant.IsSystem() }) },
				true,
			},
			"another tenant's access becomes stricter": {
				callerOf("a"), func(s *authz.Sessions) { s.EndTenants(isTenant(tenanttest.ID(t, "b"))) }, false,
			},
			"another caller is revoked": {
				callerOf("a"), func(s *authz.Sessions) { s.EndRevoked(func(*authz.Caller) bool { return false }) }, false,
			},
			"the owner does not change": {
				callerOf("a"), func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnUpdate(web("a"), web("a")) }, false,
			},
			"system caller, all tenants' access": {
				callerOf("system"), func(s *authz.Sessions) { s.EndTenants(func(tenant.ID) bool { return true }) }, false,
			},
			"system caller, the tenant's access": {
				callerOf("system"),
				func(s *authz.Sessions) { s.EndTenants(isTenant(a)) },
				false,
			},
		} {
			t.Run(target+" "+name, func(t *testing.T) {
				t.Parallel()
				s := allowingServer(labeledOptions())
				served := httptest.NewServer(s.chain(c.user, echoHandler(t)))
				defer served.Close()
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", served.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				if _, err := io.WriteString(conn,
					"POST "+target+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				from := bufio.NewReader(conn)
				for line := ""; line != "\r\n"; {
					if line, err = from.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				if got := pingPong(t, conn, from); got != nil {
					t.Fatal("before the change:", got)
				}
				c.act(&s.sessions)
				err = pingPong(t, conn, from)
				for begun := time.Now(); c.ends && err == nil && time.Since(begun) < time.Minute; { // closes asynchronously
					err = pingPong(t, conn, from)
				}
				switch {
				case c.ends && err == nil, c.ends && errors.Is(err, os.ErrDeadlineExceeded):
					t.Errorf("the connection did not close: %v", err)
				case !c.ends && err != nil:
					t.Errorf("the connection closed: %v", err)
				}
			})
		}
	}
}

func isTenant(id tenant.ID) func(tenant.ID) bool {
	return func(other tenant.ID) bool { return other == id }
}

// pingPong sends a byte and waits until the same byte arrives.
func pingPong(t *testing.T, conn net.Conn, from *bufio.Reader) error {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := from.ReadByte()
	return err
}

// TestHTTP2ConnectionsAreNotHijacked checks that HTTP/2 connections cannot be hijacked, with or
// without the filter.
func TestHTTP2ConnectionsAreNotHijacked(t *testing.T) {
	s := allowingServer(labeledOptions())
	served := httptest.NewUnstartedServer(s.chain(callerOf("a"), echoHandler(t)))
	served.EnableHTTP2 = true
	served.StartTLS()
	defer served.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		served.URL+"/api/v1/namespaces/a--web/pods/p/exec", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{
		Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	} // #nosec G402 -- of this test
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.ProtoMajor != 2 || answer.StatusCode != http.StatusNotImplemented {
		t.Errorf("%s: %s", answer.Proto, answer.Status)
	}
}

// TestUnknownWritersCannotBeHijacked checks that a handler cannot hijack a connection if the
// boundary could not close it.
func TestUnknownWritersCannotBeHijacked(t *testing.T) {
	s := allowingServer(labeledOptions())
	hijacked := false
	w := &hijackOnly{ResponseWriter: httptest.NewRecorder(), hijacked: &hijacked}
	s.chain(callerOf("a"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if h, ok := w.(http.Hijacker); ok {
			_, _, _ = h.Hijack()
		}
	})).ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost,
		"/api/v1/namespaces/a--web/pods/p/exec", http.NoBody))
	if hijacked {
		t.Error("hijacked a connection that the boundary could not close")
	}
}

type hijackOnly struct {
	http.ResponseWriter
	hijacked *bool
}

func (h *hijackOnly) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	*h.hijacked = true
	return nil, nil, errors.ErrUnsupported
}

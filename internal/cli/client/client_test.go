// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestExplain checks that the error for each connection problem is one line with the remedy, and
// that it wraps its cause.
func TestExplain(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		<-r.Context().Done() // no response
	}))
	defer server.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config *rest.Config
		want   string
	}{
		"no server":         {&rest.Config{Host: "https://" + closed.Addr().String()}, "connection to "},
		"unknown host name": {&rest.Config{Host: "https://nowhere.invalid:6443"}, "cannot resolve nowhere.invalid"},
		"unknown authority": {&rest.Config{Host: server.URL}, "an unknown authority"},
		"no response": {
			&rest.Config{
				Host:            server.URL,
				Timeout:         50 * time.Millisecond,
				TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			},
			"did not respond in time",
		},
		"rejected token": {
			&rest.Config{Host: server.URL, BearerToken: "a-secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
			"credential",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // ignore HTTPS_PROXY
			k, err := kubernetes.NewForConfig(c.config)
			if err != nil {
				t.Fatal(err)
			}
			_, cause := k.CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{})
			if cause == nil {
				t.Fatal("no error")
			}
			got := (&client.Cluster{Config: c.config}).Explain(cause)
			if text := got.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "\n") ||
				strings.Contains(text, "a-secret") || !errors.Is(got, cause) {
				t.Errorf("%q, want %q, of %v", text, c.want, cause)
			}
		})
	}
	cluster := &client.Cluster{Config: &rest.Config{Host: "https://example.com"}}
	if err := cluster.Explain(nil); err != nil {
		t.Error(err)
	}
	if err := cluster.Explain(context.Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := cluster.Explain(apierrors.NewBadRequest("two\n  lines")); err.Error() != "two lines" {
		t.Errorf("%q", err)
	}
}

// TestNames checks that the error for an invalid name contains the flag.
func TestNames(t *testing.T) {
	for name, c := range map[string]struct {
		check func(flag, name string) error
		good  []string
		bad   []string
	}{
		"user":      {client.CheckUser, []string{"alice", "system:serviceaccount:acme--web:robot"}, []string{"", "a\nb"}},
		"namespace": {client.CheckNamespace, []string{"acme--web"}, []string{"", "Acme", "a/b", strings.Repeat("a", 64)}},
		"object":    {client.CheckObject, []string{"web.acme"}, []string{"", "a/b", ".."}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, good := range c.good {
				if err := c.check("--x", good); err != nil {
					t.Errorf("%s %q: %v", name, good, err)
				}
			}
			for _, bad := range c.bad {
				if err := c.check("--x", bad); err == nil || !strings.Contains(err.Error(), "--x") {
					t.Errorf("%s %q: %v", name, bad, err)
				}
			}
		})
	}
	if id, err := client.ParseTenant("--tenant", "acme"); err != nil || id.String() != "acme" {
		t.Error(id, err)
	}
	if _, err := client.ParseTenant("--tenant", "SYSTEM"); !errors.Is(err, tenant.ErrInvalid) ||
		!strings.Contains(err.Error(), "--tenant") {
		t.Error(err)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestRedirectsStayBehindTheGateway checks that a redirect is rewritten to a path of the same
// cluster behind the gateway. Redirects to other addresses are rejected.
func TestRedirectsStayBehindTheGateway(t *testing.T) {
	for name, c := range map[string]struct{ server, prefix, location, want string }{
		"a path":                {"https://a:6443", "", "/api/v1/x", "/api/v1/x"},
		"a path below a prefix": {"https://a:6443", "/clusters/eu1", "/api/v1/x?a=b#c", "/clusters/eu1/api/v1/x?a=b#c"},
		"the server itself": {
			"https://a:6443",
			"/clusters/eu1/tenants/acme",
			"https://a:6443/api/",
			"/clusters/eu1/tenants/acme/api/",
		},
		"below the server's path":            {"https://a/k8s/c-1", "/clusters/eu1", "/k8s/c-1/api", "/clusters/eu1/api"},
		"a longer name of the server's path": {"https://a/k8s/c-1", "/clusters/eu1", "/k8s/c-12/api", ""},
		"another server's path":              {"https://a/k8s/c-1", "/clusters/eu1", "/k8s/c-2/api", ""},
		"a relative path":                    {"https://a:6443", "/clusters/eu1", "next", "next"},
		"another host":                       {"https://a:6443", "", "https://evil/", ""},
		"another scheme":                     {"https://a:6443", "", "http://a:6443/", ""},
		"another host without a scheme":      {"https://a:6443", "", "//evil/", ""},
		"a slash and a backslash":            {"https://a:6443", "", `/\evil/`, ""},
		"two backslashes":                    {"https://a:6443", "", `\\evil`, ""},
		"two slashes after the server":       {"https://a:6443", "", "https://a:6443//evil/", ""},
		"credentials in the URL":             {"https://a:6443", "", "https://u:p@a:6443/x", "/x"},
		"a script":                           {"https://a:6443", "", "javascript:alert(1)", ""},
		"an invalid escape":                  {"https://a:6443", "", "%zz", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := url.Parse(c.server)
			if err != nil {
				t.Fatal(err)
			}
			got, err := (&route{server: server}).rewriteLocation(c.location, c.prefix)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// FuzzLocate checks that no rewritten Location leads to another host, or contains a backslash,
// which browsers interpret as a slash.
func FuzzLocate(f *testing.F) {
	for _, seed := range []string{
		"/x", "//evil", "https://evil/", `/\evil`, "https://a//evil", "?x", "#x", "http:evil", "\t//evil", "/%2f/evil",
	} {
		f.Add(seed)
	}
	server := &url.URL{Scheme: "https", Host: "a"}
	f.Fuzz(func(t *testing.T, location string) {
		for _, prefix := range []string{"", "/clusters/c"} {
			got, err := (&route{server: server}).rewriteLocation(location, prefix)
			if err != nil {
				continue
			}
			u, err := (&url.URL{Scheme: "https", Host: "gateway", Path: "/clusters/c/x"}).Parse(got)
			if err != nil || u.Host != "gateway" || u.Scheme != "https" || strings.HasPrefix(got, "//") ||
				strings.Contains(got, `\`) {
				t.Errorf("%q leads to %q: %v, %v", location, got, u, err)
			}
		}
	})
}

// TestStreamBodyEndsWithSession checks that buffered data of a stream is dropped when the
// stream's session has ended, and that reading then returns io.EOF.
func TestStreamBodyEndsWithSession(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	body := &endedBody{io.NopCloser(strings.NewReader("first, second")), ctx}
	text := make([]byte, 5)
	if n, err := body.Read(text); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	end()
	if n, err := body.Read(text); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestUnauthorizedInEachEncoding checks that a 401 response from the cluster is recognized in
// each encoding.
func TestUnauthorizedInEachEncoding(t *testing.T) {
	status := &apierrors.NewUnauthorized("Unauthorized").ErrStatus
	for _, info := range codecs().SupportedMediaTypes() {
		var text bytes.Buffer
		if err := codecs().EncoderForVersion(info.Serializer, schemaVersion).Encode(status, &text); err != nil {
			t.Fatal(err)
		}
		if !isUnauthorized(text.Bytes()) {
			t.Errorf("%s: not recognized as a 401 response", info.MediaType)
		}
	}
	for _, text := range []string{
		"", "no", "{}", `{"kind":"Status","apiVersion":"v1","reason":"Forbidden"}`,
		`{"kind":"Pod","apiVersion":"v1","reason":"Unauthorized"}`, `<html>Unauthorized`,
	} {
		if isUnauthorized([]byte(text)) {
			t.Errorf("%q is recognized as a 401 response", text)
		}
	}
}

// TestRemovedPathPrefix checks the prefix that the gateway removes from a path. In an older tenant
// path, the tenant is in the middle and is not part of the prefix.
func TestRemovedPathPrefix(t *testing.T) {
	for name, c := range map[string]struct{ cluster, came, rest, want string }{
		"a cluster": {"eu1", "/clusters/eu1/api/v1/pods", "/api/v1/pods", "/clusters/eu1"},
		"a tenant of a cluster": {
			"eu1",
			"/clusters/eu1/tenants/acme/api/v1/pods",
			"/api/v1/pods",
			"/clusters/eu1/tenants/acme",
		},
		"a tenant":                 {"eu1", "/tenants/acme/api/v1/pods", "/api/v1/pods", "/tenants/acme"},
		"no prefix":                {"eu1", "/api/v1/pods", "/api/v1/pods", ""},
		"a cluster without a path": {"eu1", "/clusters/eu1", "/", "/clusters/eu1"},
		"a cluster, and a tenant in the path": {
			"eu1",
			"/clusters/eu1/api/v1/tenants/acme/namespaces/n/services/s/proxy",
			"/api/v1/namespaces/n/services/s/proxy",
			"/clusters/eu1",
		},
		"only a tenant in the path": {
			"eu1",
			"/api/v1/tenants/acme/namespaces/n/services/s/proxy",
			"/api/v1/namespaces/n/services/s/proxy",
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := prefixOf(&proxyState{route: &route{name: c.cluster}, path: c.came}, c.rest); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestPageRequestsKeepOnlyBearerTokens checks that the gateway removes all credentials except a
// bearer token from the request of a web page.
func TestPageRequestsKeepOnlyBearerTokens(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://gateway/", http.NoBody)
	r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{{}}, [][]*x509.Certificate{{{}}}
	r.Header.Set("Authorization", "Basic eDp5")
	out := withoutBrowserCredentials(r)
	if len(out.TLS.PeerCertificates)+len(out.TLS.VerifiedChains) > 0 || out.Header.Get("Authorization") != "" {
		t.Errorf("%v, %v", out.TLS.PeerCertificates, out.Header)
	}
	if len(r.TLS.PeerCertificates) == 0 {
		t.Error("the certificates were also removed from the connection")
	}
	r.Header.Set("Authorization", "Bearer x")
	if out := withoutBrowserCredentials(r); out.Header.Get("Authorization") != "Bearer x" {
		t.Errorf("%v", out.Header)
	}
}

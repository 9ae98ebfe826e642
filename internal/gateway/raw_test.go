// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
)

// TestCheckRaw checks that requests that two parsers could interpret differently are rejected.
func TestCheckRaw(t *testing.T) {
	for raw, want := range map[string]int{
		"GET /api/v1/pods HTTP/1.1\r\n":                                            0,
		"GET /api/v1/pods?limit=5&a=%3B HTTP/1.1\r\n":                              0,
		"GET /api/v1/pods/ HTTP/1.1\r\n":                                           0,
		"GET / HTTP/1.1\r\n":                                                       0,
		"GET /api/v1/pods?a;labelSelector= HTTP/1.1\r\n":                           400,
		"GET /api/v1/pods?a=%zz HTTP/1.1\r\n":                                      400,
		"GET /api//v1/pods HTTP/1.1\r\n":                                           400,
		"GET //api/v1/pods HTTP/1.1\r\n":                                           400,
		"GET /api/v1/./pods HTTP/1.1\r\n":                                          400,
		"GET /api/v1/../pods HTTP/1.1\r\n":                                         400,
		"GET /api/v1/pods/.. HTTP/1.1\r\n":                                         400,
		"GET /api/v1/..%2fpods HTTP/1.1\r\n":                                       400,
		"GET /api/v1/..%2Fpods HTTP/1.1\r\n":                                       400,
		"GET /api/v1/%2e%2e/pods HTTP/1.1\r\n":                                     400,
		"GET /api/v1/%2E/pods HTTP/1.1\r\n":                                        400,
		"GET /api/v1/pods%5c HTTP/1.1\r\n":                                         400,
		"GET /api/v1/pods\\x HTTP/1.1\r\n":                                         400,
		"GET /api/v1/pods%00 HTTP/1.1\r\n":                                         400,
		"OPTIONS * HTTP/1.1\r\n":                                                   400,
		"TRACE /api HTTP/1.1\r\n":                                                  405,
		"CONNECT evil:443 HTTP/1.1\r\n":                                            405,
		"GET /x HTTP/1.1\r\nUpgrade: h2c\r\n":                                      400,
		"GET /x HTTP/1.1\r\nUpgrade: websocket\r\n":                                0,
		"GET /x HTTP/1.1\r\nUpgrade: SPDY/3.1\r\n":                                 0,
		"GET /x HTTP/1.1\r\nUpgrade: websocket, h2c\r\n":                           400,
		"GET /x HTTP/1.1\r\nUpgrade: websocket\r\nUpgrade: a\r\n":                  400,
		"POST /x HTTP/1.1\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n":           0,
		"POST /x HTTP/1.1\r\nUpgrade: SPDY/3.1\r\nContent-Length: 1\r\n":           400,
		"POST /x HTTP/1.1\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n": 400,
	} {
		t.Run(raw, func(t *testing.T) {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + "Host: x\r\n\r\n")))
			if err != nil {
				t.Fatalf("%v", err)
			}
			got := 0
			if refused := checkRaw(r); refused != nil {
				got = int(refused.Status().Code)
				if strings.Contains(refused.Error(), "%") || strings.Contains(refused.Error(), "h2c") {
					t.Errorf("the response repeats the request: %v", refused)
				}
			}
			if got != want {
				t.Errorf("%d, want %d", got, want)
			}
		})
	}
}

// FuzzCheckRaw checks that cleaning an accepted path does not change it, before and after
// unescaping.
func FuzzCheckRaw(f *testing.F) {
	for _, seed := range []string{
		"/api/v1/pods", "/a/../b", "/%2e", "/a%2Fb", "//a", "/a;b?c=d", "/%25%32%65", "/clusters/a/b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Host != "" || u.Opaque != "" {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL = u
		if checkRaw(r) != nil {
			return
		}
		for _, p := range []string{u.EscapedPath(), u.Path} {
			if short := strings.TrimSuffix(p, "/"); short != "" && path.Clean(short) != short {
				t.Errorf("%q is accepted with the path %q, which is cleaned to %q", raw, p, path.Clean(p))
			}
		}
		if strings.ContainsAny(u.Path, "\\\x00") {
			t.Errorf("%q is accepted with the path %q", raw, u.Path)
		}
		cluster, rest, err := cutCluster(r)
		if err != nil {
			return
		}
		if cluster == "" && rest.URL.EscapedPath() != u.EscapedPath() {
			t.Errorf("%q names no cluster, but the remaining path is %q", raw, rest.URL.EscapedPath())
		}
		if cluster != "" &&
			strings.TrimSuffix(clustersPath+cluster+rest.URL.EscapedPath(), "/") != strings.TrimSuffix(u.EscapedPath(), "/") {
			t.Errorf("%q has the remaining path %q in cluster %q", raw, rest.URL.EscapedPath(), cluster)
		}
	})
}

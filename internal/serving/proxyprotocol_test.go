// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/kubetenant/kubetenant/internal/serving"
)

// header returns a header of the PROXY protocol.
func header(t *testing.T, version byte, command proxyproto.ProtocolVersionAndCommand) string {
	t.Helper()
	h := proxyproto.Header{
		Version:           version,
		Command:           command,
		TransportProtocol: proxyproto.TCPv4,
		SourceAddr:        &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 4711},
		DestinationAddr:   &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443},
	}
	text, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBehindProxies checks that only the configured load balancers can set the client address of
// a connection, and that they must set it.
func TestBehindProxies(t *testing.T) {
	const refused, direct = "", "127.0.0.1"
	for what, c := range map[string]struct{ from, header, want string }{
		"version 1":                   {"127.0.0.0/8", header(t, 1, proxyproto.PROXY), "203.0.113.9"},
		"version 2":                   {"127.0.0.1", header(t, 2, proxyproto.PROXY), "203.0.113.9"},
		"connection of the balancer":  {"127.0.0.0/8", header(t, 2, proxyproto.LOCAL), direct},
		"balancer without a header":   {"127.0.0.0/8", "", refused},
		"balancer with a bad header":  {"127.0.0.0/8", "PROXY TCP4 203.0.113.9\r\n", refused},
		"direct client":               {"10.0.0.0/8", "", direct},
		"direct client with a header": {"10.0.0.0/8", header(t, 2, proxyproto.PROXY), refused},
		"client behind a balancer with a header": {
			"127.0.0.0/8", header(t, 1, proxyproto.PROXY) + header(t, 1, proxyproto.PROXY), refused,
		},
	} {
		t.Run(what, func(t *testing.T) {
			proxies, err := serving.ParsePrefixes([]string{"192.0.2.7", c.from})
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.RemoteAddr)
			}))
			s.Listener = serving.BehindProxies(s.Listener, proxies)
			s.StartTLS()
			client := s.Client().Transport.(*http.Transport)
			client.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err == nil {
					_, err = io.WriteString(conn, c.header)
				}
				return conn, err
			}
			got := refused
			if resp, err := s.Client().Get(s.URL); err == nil {
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				got, _, _ = strings.Cut(string(text), ":")
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			s.Close()
		})
	}
}

// TestSilentClientBehindProxyDelaysNoOther checks that clients that connect and send nothing do
// not delay other clients.
func TestSilentClientBehindProxyDelaysNoOther(t *testing.T) {
	proxies, err := serving.ParsePrefixes([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Listener = serving.BehindProxies(s.Listener, proxies)
	s.StartTLS()
	defer s.Close()
	for range 50 {
		silent, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
	}
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, header(t, 2, proxyproto.PROXY)); err != nil {
		t.Fatal(err)
	}
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com" // the name in the certificate of httptest
	if err := tls.Client(conn, config).HandshakeContext(t.Context()); err != nil {
		t.Errorf("the handshake failed: %v", err)
	}
}

// TestParsePrefixes checks that an address is parsed as a prefix, and that invalid texts are
// rejected.
func TestParsePrefixes(t *testing.T) {
	all, err := serving.ParsePrefixes([]string{
		"192.0.2.7", "10.1.2.3/8", "2001:db8::/32", "::ffff:192.0.2.8", "fe80::1%eth0",
	})
	if err != nil || len(all) != 5 || all[3].String() != "192.0.2.8/32" || all[4].String() != "fe80::1/128" ||
		all[0].String() != "192.0.2.7/32" || all[1].String() != "10.0.0.0/8" {
		t.Errorf("%v, %v", all, err)
	}
	for _, wrong := range []string{"", "example.com", "10.0.0.0/33", "::ffff:10.0.0.0/104", "*"} {
		if _, err := serving.ParsePrefixes([]string{wrong}); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

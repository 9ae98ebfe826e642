// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/internal/gateway"
)

// Paths of the requests, in the tenant's namespace.
const (
	inNamespace = "/api/v1/namespaces/acme--web/"
	small       = inNamespace + "configmaps/settings"
	large       = inNamespace + "secrets"
	idle        = inNamespace + "pods?watch=true"
	ticking     = inNamespace + "services?watch=true"
	command     = inNamespace + "pods/p/exec"
	// connections is the path that returns the number of connections to the stub so far.
	connections = "/connections"
)

const (
	largeBytes = 10 << 20
	tickEvery  = 5 * time.Millisecond
	// streams is the maximum number of concurrent streams in a connection. The maximum of
	// kube-apiserver is 100 to 1,000 (k8s.io/apiserver pkg/server/secure_serving.go, v0.37.1).
	streams = 1000
)

// serveStub serves fixed responses that cost almost no processor time, instead of a
// kube-apiserver. It serves small and large responses, watches without events and with many
// events, and an echo.
func serveStub(ctx context.Context, address, pki string) error {
	listener, err := listen(ctx, address)
	if err != nil {
		return err
	}
	var opened atomic.Int64
	object := []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings","namespace":"acme--web"},` +
		`"data":{"a":"` + strings.Repeat("b", 1<<10) + `"}}`)
	list := bytes.Repeat([]byte("x"), largeBytes)
	mux := http.NewServeMux()
	mux.HandleFunc(connections, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, opened.Load()) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(object)
	})
	mux.HandleFunc("/apis/authentication.k8s.io/", http.NotFound) // the stub serves no SelfSubjectReview
	mux.HandleFunc(large, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(list)))
		_, _ = w.Write(list)
	})
	mux.HandleFunc(inNamespace+"pods", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc(inNamespace+"services", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = fmt.Fprintln(w, time.Now().UnixNano())
			w.(http.Flusher).Flush()
			time.Sleep(tickEvery)
		}
	})
	mux.HandleFunc(command, echo)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: time.Minute,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				opened.Add(1)
			}
		},
	}
	return serveUntilDone(ctx, server, listener, pki, "kube-apiserver")
}

// echo upgrades a connection and sends back the data that it receives.
func echo(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	if _, err := io.WriteString(conn, switching); err == nil {
		_, _ = io.Copy(conn, buffered)
	}
}

// serveProxy forwards requests over the gateway's transports. It changes only the credentials and,
// in front of kube-apiserver, the impersonation headers. It therefore shows the cost of any reverse
// proxy.
func serveProxy(ctx context.Context, address, pki, upstream string) error {
	config, err := clientcmd.BuildConfigFromFlags("", upstream)
	if err != nil {
		return err
	}
	requests, upgrades, err := gateway.Transports(config)
	if err != nil {
		return err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, address)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		p.Out.Header.Del("Authorization") // the transport sets its own
		if strings.HasPrefix(upstream, "/") && strings.Contains(upstream, "impersonator") {
			p.Out.Header.Set("Impersonate-User", "alice")
			p.Out.Header["Impersonate-Group"] = []string{"dev", "tenant:acme"}
			p.Out.Header.Set("Impersonate-Extra-Kubetenant.dev%2ftenant", "acme")
		}
	}, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Upgrade") != "" {
			return upgrades.RoundTrip(r)
		}
		return requests.RoundTrip(r)
	})}
	return serveUntilDone(ctx,
		&http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}},
		listener, pki, "gateway")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

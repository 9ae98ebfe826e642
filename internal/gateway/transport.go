// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	// dialTimeout is the timeout for dialing, and for the TLS handshake.
	dialTimeout = 5 * time.Second
	// pingAfter is how long a connection may be silent before the gateway pings it. pingTimeout
	// is how long the response may take. client-go uses 30s and 15s, so the loss of a connection
	// would cause an outage of 45s.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// stalledWriteTimeout is how long a write may make no progress before it is aborted.
	stalledWriteTimeout = 30 * time.Second
	// receiveBuffer is the maximum number of bytes that one HTTP/2 stream buffers. The default in
	// Go is 4 MiB. A tenant may have about 260 streams. If a caller reads nothing, its stream ends
	// after stalledWriteTimeout.
	receiveBuffer = 128 << 10
	// headerBytes is the maximum size of the headers of a response, which stay in memory until the
	// body is complete. A proxied response may come from any server.
	headerBytes      = 128 << 10
	idleTimeout      = 90 * time.Second
	idleConnsPerHost = 64
)

// transports send requests to one cluster with one credential.
type transports struct {
	// requests share one HTTP/2 connection. Each upgrade has its own HTTP/1.1 connection.
	requests, upgrades http.RoundTripper
	close              func()
}

// Transports returns the transports with which the gateway sends requests and upgrades to a
// cluster. They are for benchmarks that compare the gateway with a plain proxy.
func Transports(config *rest.Config) (requests, upgrades http.RoundTripper, err error) {
	t, err := newTransports(config)
	if err != nil {
		return nil, nil, err
	}
	return t.requests, t.upgrades, nil
}

// newTransports returns transports with the credential in config. The transports reload a token
// file, and credentials from a plugin. If a plugin returns another certificate, its connections are
// closed and opened again.
func newTransports(config *rest.Config) (*transports, error) {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext
	to, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	shared, err := newTransport(to, func(p *http.Protocols) { p.SetHTTP2(true); p.SetHTTP1(true) })
	if err != nil {
		return nil, err
	}
	own, err := newTransport(to, func(p *http.Protocols) { p.SetHTTP1(true) })
	if err != nil {
		return nil, err
	}
	out := &transports{close: func() { shared.CloseIdleConnections(); own.CloseIdleConnections() }}
	if out.requests, err = transport.HTTPWrappersForConfig(to, shared); err != nil {
		return nil, err
	}
	out.upgrades, err = transport.HTTPWrappersForConfig(to, own)
	return out, err
}

func newTransport(to *transport.Config, setProtocols func(*http.Protocols)) (*http.Transport, error) {
	secured, err := transport.TLSConfigFor(to)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        secured,
		TLSHandshakeTimeout:    dialTimeout,
		DialContext:            to.DialHolder.Dial, // credential plugins close the connections of this dialer
		MaxIdleConnsPerHost:    idleConnsPerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headerBytes,
		DisableCompression:     true, // bodies are forwarded unchanged
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:           pingAfter,
			PingTimeout:               pingTimeout,
			WriteByteTimeout:          stalledWriteTimeout,
			MaxReceiveBufferPerStream: receiveBuffer,
		},
		Protocols: &http.Protocols{},
	}
	setProtocols(t.Protocols)
	if to.Proxy != nil {
		t.Proxy = to.Proxy
	}
	if t.TLSClientConfig != nil {
		t.TLSClientConfig = t.TLSClientConfig.Clone()
		t.TLSClientConfig.NextProtos = nil // net/http derives NextProtos from Protocols
	}
	return t, nil
}

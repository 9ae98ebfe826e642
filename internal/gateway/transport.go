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
	// dialTimeout bounds how long a connection takes to come about.
	dialTimeout = 5 * time.Second
	// pingAfter is for how long a connection says nothing before it is asked whether it lives, and
	// pingTimeout how long its answer may take: by client-go's 30 and 15 s a cluster that is gone
	// would be an outage of 45 s.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// blockedFor is how long a write may stand still.
	blockedFor = 30 * time.Second
	// receiveBuffer is what one stream may keep waiting: by default Go buffers 4 MiB of each. A tenant
	// may have some 260 open, and who reads nothing is cut off after blockedFor.
	receiveBuffer = 128 << 10
	// headerBytes bounds the headers of an answer, which are held as long as its body comes: what is
	// proxied may be anybody's.
	headerBytes = 128 << 10
	idleTimeout = 90 * time.Second
	idleEach    = 64
)

// transports lead to one cluster as somebody.
type transports struct {
	// requests share a connection of HTTP/2, upgrades have one of HTTP/1.1 each.
	requests, upgrades http.RoundTripper
	close              func()
}

// Transports returns those that the gateway reaches a cluster by, of requests and of upgrades: for
// who compares the gateway with a proxy that does nothing else.
func Transports(config *rest.Config) (requests, upgrades http.RoundTripper, err error) {
	t, err := newTransports(config)
	if err != nil {
		return nil, nil, err
	}
	return t.requests, t.upgrades, nil
}

// newTransports returns those of who config says. A file of a token is followed, and so is what a
// plugin says: with another certificate of its, there are other connections.
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

func newTransport(to *transport.Config, speak func(*http.Protocols)) (*http.Transport, error) {
	secured, err := transport.TLSConfigFor(to)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        secured,
		TLSHandshakeTimeout:    dialTimeout,
		DialContext:            to.DialHolder.Dial, // by which plugins close connections
		MaxIdleConnsPerHost:    idleEach,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headerBytes,
		DisableCompression:     true, // bodies go on as they come
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:           pingAfter,
			PingTimeout:               pingTimeout,
			WriteByteTimeout:          blockedFor,
			MaxReceiveBufferPerStream: receiveBuffer,
		},
		Protocols: &http.Protocols{},
	}
	speak(t.Protocols)
	if to.Proxy != nil {
		t.Proxy = to.Proxy
	}
	if t.TLSClientConfig != nil {
		t.TLSClientConfig = t.TLSClientConfig.Clone()
		t.TLSClientConfig.NextProtos = nil // as the protocols say
	}
	return t, nil
}

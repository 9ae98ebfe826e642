// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package serving serves a handler over TLS. It reloads certificates from their files. At a
// shutdown, it waits for running requests, for a limited time, before it closes their connections.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// Timeouts of a connection. kube-apiserver closes an idle connection after 90 s
// (k8s.io/apimachinery pkg/util/net, v0.37.1). The timeout of the server is longer, so that the
// client closes an idle connection first. If the server closed the connection first, a request in
// flight could be lost.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 150 * time.Second
	headerBytes   = 64 << 10
	// minConnectionAge is the minimum age of a connection that the server closes because the
	// replica is not ready. If no other replica is ready either, a client then needs at most one
	// handshake per second, and not one per request.
	minConnectionAge = time.Second
	// shutdownTimeout is the maximum time for which the server waits for running requests after the
	// listener was closed.
	shutdownTimeout = 20 * time.Second
)

// Serving configures a [Server], which watches the files.
type Serving struct {
	Listener net.Listener
	// CertFile and KeyFile contain the server's certificate.
	CertFile, KeyFile string
	// ClientCAFile contains the authorities of client certificates. Clients MUST then present a
	// valid certificate. If empty, no certificate is required, and any client that can reach the
	// listener may send requests.
	ClientCAFile string
	// ClientCA is an alternative to ClientCAFile. The handshake requests a client certificate from
	// these authorities but does not verify it. The handler MUST verify it.
	ClientCA dynamiccertificates.CAContentProvider
	// ReadTimeout is the maximum time for reading a request, including its body. It also ends
	// streams. If zero, only the time for reading headers is limited.
	ReadTimeout time.Duration
	// ClientNames are the allowed common names of client certificates. They have an effect only
	// with ClientCAFile. If empty, any name is allowed.
	ClientNames []string
	// Drain is the time for which the server still serves requests after the shutdown has begun.
	Drain time.Duration
	// StopBackground ends background work. It is called after the listener was closed, and MUST
	// return only after all the work has ended. It may be nil.
	StopBackground func(context.Context)
	// Ready reports whether this replica should receive requests. While it returns false, the
	// server closes each connection after its next response, so that clients connect to another
	// replica. A Kubernetes Service does not move existing connections. If nil, the replica is
	// always ready.
	Ready func() bool
}

// Server serves a handler.
type Server struct {
	Serving
	http     *http.Server
	cert     *dynamiccertificates.DynamicCertKeyPairContent
	ca       *dynamiccertificates.DynamicFileCAContent
	draining atomic.Bool
	clients  connections
}

// connections records the states of the current connections.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]http.ConnState
}

// setState records the state of a connection. It is the function [net/http.Server.ConnState].
func (c *connections) setState(conn net.Conn, state http.ConnState) {
	if counted, ok := conn.(*countedConn); ok { // an HTTP/2 connection is wrapped
		conn = counted.Conn
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, conn)
		return
	}
	if c.open == nil {
		c.open = map[net.Conn]http.ConnState{}
	}
	c.open[conn] = state
}

// allIdle reports whether all connections are idle. It returns false if a request is running or a
// new connection has not sent a request yet.
func (c *connections) allIdle(context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, state := range c.open {
		if state != http.StateIdle {
			return false, nil
		}
	}
	return true, nil
}

// established returns the TLS connections whose handshake is complete.
func (c *connections) established() (out []*tls.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, state := range c.open {
		if secured, ok := conn.(*tls.Conn); ok && state != http.StateNew {
			out = append(out, secured)
		}
	}
	return out
}

// NewServer returns a server and reads its files.
func NewServer(s Serving) (*Server, error) {
	out := &Server{Serving: s}
	var err error
	out.cert, err = dynamiccertificates.NewDynamicServingContentFromFiles("serving", s.CertFile, s.KeyFile)
	if err != nil {
		return nil, err
	}
	if s.ClientCAFile != "" {
		if out.ca, err = dynamiccertificates.NewDynamicCAContentFromFile("client-ca", s.ClientCAFile); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Certificate returns the current certificate as PEM.
func (s *Server) Certificate() []byte {
	certificate, _ := s.cert.CurrentCertKeyContent()
	return certificate
}

// ClientCertificatesExpiry returns the earliest expiry of the certificates of connected clients, or
// zero if no client has presented a certificate.
func (s *Server) ClientCertificatesExpiry() (end time.Time) {
	for _, c := range s.clients.established() {
		if certs := c.ConnectionState().PeerCertificates; len(certs) > 0 && (end.IsZero() || certs[0].NotAfter.Before(end)) {
			end = certs[0].NotAfter
		}
	}
	return end
}

// Draining returns a readiness check that fails after the shutdown has begun.
func (s *Server) Draining() healthz.HealthChecker {
	return healthz.NamedCheck("shutdown", func(*http.Request) error {
		if s.draining.Load() {
			return errors.New("the service is shutting down")
		}
		return nil
	})
}

// CertificateValid returns a readiness check that fails if the serving certificate has expired or
// is not valid yet.
func (s *Server) CertificateValid() healthz.HealthChecker {
	return healthz.NamedCheck("certificate", func(*http.Request) error {
		certificates, err := cert.ParseCertsPEM(s.Certificate())
		if err != nil {
			return err
		}
		if now := time.Now(); now.Before(certificates[0].NotBefore) || now.After(certificates[0].NotAfter) {
			return errors.New("the serving certificate has expired or is not valid yet")
		}
		return nil
	})
}

// connectionStartKey is the context key of the time at which a connection began.
type connectionStartKey struct{}

// WithConnectionStart returns a context for a connection that began at the given time. Use it in
// [net/http.Server.ConnContext].
func WithConnectionStart(ctx context.Context, begun time.Time) context.Context {
	return context.WithValue(ctx, connectionStartKey{}, begun)
}

// ConnectionAge returns how long ago the connection of a request began, or 0 if this is unknown.
func ConnectionAge(ctx context.Context) time.Duration {
	begun, known := ctx.Value(connectionStartKey{}).(time.Time)
	if !known {
		return 0
	}
	return time.Since(begun)
}

// closesConnection reports whether the server must close the connection of a request after the
// response.
func (s *Server) closesConnection(ctx context.Context) bool {
	if s.draining.Load() {
		return true
	}
	return s.Ready != nil && !s.Ready() && ConnectionAge(ctx) > minConnectionAge
}

// tlsConfig returns the TLS configuration. Certificates and authorities are reloaded, but all other
// settings are fixed.
func (s *Server) tlsConfig(ctx context.Context) (*tls.Config, error) {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// For TLS 1.2, only the cipher suites that RFC 9325, section 4.2 recommends.
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
	}
	ca := s.ClientCA
	if ca != nil {
		base.ClientAuth = tls.RequestClientCert
	}
	if s.ca != nil {
		ca = s.ca
		base.ClientAuth = tls.RequireAndVerifyClientCert
		base.VerifyConnection = s.checkClientName
	}
	controller := dynamiccertificates.NewDynamicServingCertificateController(base, ca, s.cert, nil, nil)
	s.cert.AddListener(controller)
	go s.cert.Run(ctx, 1)
	if s.ca != nil {
		s.ca.AddListener(controller)
		go s.ca.Run(ctx, 1)
	}
	if changing, ok := s.ClientCA.(dynamiccertificates.Notifier); ok {
		changing.AddListener(controller)
	}
	if err := controller.RunOnce(); err != nil {
		return nil, err
	}
	go controller.Run(1, ctx.Done())
	base = base.Clone()
	base.GetConfigForClient = controller.GetConfigForClient
	return base, nil
}

// errorLog returns a logger that writes the messages of net/http, mostly failed handshakes, at
// verbosity 2.
func errorLog(ctx context.Context) *log.Logger {
	return slog.NewLogLogger(logr.ToSlogHandler(klog.FromContext(ctx).V(2)), slog.LevelInfo)
}

// checkClientName rejects clients whose common name is not in ClientNames. It is called for every
// handshake, including resumed sessions.
func (s *Server) checkClientName(c tls.ConnectionState) error {
	if len(s.ClientNames) == 0 {
		return nil
	}
	if len(c.PeerCertificates) == 0 || !slices.Contains(s.ClientNames, c.PeerCertificates[0].Subject.CommonName) {
		return errors.New("the common name of the client certificate is not in --client-name")
	}
	return nil
}

// Serve serves until ctx ends, and then for the duration of Drain. Meanwhile, the check of
// [Server.Draining] fails. The server announces with each response that it closes the connection,
// so that clients do not send further requests on it.
func (s *Server) Serve(ctx context.Context, handler http.Handler) error {
	// Certificates are still reloaded while the server shuts down.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	config, err := s.tlsConfig(background)
	if err != nil {
		return err
	}
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.closesConnection(r.Context()) {
				w.Header().Set("Connection", "close")
			}
			handler.ServeHTTP(w, r)
		}),
		TLSConfig:         config,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.ReadTimeout,
		ConnState:         s.clients.setState,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return WithConnectionStart(ctx, time.Now())
		},
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: headerBytes,
		ErrorLog:       errorLog(ctx),
	}
	if err := newIdleFrames().configure(s.http); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.http.ServeTLS(s.Listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	select {
	case <-time.After(s.Drain):
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	}
	// Shutdown drops requests that it has just read from a new connection (net/http, Go 1.26). It
	// is therefore called only after the listener was closed and all connections are idle.
	if err := s.Listener.Close(); err != nil {
		return err
	}
	if s.StopBackground != nil {
		s.StopBackground(background)
	}
	last, cancel := context.WithTimeout(background, shutdownTimeout)
	defer cancel()
	_ = wait.PollUntilContextCancel(last, 10*time.Millisecond, true, s.clients.allIdle) // Shutdown reports a timeout
	return s.http.Shutdown(last)
}

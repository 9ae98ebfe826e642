// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package serving serves a handler over TLS, with certificates that change and an
// end that loses no request.
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

// The times of a connection. kube-apiserver keeps an idle one for 90 s (k8s.io/apimachinery
// pkg/util/net, v0.37.1); ours is longer, so that the client closes it, who knows that it is idle.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 150 * time.Second
	headerBytes   = 64 << 10
	// leaveAfter is how old a connection is before it is closed because the replica is not ready:
	// where no other is, not each request takes a handshake.
	leaveAfter = time.Second
	// lastRequests is how long the requests that run when the service stops may take to end.
	lastRequests = 20 * time.Second
)

// Serving says how to serve. The files are followed.
type Serving struct {
	Listener net.Listener
	// CertFile and KeyFile hold the server's certificate.
	CertFile, KeyFile string
	// ClientCAFile holds the authorities of the clients' certificates. Empty: no certificate is
	// demanded, and whoever reaches the listener may ask.
	ClientCAFile string
	// ClientCA, instead of ClientCAFile, are authorities that clients are told of: certificates are
	// asked for, and the handler's to judge.
	ClientCA dynamiccertificates.CAContentProvider
	// ReadTimeout bounds how long a request may take to arrive, and ends streams too. Zero: no
	// bound but that of headers.
	ReadTimeout time.Duration
	// ClientNames are the common names that clients may have. Empty: any that the authorities signed.
	ClientNames []string
	// Drain is how long requests are answered after the end has begun.
	Drain time.Duration
	// Leaving ends what goes on by itself, when nobody connects any more, and returns when all has
	// ended. Nil: nothing does.
	Leaving func(context.Context)
	// Ready reports whether callers are to come. While they are not, each connection is
	// closed after its next answer, so that they find another replica: a Service takes none
	// away that is there. Nil: always.
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

// connections are those that are open.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]http.ConnState
}

// note is a server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	if counted, is := conn.(*countedConn); is { // the connection is HTTP/2
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

// idle reports whether on no connection a request runs or is about to.
func (c *connections) idle(context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, state := range c.open {
		if state != http.StateIdle {
			return false, nil
		}
	}
	return true, nil
}

// known returns those whose handshake is over.
func (c *connections) known() (out []*tls.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, state := range c.open {
		if secured, is := conn.(*tls.Conn); is && state != http.StateNew {
			out = append(out, secured)
		}
	}
	return out
}

// NewServer reads the files.
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

// Certificate returns the certificate in use, PEM.
func (s *Server) Certificate() []byte {
	certificate, _ := s.cert.CurrentCertKeyContent()
	return certificate
}

// ClientCertificatesEnd returns the end of the first to end of the certificates that connected
// clients have shown; zero where nobody has shown any.
func (s *Server) ClientCertificatesEnd() (end time.Time) {
	for _, c := range s.clients.known() {
		if shown := c.ConnectionState().PeerCertificates; len(shown) > 0 && (end.IsZero() || shown[0].NotAfter.Before(end)) {
			end = shown[0].NotAfter
		}
	}
	return end
}

// Draining is the check of readiness that fails once the end has begun.
func (s *Server) Draining() healthz.HealthChecker {
	return healthz.NamedCheck("shutdown", func(*http.Request) error {
		if s.draining.Load() {
			return errors.New("the service is shutting down")
		}
		return nil
	})
}

// CertificateValid is the check of readiness that fails while clients would refuse the certificate.
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

// begunKey is the key of a connection's beginning in the contexts of its requests.
type begunKey struct{}

// Connected returns a context of a connection that began at a time, for
// [net/http.Server.ConnContext].
func Connected(ctx context.Context, begun time.Time) context.Context {
	return context.WithValue(ctx, begunKey{}, begun)
}

// ConnectionAge returns how long ago the connection of a request began; 0 where that is not known.
func ConnectionAge(ctx context.Context) time.Duration {
	begun, known := ctx.Value(begunKey{}).(time.Time)
	if !known {
		return 0
	}
	return time.Since(begun)
}

// leaves reports whether the connection of a request is to be closed after the answer.
func (s *Server) leaves(ctx context.Context) bool {
	if s.draining.Load() {
		return true
	}
	return s.Ready != nil && !s.Ready() && ConnectionAge(ctx) > leaveAfter
}

// tlsConfig returns the configuration of each connection: the same whatever
// certificate was loaded last.
func (s *Server) tlsConfig(ctx context.Context) (*tls.Config, error) {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// Of TLS 1.2 just what RFC 9325, section 4.2 recommends.
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
		base.VerifyConnection = s.checkName
	}
	controller := dynamiccertificates.NewDynamicServingCertificateController(base, ca, s.cert, nil, nil)
	s.cert.AddListener(controller)
	go s.cert.Run(ctx, 1)
	if s.ca != nil {
		s.ca.AddListener(controller)
		go s.ca.Run(ctx, 1)
	}
	if changing, is := s.ClientCA.(dynamiccertificates.Notifier); is {
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

// errorLog puts what net/http has to say, mostly handshakes that failed, in the
// log where it is verbose.
func errorLog(ctx context.Context) *log.Logger {
	return slog.NewLogLogger(logr.ToSlogHandler(klog.FromContext(ctx).V(2)), slog.LevelInfo)
}

// checkName refuses clients of another name. It is asked with every handshake, resumed ones too.
func (s *Server) checkName(c tls.ConnectionState) error {
	if len(s.ClientNames) == 0 {
		return nil
	}
	if len(c.PeerCertificates) == 0 || !slices.Contains(s.ClientNames, c.PeerCertificates[0].Subject.CommonName) {
		return errors.New("the common name of the client certificate is not in --client-name")
	}
	return nil
}

// Serve serves until ctx ends, and then goes on for the time of Drain: it is not ready any more and
// closes each connection after its next answer, so that no request meets a closed one.
func (s *Server) Serve(ctx context.Context, handler http.Handler) error {
	// The certificates are followed to the very end.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	config, err := s.tlsConfig(background)
	if err != nil {
		return err
	}
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.leaves(r.Context()) {
				w.Header().Set("Connection", "close")
			}
			handler.ServeHTTP(w, r)
		}),
		TLSConfig:         config,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.ReadTimeout,
		ConnState:         s.clients.note,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return Connected(ctx, time.Now())
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
	// Shutdown drops what it has just read from a new connection (net/http, Go 1.26), so it comes when
	// nobody can connect any more and nothing runs.
	if err := s.Listener.Close(); err != nil {
		return err
	}
	if s.Leaving != nil {
		s.Leaving(background)
	}
	last, cancel := context.WithTimeout(background, lastRequests)
	defer cancel()
	_ = wait.PollUntilContextCancel(last, 10*time.Millisecond, true, s.clients.idle) // what still runs then is cut off
	return s.http.Shutdown(last)
}

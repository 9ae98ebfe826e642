// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// closeHijackedOnDone returns a writer that closes its connection when ctx ends, if a handler has
// hijacked the connection (exec, attach, portforward and proxied requests). A handler of the server
// returns when its hijacked connection ends, and ctx ends too.
func closeHijackedOnDone(ctx context.Context, w http.ResponseWriter) http.ResponseWriter {
	hijacker, ok := w.(http.Hijacker)
	if !ok { // HTTP/2 connections cannot be hijacked
		return w
	}
	notifier, complete := w.(responsewriter.CloseNotifierFlusher)
	if !complete { // not a writer of k8s.io/apiserver: do not offer hijacking
		if flusher, ok := w.(http.Flusher); ok {
			return struct {
				http.ResponseWriter
				http.Flusher
			}{w, flusher}
		}
		return struct{ http.ResponseWriter }{w}
	}
	return &cancelableStream{w, notifier, hijacker, ctx}
}

// cancelableStream has the methods of the server's HTTP/1.1 writers (k8s.io/apiserver
// pkg/endpoints/responsewriter, v0.37.1).
type cancelableStream struct {
	http.ResponseWriter
	responsewriter.CloseNotifierFlusher
	hijacker http.Hijacker
	ctx      context.Context //nolint:containedctx // of the one request
}

// Unwrap implements [responsewriter.UserProvidedDecorator].
func (s *cancelableStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Hijack implements [http.Hijacker].
func (s *cancelableStream) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := s.hijacker.Hijack()
	if err == nil {
		context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	}
	return conn, buffered, err
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// syncState reports whether a server has read, and can still read, the state of its cluster.
type syncState struct {
	synced func() bool
	once   atomic.Bool
	// serving ends when the server stops listening. The server's own client can then no longer read
	// objects. It is nil before the server listens.
	serving atomic.Pointer[context.Context]
}

// isSynced reports whether the server has read the state of the cluster once and can still read it.
func (k *syncState) isSynced() bool {
	if serving := k.serving.Load(); serving != nil && (*serving).Err() != nil {
		return false
	}
	if k.once.Load() {
		return true
	}
	if !k.synced() {
		return false
	}
	k.once.Store(true)
	return true
}

// withRetry responds with status 503 and Retry-After instead of 401 and 403 while the server does
// not know the state of its cluster. This is the case while it starts, and while it stops and can
// no longer read objects. In this state, the server denies requests that another server allows, and
// clients treat 401 and 403 as final.
//
// A starting server can receive requests before it is ready, because a load balancer checks its
// readiness only at intervals.
func (k *syncState) withRetry(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &retryWriter{ResponseWriter: w, isSynced: k.isSynced}
		u.unsynced = !k.isSynced()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(u), r)
	})
}

// retryWriter replaces denials while the state of the cluster is unknown. It does not change other
// responses.
type retryWriter struct {
	http.ResponseWriter

	isSynced              func() bool
	unsynced              bool // the state was unknown when the request began
	wroteHeader, replaced bool
}

// Unwrap implements [responsewriter.UserProvidedDecorator].
func (u *retryWriter) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (u *retryWriter) WriteHeader(code int) {
	if u.replaced {
		return
	}
	denied := code == http.StatusUnauthorized || code == http.StatusForbidden
	if u.wroteHeader || !denied || !u.unsynced && u.isSynced() {
		u.wroteHeader = u.wroteHeader || code >= http.StatusOK
		u.ResponseWriter.WriteHeader(code)
		return
	}
	u.wroteHeader, u.replaced = true, true
	status := apierrors.NewServiceUnavailable("the server does not know the state of the cluster, because it starts or " +
		"stops: try again").Status()
	status.APIVersion, status.Kind = "v1", "Status"
	var body bytes.Buffer
	_ = json.NewEncoder(&body).Encode(status) // a Status always encodes
	h := u.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "WWW-Authenticate"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Retry-After", "1")
	u.ResponseWriter.WriteHeader(http.StatusServiceUnavailable)
	_, _ = u.ResponseWriter.Write(body.Bytes()) // an error means that the client has disconnected
}

// Write implements [http.ResponseWriter]. It discards the body of a denial that WriteHeader has
// replaced.
func (u *retryWriter) Write(p []byte) (int, error) {
	if u.replaced {
		return len(p), nil
	}
	u.wroteHeader = true
	return u.ResponseWriter.Write(p)
}

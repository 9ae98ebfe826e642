// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/transport"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/tenant"
)

// proxyState is the state that the steps of one request share. One goroutine uses it at a time.
type proxyState struct {
	route *route // nil if the request is for no configured cluster
	// control sets the deadlines of the caller's connection, or of its HTTP/2 stream.
	control     *http.ResponseController
	callerErr   func() error           // returns an error if the caller has disconnected
	path        string                 // original path, with escapes
	prefix      string                 // prefix that the gateway removed from path
	target      string                 // request target if it is more than a path (RFC 9112, section 3.2.2)
	isStream    bool                   // whether the client determines the duration of the response
	token       string                 // the caller's token if the caller is a service account of the request's cluster
	reviewError *apierrors.StatusError // response if the token's signature is valid, but its review was not possible
	expiry      authn.Expiry
	// issued is when the caller's credential was issued. Authentication sets it only if the
	// request is for no configured cluster.
	issued *time.Time
	// body is the body of the caller's request. It is nil if the request has no body or before
	// authentication has finished.
	body   *callerBody
	isView bool // whether the request is for a view of the cluster's objects
	// tenant is the caller's tenant, under its name in the configuration. It is the zero ID
	// before the caller is mapped.
	tenant tenant.ID
	// impersonates reports whether the caller impersonates another user.
	impersonates bool
	// tokenIsSent reports whether the cluster receives the token of the service account that
	// sends the request, and checks it. If false, a stored result of a TokenReview MUST NOT be
	// used.
	tokenIsSent bool
	// hasSlot reports whether the request has a slot of the cluster's queue, which limits the
	// number of concurrent requests to the cluster.
	hasSlot bool
	// authenticated is called when the caller is authenticated. isAuthenticated reports whether it
	// was called.
	authenticated   func()
	isAuthenticated bool
}

// passesToken reports whether the gateway forwards a request with the token of the caller's own
// service account, and does not impersonate the caller.
func (x *proxyState) passesToken() bool { return x.token != "" && !x.impersonates }

type proxyStateKey struct{}

func proxyStateFrom(ctx context.Context) *proxyState {
	x, _ := ctx.Value(proxyStateKey{}).(*proxyState)
	return x
}

// newProxy returns the last step, which forwards a request to the cluster.
func (c *route) newProxy() http.Handler {
	through := func(b *buffers) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite:        c.rewrite,
			Transport:      c.gateway.traceRoundTrip(c.name, c.roundTrip),
			ModifyResponse: c.modifyResponse,
			ErrorHandler:   c.respondError,
			BufferPool:     b,
			ErrorLog:       quietLogger(),
		}
	}
	requests, streams := through(requestBuffers), through(streamBuffers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = &finalWriter{w}
		if proxyStateFrom(r.Context()).isStream {
			streams.ServeHTTP(w, r)
			return
		}
		requests.ServeHTTP(w, r)
	})
}

// rewrite creates the request to the cluster. It copies only the headers that [forwardedHeaders]
// returns, and adds no identity yet.
func (c *route) rewrite(p *httputil.ProxyRequest) {
	p.SetURL(c.server)
	p.Out.Host = c.server.Host
	p.Out.Header = forwardedHeaders(p.In)
	p.Out.Trailer = nil
	if fairuse.IsUpgrade(p.In) {
		p.Out.Header.Set("Connection", "Upgrade")
		p.Out.Header.Set("Upgrade", p.In.Header.Get("Upgrade"))
		if origin := p.In.Header.Get("Origin"); origin != "" { // required for watches over websocket
			p.Out.Header.Set("Origin", origin)
		}
	}
}

// roundTrip sends a request with the identity of its caller. No other step adds the identity.
func (c *route) roundTrip(r *http.Request) (*http.Response, error) {
	x := proxyStateFrom(r.Context())
	as := c.impersonator
	if x.passesToken() {
		as = c.anonymous
	}
	next := as.requests
	if r.Header.Get("Upgrade") != "" {
		next = as.upgrades
	}
	if x.passesToken() {
		r.Header.Set("Authorization", "Bearer "+x.token)
		return next.RoundTrip(r)
	}
	// The impersonator's transport adds its credential only to a request without this header.
	r.Header.Del("Authorization")
	u, ok := request.UserFrom(r.Context())
	if !ok {
		return nil, errForm
	}
	impersonated, err := c.mapping.impersonation(u)
	if err != nil {
		return nil, &notForwardedError{err}
	}
	switch err := c.gatewayNames.check(r.Context(), impersonated.UserName); {
	case errors.Is(err, errGatewayName):
		return nil, &notForwardedError{err}
	case err != nil:
		return nil, err
	}
	return transport.NewImpersonatingRoundTripper(impersonated, next).RoundTrip(r)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// notForwardedError is returned if the gateway cannot forward the identity of a caller.
type notForwardedError struct{ error }

func (u *notForwardedError) Unwrap() error { return u.error }

// serverOf returns the URL of a cluster from the host in a kubeconfig.
func serverOf(host string) (*url.URL, error) {
	u, err := url.Parse(host)
	if err != nil || u.Host == "" {
		return nil, errServer
	}
	return u, nil
}

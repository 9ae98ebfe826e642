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
)

// proxyState is what the steps of one request tell each other. One goroutine uses it at a time.
type proxyState struct {
	route *route // nil for none
	// control sets the deadlines of the caller's connection, or stream of it.
	control *http.ResponseController
	left    func() error           // says why its caller is not there any more; nil while it is
	path    string                 // as it came, with escapes
	prefix  string                 // of it, which the cluster's has not
	target  string                 // of the request if it is more than a path (RFC 9112, section 3.2.2)
	stream  bool                   // it is answered for as long as the caller likes
	token   string                 // a service account's own, for its own cluster
	unknown *apierrors.StatusError // the answer, where a token's signature is good and whose it is was not found out
	expiry  authn.Expiry
	// issued is when a credential of a request for no cluster was; nil before it is asked about.
	issued *time.Time
	// body is that of the caller's request; nil before it is read.
	body *callerBody
	view bool // it is for a view of the cluster's objects
	// asOther says that the caller asks in the name of somebody else.
	asOther bool
	// tokenIsSent reports that the cluster receives and checks the token of a service account that
	// sends the request. If it is false, a stored result of a TokenReview must not be used.
	tokenIsSent bool
	// hasPlace reports whether the request has a place among those that are sent to the cluster.
	hasPlace bool
	// authenticated is called when the caller is known, and known reports that it was.
	authenticated func()
	known         bool
}

// passesToken reports whether a request goes on by the token of its own service account, and not as
// somebody by the gateway's credential.
func (x *proxyState) passesToken() bool { return x.token != "" && !x.asOther }

type proxyStateKey struct{}

func proxyStateFrom(ctx context.Context) *proxyState {
	x, _ := ctx.Value(proxyStateKey{}).(*proxyState)
	return x
}

// newProxy returns the last step: what sends a request on.
func (c *route) newProxy() http.Handler {
	through := func(b *buffers) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite:        c.rewrite,
			Transport:      c.gateway.tracedSending(c.name, c.roundTrip),
			ModifyResponse: c.modifyResponse,
			ErrorHandler:   c.answerError,
			BufferPool:     b,
			ErrorLog:       quiet(),
		}
	}
	requests, streams := through(requestBuffers), through(streamBuffers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = &finalWriter{w}
		if proxyStateFrom(r.Context()).stream {
			streams.ServeHTTP(w, r)
			return
		}
		requests.ServeHTTP(w, r)
	})
}

// rewrite makes the request that goes on: nothing of the caller's that is not listed, and
// nothing yet of who it is.
func (c *route) rewrite(p *httputil.ProxyRequest) {
	p.SetURL(c.server)
	p.Out.Host = c.server.Host
	p.Out.Header = sent(p.In)
	p.Out.Trailer = nil
	if fairuse.IsUpgrade(p.In) {
		p.Out.Header.Set("Connection", "Upgrade")
		p.Out.Header.Set("Upgrade", p.In.Header.Get("Upgrade"))
		if origin := p.In.Header.Get("Origin"); origin != "" { // watches by websocket need it
			p.Out.Header.Set("Origin", origin)
		}
	}
}

// roundTrip sends a request as its caller: here alone it is said who that is.
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
	r.Header.Del("Authorization") // of what is proxied there is none, too
	u, known := request.UserFrom(r.Context())
	if !known {
		return nil, errForm
	}
	who, err := c.mapping.impersonation(u)
	if err != nil {
		return nil, &uncarried{err}
	}
	switch err := c.own.check(r.Context(), who.UserName); {
	case errors.Is(err, errOwn):
		return nil, &uncarried{err}
	case err != nil:
		return nil, err
	}
	return transport.NewImpersonatingRoundTripper(who, next).RoundTrip(r)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// uncarried is an identity that is not carried on, after all.
type uncarried struct{ error }

func (u *uncarried) Unwrap() error { return u.error }

// serverOf returns where a cluster is.
func serverOf(host string) (*url.URL, error) {
	u, err := url.Parse(host)
	if err != nil || u.Host == "" {
		return nil, errServer
	}
	return u, nil
}

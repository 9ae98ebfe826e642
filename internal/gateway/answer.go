// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// The errors about a cluster that callers receive. Their texts contain nothing that the cluster
// reported about the gateway.
var (
	errServer              = errors.New("the server address of the cluster is not a URL")
	errRedirect            = errors.New("the cluster answered with a redirect to another address")
	errGatewayUnauthorized = errors.New(
		"the cluster did not authenticate the gateway: the gateway's credential has expired or " +
			"was revoked",
	)
	errImpersonate = errors.New("the cluster does not allow the gateway to impersonate this caller: check the " +
		"gateway's roles (kubetenant-gateway generate)")
	errUnreachable    = errors.New("the cluster cannot be reached")
	errBody           = errors.New("the body of the request cannot be read")
	errClusterTimeout = errors.New("the cluster did not answer in time")
)

// matchedBytes is the maximum number of bytes of a 401 or 403 response that [matchesText]
// searches.
const matchedBytes = 64 << 10

// impersonationDenied matches the message with which kube-apiserver denies the gateway an
// impersonation, in both impersonation modes (k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters/errors.go, v0.37.1).
var impersonationDenied = regexp.MustCompile(` cannot impersonate[a-z:-]* resource "`)

// modifyResponse checks and changes a response from the cluster before the caller receives it.
func (c *route) modifyResponse(resp *http.Response) error {
	ctx := resp.Request.Context()
	x := proxyStateFrom(ctx)
	resp.Header.Del(auditapi.HeaderAuditID) // the gateway has already set its own
	if isProxied(ctx) {
		removeUnsafeHeaders(resp.Header)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	if err := gatewayRejection(resp, x); err != nil {
		return err
	}
	if location := resp.Header.Get("Location"); location != "" {
		here, err := c.rewriteLocation(location, x.prefix)
		if err != nil {
			return err
		}
		resp.Header.Set("Location", here)
	}
	if x.isStream {
		resp.Body = &endedBody{resp.Body, ctx}
	}
	return nil
}

// gatewayRejection returns an error if the cluster rejected the gateway itself, or nil.
func gatewayRejection(resp *http.Response, x *proxyState) error {
	if x.passesToken() {
		return nil // the response is never about the gateway
	}
	proxied := isProxied(resp.Request.Context())
	if resp.StatusCode == http.StatusUnauthorized && (!proxied || matchesText(resp, isUnauthorized)) {
		return errGatewayUnauthorized
	}
	if resp.StatusCode == http.StatusForbidden && matchesText(resp, impersonationDenied.Match) {
		return errImpersonate
	}
	return nil
}

// isProxied reports whether a request is for a Pod, Service or node behind the cluster's proxy.
func isProxied(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && (info.Subresource == "proxy" || info.Verb == "proxy")
}

// matchesText reports whether the first matchedBytes bytes of a response's body match. A Pod,
// Service or node can send matching text, but this replaces only its own response. The body can
// afterwards be read again from its beginning.
func matchesText(resp *http.Response, matches func(text []byte) bool) bool {
	head, err := io.ReadAll(io.LimitReader(resp.Body, matchedBytes))
	resp.Body = &struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return err == nil && matches(bytes.ReplaceAll(head, []byte(`\"`), []byte(`"`)))
}

// isUnauthorized reports whether a text is kube-apiserver's response to an invalid credential.
func isUnauthorized(text []byte) bool {
	obj, _, err := codecs().UniversalDeserializer().Decode(text, nil, nil)
	status, ok := obj.(*metav1.Status)
	return err == nil && ok && status.Reason == metav1.StatusReasonUnauthorized
}

// rewriteLocation converts a Location header from the cluster to the URL that the caller must
// request. It returns [errRedirect] if the location is outside the cluster.
func (c *route) rewriteLocation(location, prefix string) (string, error) {
	u, err := url.Parse(location)
	if err != nil || strings.HasPrefix(location, "//") || strings.Contains(location, `\`) {
		return "", errRedirect
	}
	if u.IsAbs() || u.Host != "" {
		if u.Scheme != c.server.Scheme || u.Host != c.server.Host {
			return "", errRedirect
		}
		u.Scheme = ""
		u.Host = ""
		u.User = nil
	}
	if !strings.HasPrefix(u.Path, "/") { // relative to the caller's own path
		return u.String(), nil
	}
	base := strings.TrimSuffix(c.server.Path, "/")
	path, below := strings.CutPrefix(u.EscapedPath(), base)
	if !below || path != "" && !strings.HasPrefix(path, "/") {
		return "", errRedirect
	}
	out := prefix + path
	if strings.HasPrefix(out, "//") {
		return "", errRedirect
	}
	if u.RawQuery != "" {
		out += "?" + u.RawQuery
	}
	if fragment := u.EscapedFragment(); fragment != "" {
		out += "#" + fragment
	}
	return out, nil
}

// endedBody is the body of a stream. It ends without an error when the stream's session ends. If
// the response were aborted, the caller would see a connection error.
type endedBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // the context of the only request that reads this body
}

func (b *endedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.ctx.Err() != nil { // the bytes that were just read are not forwarded
		return 0, io.EOF
	}
	return n, err
}

// respondError responds to a request that did not reach the cluster, or whose response must not be
// forwarded.
func (c *route) respondError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil || errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		klog.FromContext(r.Context()).V(2).Info("The cluster did not answer a request", "cluster", c.name, "err", err)
	}
	x := proxyStateFrom(r.Context())
	switch {
	case x.isStream && c.gateway.stopping.begun.Err() != nil: // the shutdown ended the stream
		refuseStream(w, r)
		return
	case errors.Is(r.Context().Err(), context.Canceled) && x.callerErr() == nil: // the session has ended
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // not for a write, which may have succeeded
			w.Header().Set("Retry-After", "1")
		}
		reason := errConfigChanged
		if c.gateway.stopping.begun.Err() != nil {
			reason = errStopping
		}
		respond(w, r, apierrors.NewServiceUnavailable(reason.Error()))
		return
	case x.body.isMalformed():
		respond(w, r, apierrors.NewBadRequest(errBody.Error()))
		return
	}
	responsewriters.ErrorNegotiated(statusOf(r.Context(), err), codecs(), schemaVersion, w, r)
}

// statusOf returns the response for an error. The response never contains the text of an error
// from the HTTP client, which may contain the cluster's address.
func statusOf(ctx context.Context, err error) *apierrors.StatusError {
	code, cause := http.StatusServiceUnavailable, errUnreachable
	var tooLarge *http.MaxBytesError
	var notForwarded *notForwardedError
	switch {
	case errors.As(err, &notForwarded):
		return forbidden(notForwarded)
	case errors.Is(err, errGatewayName):
		return forbidden(err)
	case apierrors.IsUnauthorized(err): // the response to a request that the gateway itself sent
		cause = errGatewayUnauthorized
	case errors.Is(err, errRedirect), errors.Is(err, errImpersonate):
		code, cause = http.StatusBadGateway, err
	case errors.Is(err, errGatewayUnauthorized):
		cause = err
	case errors.As(err, &tooLarge):
		return apierrors.NewRequestEntityTooLargeError("limit is " + strconv.FormatInt(tooLarge.Limit, 10))
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		code, cause = http.StatusGatewayTimeout, errClusterTimeout
	}
	out := apierrors.NewGenericServerResponse(code, "", schemaNone, "", "", 0, true)
	out.ErrStatus.Message = cause.Error()
	out.ErrStatus.Details = nil
	return out
}

// buffers is a pool of the buffers through which bodies are copied.
type buffers struct{ pool sync.Pool }

// The sizes of buffers in bytes. There are many streams. Each stream transfers little data at a
// time, but holds its buffer for long.
const (
	requestBuffer = 32 << 10
	streamBuffer  = 4 << 10
)

var (
	requestBuffers = newBuffers(requestBuffer)
	streamBuffers  = newBuffers(streamBuffer)
)

func newBuffers(size int) *buffers {
	return &buffers{sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte { return *b.pool.Get().(*[]byte) }

// Put implements [httputil.BufferPool].
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }

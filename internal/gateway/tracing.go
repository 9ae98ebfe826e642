// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// instrumentation is the name of the gateway's own tracer.
const instrumentation = "github.com/kubetenant/kubetenant/internal/gateway"

// traced makes a span of each request, of a trace of its own, which links to the caller's: whether
// it is recorded is not the caller's to say. Unlike kube-apiserver (k8s.io/apiserver
// pkg/endpoints/filters/traces.go, v0.37.1) it records no queries, nor paths of what is proxied: in
// those there may be secrets.
func (g *Gateway) traced(next http.Handler) http.Handler {
	if g.tracer == nil {
		return next
	}
	next = withoutProxied(next)
	return otelhttp.NewHandler(next, "kubetenant-gateway",
		otelhttp.WithTracerProvider(g.tracer),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithSpanNameFormatter(spanName))
}

// withoutProxied puts in place of the path that its span has that of what is proxied,
// without what is asked of that.
func withoutProxied(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, known := request.RequestInfoFrom(r.Context()); known && info.Subresource == "proxy" {
			if of, _, found := strings.Cut(r.URL.Path, "/proxy"); found {
				trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("url.path", of+"/proxy"))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// spanName names spans by what there are few of.
func spanName(_ string, r *http.Request) string {
	info, known := request.RequestInfoFrom(r.Context())
	if !known || !info.IsResourceRequest {
		return r.Method
	}
	name := info.Verb + " " + info.Resource
	if info.Subresource != "" {
		name += "/" + info.Subresource
	}
	return name
}

// tracedSending makes a span of how long a cluster takes to begin its answer.
// kube-apiserver links its own to it, or has them belong to it where the impersonator is in
// system:masters or system:monitoring.
func (g *Gateway) tracedSending(cluster string, send roundTripper) roundTripper {
	if g.tracer == nil {
		return send
	}
	tracer := g.tracer.Tracer(instrumentation)
	return func(r *http.Request) (*http.Response, error) {
		ctx, span := tracer.Start(r.Context(), "cluster", trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String("cluster", cluster)))
		defer span.End()
		r.Header.Del("Tracestate") // of the caller's trace
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
		resp, err := send(r)
		if err != nil { // which names the cluster's address
			span.SetStatus(codes.Error, statusOf(ctx, err).ErrStatus.Message)
			return nil, err
		}
		span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
		return resp, nil
	}
}

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

// withTracing creates a span for each request, in a new trace that links to the caller's trace. The
// caller does not decide whether the span is recorded. Unlike kube-apiserver (k8s.io/apiserver
// pkg/endpoints/filters/traces.go, v0.37.1), the gateway does not record queries, or the part of a
// proxied path after "/proxy". Both may contain secrets.
func (g *Gateway) withTracing(next http.Handler) http.Handler {
	if g.tracer == nil {
		return next
	}
	next = withoutProxiedPath(next)
	return otelhttp.NewHandler(next, "kubetenant-gateway",
		otelhttp.WithTracerProvider(g.tracer),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithSpanNameFormatter(spanName))
}

// withoutProxiedPath removes the part after "/proxy" from the path in the span of a proxied
// request.
func withoutProxiedPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Subresource == "proxy" {
			if of, _, found := strings.Cut(r.URL.Path, "/proxy"); found {
				trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("url.path", of+"/proxy"))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// spanName returns a span name with a small number of possible values.
func spanName(_ string, r *http.Request) string {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest {
		return r.Method
	}
	name := info.Verb + " " + info.Resource
	if info.Subresource != "" {
		name += "/" + info.Subresource
	}
	return name
}

// traceRoundTrip creates a span for the time until a cluster begins its response. kube-apiserver
// links its own spans to this span. If the impersonator is in system:masters or system:monitoring,
// the spans of kube-apiserver become children of this span.
func (g *Gateway) traceRoundTrip(cluster string, send roundTripper) roundTripper {
	if g.tracer == nil {
		return send
	}
	tracer := g.tracer.Tracer(instrumentation)
	return func(r *http.Request) (*http.Response, error) {
		ctx, span := tracer.Start(r.Context(), "cluster", trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String("cluster", cluster)))
		defer span.End()
		r.Header.Del("Tracestate") // belongs to the caller's trace
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
		resp, err := send(r)
		if err != nil { // err contains the cluster's address
			span.SetStatus(codes.Error, statusOf(ctx, err).ErrStatus.Message)
			return nil, err
		}
		span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
		return resp, nil
	}
}

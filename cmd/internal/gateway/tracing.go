package gateway

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// instrumentation is the name of the gateway's own tracer.
const instrumentation = "github.com/kubetenant/kubetenant/cmd/internal/gateway"

// traced makes a span of each request, of a trace of its own, which links to the caller's: whether it is recorded is not the caller's to
// say. Unlike kube-apiserver (k8s.io/apiserver pkg/endpoints/filters/traces.go, v0.37.1) it records no queries: in those of what is proxied
// there may be secrets.
func (g *Gateway) traced(next http.Handler) http.Handler {
	if g.tracer == nil {
		return next
	}
	return otelhttp.NewHandler(next, "kubetenant-gateway", otelhttp.WithTracerProvider(g.tracer), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }), otelhttp.WithSpanNameFormatter(spanName))
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

// tracedSending makes a span of how long a cluster takes to begin its answer, to which the cluster's own belong.
func (g *Gateway) tracedSending(cluster string, send roundTripper) roundTripper {
	if g.tracer == nil {
		return send
	}
	tracer := g.tracer.Tracer(instrumentation)
	return func(r *http.Request) (*http.Response, error) {
		ctx, span := tracer.Start(r.Context(), "cluster", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("cluster", cluster)))
		defer span.End()
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

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kubetenant/kubetenant/internal/webhook/service"
)

// TestSpanJoinsTraceOfServer checks that a span of the service belongs to the trace of
// kube-apiserver, and that it does not contain the user.
func TestSpanJoinsTraceOfServer(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	recorder := tracetest.NewSpanRecorder()
	w := newFixture(t)
	w.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	h := w.handler(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, service.AuthorizePath,
		strings.NewReader(access("v1", "groups", "a--web")))
	r.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	h.ServeHTTP(httptest.NewRecorder(), r)
	spans := recorder.Ended()
	if len(spans) != 1 || spans[0].SpanContext().TraceID().String() != trace ||
		spans[0].Parent().SpanID().String() != parent {
		t.Fatalf("spans %v", spans)
	}
	for _, a := range spans[0].Attributes() {
		if strings.Contains(a.Value.String(), "alice") {
			t.Errorf("the span names the user: %v", a)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestTraces checks that each request has its own trace, which is propagated to the cluster and
// linked to the caller's trace. The spans contain no credential, no query, no address that the
// caller sent, and no path at a proxied server. The gateway, not the caller, decides whether a
// trace is recorded.
func TestTraces(t *testing.T) {
	t.Parallel()
	const callers, sampled = "0af7651916cd43dd8448eb211c80319c", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for what, c := range map[string]struct {
		sampler sdktrace.Sampler
		want    int
	}{"all are recorded": {sdktrace.AlwaysSample(), 2}, "none is recorded": {sdktrace.NeverSample(), 0}} {
		t.Run(what, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			c1 := newFakeCluster(t, defaultNamespaces())
			w := newTracedFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c1},
				sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(c.sampler)),
					sdktrace.WithSpanProcessor(recorder)))
			recorder.Reset()
			if code, text := w.get("alice-token", podsPath+"/x/proxy/CANARY-path?password=CANARY-query", "Traceparent", sampled,
				"Tracestate", "vendor=CANARY-state", "X-Forwarded-For", "CANARY-address"); code != http.StatusOK {
				t.Fatalf("%d: %s", code, text)
			}
			w.server.Close() // waits for active responses
			spans := recorder.Ended()
			sent := c1.takeRequests()
			if len(sent) != 1 || sent[0].Header.Get("Tracestate") != "" {
				t.Fatalf("%v", sent)
			}
			parent := strings.Split(sent[0].Header.Get("Traceparent"), "-")
			if len(parent) != 4 || parent[1] == callers || (parent[3] == "01") != (c.want > 0) {
				t.Errorf("the cluster received %v", parent)
			}
			if len(spans) != c.want {
				t.Errorf("%d spans", len(spans))
			}
			for _, s := range spans {
				if s.SpanContext().TraceID().String() != parent[1] {
					t.Errorf("%s belongs to another trace", s.Name())
				}
				if text := fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()); strings.Contains(text, "CANARY") ||
					strings.Contains(text, "alice-token") || strings.Contains(text, impersonatorToken) {
					t.Errorf("%s contains a secret: %s", s.Name(), text)
				}
			}
			if c.want > 0 {
				if own := spans[1]; own.Name() != "get pods/proxy" || len(own.Links()) != 1 ||
					own.Links()[0].SpanContext.TraceID().String() != callers {
					t.Errorf("%s, linked to %v", own.Name(), own.Links())
				}
				if parent[2] != spans[0].SpanContext().SpanID().String() {
					t.Errorf("the cluster received the span %s", parent[2])
				}
			}
		})
	}
}

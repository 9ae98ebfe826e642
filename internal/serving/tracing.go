// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/component-base/tracing"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"
)

// Tracer returns a provider that exports the spans of a service to the configured collector. It
// returns nil if config is nil. shutdown exports the last spans. The connection to the collector
// does not use TLS (k8s.io/component-base tracing, v0.37.1). Export errors are logged and do not
// affect requests.
func Tracer(
	ctx context.Context, config *tracingv1.TracingConfiguration, service string,
) (_ trace.TracerProvider, shutdown func(), err error) {
	if config == nil {
		return nil, func() {}, nil
	}
	provider, err := tracing.NewProvider(ctx, config, nil,
		[]resource.Option{resource.WithAttributes(attribute.String("service.name", service))})
	if err != nil {
		return nil, nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		klog.FromContext(ctx).Error(err, "Failed to export spans")
	}))
	return provider, func() { _ = provider.Shutdown(context.WithoutCancel(ctx)) }, nil // an error loses the last spans
}

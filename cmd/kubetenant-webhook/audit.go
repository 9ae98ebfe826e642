// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/component-base/metrics"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/internal/webhook/service"
)

// openAudit opens the audit streams of a configuration. It returns nil if config is nil. The caller
// MUST call end after the last request.
func openAudit(
	config *configv1alpha1.Audit, s *stack.Stack, ready func() bool, register func(metrics.Registerable) error,
) (a *service.Audit, end func(), err error) {
	streams, err := stack.OpenAudit(config)
	if err != nil || streams == nil {
		return nil, func() {}, err
	}
	records := tenantaudit.NewMetrics()
	for _, r := range records.Registerables() {
		if err := register(r); err != nil {
			return nil, nil, err
		}
	}
	resolver := s.AuditResolver()
	resolver.CallerKey, resolver.OwnerKey = "", "" // events from kube-apiserver do not have these annotations
	a = &service.Audit{Sink: tenantaudit.NewSink(streams, records), Resolver: resolver, Ready: ready}
	return a, func() { _ = streams.Close() }, nil
}

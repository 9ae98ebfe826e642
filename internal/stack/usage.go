// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"os"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
)

// stream records a watch or another stream of a tenant until ended is called.
func (s *shared) stream(id tenant.ID) (ended func()) {
	if s.ObserveStream != nil {
		return s.ObserveStream(id)
	}
	return s.decisions.usage.Stream(id)
}

// RecordSeats records that a request occupied seats of API Priority and Fairness for the duration
// lasted. A server calls it after the request has released the seats. The request MUST have passed
// [Stack.WithRequestState] and [Stack.AdmitFlow], which determines the tenant.
func (s *Stack) RecordSeats(ctx context.Context, seats uint64, lasted time.Duration) {
	if s.shared.decisions.usage != nil {
		s.shared.decisions.usage.Executed(fairUseStateOf(ctx).limitedTenant, seats, lasted)
	}
}

// StartUsage starts writing the usage of tenants at this server. If objects is not nil, it writes
// the usage to TenantUsages. A gateway passes nil, because TenantUsages belong to one cluster. If
// the section usage of the configuration specifies a file or an endpoint, it also writes usage
// records, which name the component. Writing ends when ctx ends or [usage.Running.Stop] is called.
// StartUsage MUST be called at most once, and MUST NOT be called if [Server.ObserveStream] is set.
func (s *Stack) StartUsage(ctx context.Context, component usage.Component, objects dynamic.Interface) *usage.Running {
	config := &s.current.Load().config.Usage
	recorder := s.shared.decisions.usage
	host, err := os.Hostname()
	if err != nil && config.Server == "" {
		klog.FromContext(ctx).Error(err, "Failed to read the name of the host: set usage.server in the configuration. Until "+
			"then, the usage of this server has another name", "name", usage.Unnamed)
	}
	server := usage.ServerName(config.Server, host)
	var o usage.RunOptions
	if objects != nil {
		o.Writer = usage.NewWriter(usage.WriterOptions{
			Recorder: recorder,
			Client:   objects,
			Server:   server,
			Metrics:  s.shared.usage,
		})
	}
	if target := usageTarget(config); target != nil {
		o.Records = usage.NewRecords(usage.RecordsOptions{
			Recorder:  recorder,
			Target:    target,
			Directory: config.Directory,
			Cluster:   config.Cluster,
			Server:    server,
			Component: component,
			Metrics:   s.shared.usage,
		})
	}
	return usage.Start(ctx, recorder, o)
}

// usageTarget returns the target of usage records, or nil if there is none.
func usageTarget(config *configv1alpha1.Usage) usage.Target {
	switch {
	case config.File != nil:
		return usage.NewFile(config.File.Path, *config.File.MaxSizeMegabytes, *config.File.MaxBackups)
	case config.Endpoint != nil:
		e := config.Endpoint
		return usage.NewEndpoint(e.URL, e.CAFile, e.TokenFile, e.Timeout.Duration)
	}
	return nil
}

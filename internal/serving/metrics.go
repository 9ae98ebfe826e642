// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
)

// LeadingMetric returns a metric that is 1 while this replica is the leader of the named
// controller. The function leads reports whether it is.
func LeadingMetric(name string, leads func() bool) prometheus.Collector {
	return metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name:           "kubetenant_controller_leading",
		ConstLabels:    map[string]string{"name": name},
		Help:           "1 if this replica does the work of the named controller, otherwise 0.",
		StabilityLevel: metrics.ALPHA,
	}, boolValue(leads))
}

// WebhookMetrics returns the metrics of a replica of kubetenant-webhook. The function current
// reports whether the replica's data about the cluster is current.
func WebhookMetrics(server *Server, current func() bool) []prometheus.Collector {
	return []prometheus.Collector{
		metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name:           "kubetenant_webhook_certificate_expiration_timestamp_seconds",
			Help:           "Expiry of the serving certificate, in seconds since 1970.",
			StabilityLevel: metrics.ALPHA,
		}, func() float64 {
			certificates, err := cert.ParseCertsPEM(server.Certificate())
			if err != nil {
				return 0
			}
			return float64(certificates[0].NotAfter.Unix())
		}),
		metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name: "kubetenant_webhook_client_certificate_expiration_timestamp_seconds",
			Help: "Earliest expiry of the certificates of connected clients, in seconds since 1970. " +
				"Infinite if no client has a certificate.",
			StabilityLevel: metrics.ALPHA,
		}, func() float64 {
			if end := server.ClientCertificatesExpiry(); !end.IsZero() {
				return float64(end.Unix())
			}
			return math.Inf(1)
		}),
		metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name:           "kubetenant_webhook_state_current",
			Help:           "1 if the replica's data about the cluster is current, otherwise 0.",
			StabilityLevel: metrics.ALPHA,
		}, boolValue(current)),
	}
}

// boolValue returns a function that returns 1 if condition returns true, otherwise 0.
func boolValue(condition func() bool) func() float64 {
	return func() float64 {
		if condition() {
			return 1
		}
		return 0
	}
}

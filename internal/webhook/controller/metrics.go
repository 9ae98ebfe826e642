// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "k8s.io/component-base/metrics"

// UnlabeledMetric returns the metric of [Tasks.Unlabeled].
func UnlabeledMetric() *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{
		Name: "kubetenant_controller_sweep_lacking",
		Help: "Number of resources with objects that lack the label of their tenant. " +
			"Tenants cannot list these resources over all namespaces.",
		StabilityLevel: metrics.ALPHA,
	})
}

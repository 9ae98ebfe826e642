// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import "k8s.io/component-base/metrics"

// Metrics are the metrics of records and of TenantUsages.
type Metrics struct {
	records, errors *metrics.CounterVec
}

// The values of the labels of the metrics.
const (
	resultSent    = "sent"
	resultFailed  = "failed"
	resultDropped = "dropped"

	operationSpool  = "spool"
	operationObject = "tenantusage"
)

// NewMetrics returns the metrics.
func NewMetrics() *Metrics {
	counter := func(name, help, label string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace:      "kubetenant",
			Subsystem:      "usage",
			Name:           name,
			Help:           help,
			StabilityLevel: metrics.ALPHA,
		}, []string{label})
	}
	return &Metrics{
		records: counter("records_total", "Number of usage records by result: sent if the target acknowledged them, failed "+
			"if it did not, and dropped if they were removed from the spool without an acknowledgment. Failed records are "+
			"sent again.", "result"),
		errors: counter("errors_total", "Number of failed writes of usage, by operation: spool for the files in "+
			"usage.directory, tenantusage for TenantUsages. Both are tried again.", "operation"),
	}
}

// begin creates all series with the value 0. Otherwise, an alert on an increase would miss the
// first event. The metrics MUST be registered before.
func (m *Metrics) begin() {
	for _, result := range []string{resultSent, resultFailed, resultDropped} {
		m.records.WithLabelValues(result)
	}
	for _, operation := range []string{operationSpool, operationObject} {
		m.errors.WithLabelValues(operation)
	}
}

// Registerables returns the metrics that the server registers.
func (m *Metrics) Registerables() []metrics.Registerable {
	return []metrics.Registerable{m.records, m.errors}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import "k8s.io/component-base/metrics"

// The values of the label result.
const (
	written = "written"
	failed  = "failed"
	dropped = "dropped"
	limited = "limited"
)

// Metrics counts records by the kind of their stream and by result. Safe for concurrent use.
type Metrics struct{ records *metrics.CounterVec }

// NewMetrics returns the metrics of audit streams. The server MUST register them.
func NewMetrics() *Metrics {
	return &Metrics{metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "kubetenant",
		Subsystem: "audit_stream",
		Name:      "records_total",
		Help: "Number of records of the audit streams, by the kind of the stream, which is system or tenant, and by " +
			"result. The result is written, failed if it was not stored or its batch was refused, dropped if the " +
			"queue was full, " +
			"or limited for requests that were not authenticated.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"stream", "result"})}
}

// Registerables returns the metrics that the server registers.
func (m *Metrics) Registerables() []metrics.Registerable { return []metrics.Registerable{m.records} }

func (m *Metrics) count(stream Stream, result string) { m.add(stream, result, 1) }

func (m *Metrics) add(stream Stream, result string, records int) {
	kind := "tenant"
	if !stream.IsTenant() {
		kind = "system"
	}
	m.records.WithLabelValues(kind, result).Add(float64(records))
}

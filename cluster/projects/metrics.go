// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics are the metrics of a [Syncer]. Only the process that runs the Syncer sets them.
type Metrics struct {
	reads       *metrics.CounterVec
	lastSuccess *metrics.Gauge
	interval    *metrics.Gauge
	tenants     *metrics.GaugeVec
	writes      *metrics.CounterVec
	following   atomic.Bool
}

// NewMetrics returns the metrics.
func NewMetrics() *Metrics {
	const namespace, subsystem = "kubetenant", "keystone_sync"
	return &Metrics{
		reads: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace:      namespace,
			Subsystem:      subsystem,
			Name:           "reads_total",
			Help:           "Number of reads of Keystone's projects and roles by result: success, incomplete or unavailable.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		lastSuccess: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: namespace,
			Subsystem: subsystem,
			Name:      "last_success_timestamp_seconds",
			Help: "Time of the last complete read of Keystone's projects and roles in seconds since the Unix epoch. Before " +
				"the first one, the time at which the process began to follow Keystone. 0 if it follows none.",
			StabilityLevel: metrics.ALPHA,
		}),
		interval: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace:      namespace,
			Subsystem:      subsystem,
			Name:           "interval_seconds",
			Help:           "Configured time between two reads of Keystone, or 0 if the process follows none.",
			StabilityLevel: metrics.ALPHA,
		}),
		tenants: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace:      namespace,
			Subsystem:      subsystem,
			Name:           "tenants",
			Help:           "Number of Tenants with the condition KeystoneSynced by its reason.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"reason"}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace:      namespace,
			Subsystem:      subsystem,
			Name:           "writes_total",
			Help:           "Number of writes to the cluster because of Keystone by result: success or error.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
	}
}

// Metrics returns the metrics to register.
func (m *Metrics) Metrics() []metrics.Registerable {
	return []metrics.Registerable{m.reads, m.lastSuccess, m.interval, m.tenants, m.writes}
}

// Follow records that the process follows a Keystone, even if it cannot open the source yet. If
// the process did not follow a Keystone before, the time of the last success is now.
func (m *Metrics) Follow(interval time.Duration, now time.Time) {
	m.interval.Set(interval.Seconds())
	if !m.following.Swap(true) {
		m.lastSuccess.Set(float64(now.Unix()))
	}
}

// Stop records that the process does not follow a Keystone.
func (m *Metrics) Stop() {
	m.following.Store(false)
	m.lastSuccess.Set(0)
	m.interval.Set(0)
	m.tenants.Reset()
}

func (m *Metrics) countRead(result string, now time.Time) {
	m.reads.WithLabelValues(result).Inc()
	if result == readSuccess {
		m.lastSuccess.Set(float64(now.Unix()))
	}
}

// The results of a read.
const (
	readSuccess     = "success"
	readIncomplete  = "incomplete"
	readUnavailable = "unavailable"
)

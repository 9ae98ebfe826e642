// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strconv"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/internal/tenantaudit"
)

// gatewayMetrics are the metrics of the gateway's requests.
type gatewayMetrics struct {
	requests *metrics.CounterVec
	latency  *metrics.HistogramVec
	// overLimit has no label for the address, because clients can choose from many addresses.
	overLimit *metrics.Counter
	// auditEvents has the label result: auditWritten, auditFailed or auditOmitted.
	auditEvents *metrics.CounterVec
	streams     *tenantaudit.Metrics
	current     metrics.StableCollector
}

// The results of writing audit events.
const (
	auditWritten = "written"
	auditFailed  = "failed"
	auditOmitted = "omitted"
)

// noCluster is the cluster label for requests that are for no configured cluster. Names that
// callers invent must not become labels.
const noCluster = "(none)"

func newGatewayMetrics(g *Gateway) *gatewayMetrics {
	return &gatewayMetrics{
		requests: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace:      "kubetenant",
			Subsystem:      "gateway",
			Name:           "requests_total",
			Help:           "Requests by cluster and HTTP status. A stream is counted when it ends.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"cluster", "code"}),
		latency: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace:      "kubetenant",
			Subsystem:      "gateway",
			Name:           "request_duration_seconds",
			Help:           "Duration of requests that are not streams, by cluster.",
			StabilityLevel: metrics.ALPHA,
			Buckets:        []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30},
		}, []string{"cluster"}),
		overLimit: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: "kubetenant",
			Subsystem: "gateway",
			Name:      "unauthenticated_requests_refused_total",
			Help: "Requests that got 429 because too many requests waited for authentication, in total or from one " +
				"address. They are also in requests_total.",
			StabilityLevel: metrics.ALPHA,
		}),
		auditEvents: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "kubetenant",
			Subsystem: "gateway",
			Name:      "audit_events_total",
			Help: "Number of audit events by result: written, failed, or omitted because unauthenticated requests or a " +
				"tenant's callers wrote too many.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		streams: tenantaudit.NewMetrics(),
		current: &clusterCollector{gateway: g},
	}
}

func (m *gatewayMetrics) registerables() []metrics.Registerable {
	return []metrics.Registerable{m.requests, m.latency, m.overLimit, m.auditEvents}
}

// count records a request after the response.
func (m *gatewayMetrics) count(x *proxyState, code int, took time.Duration) {
	name := nameOf(x.route)
	m.requests.WithLabelValues(name, strconv.Itoa(code)).Inc()
	if !x.isStream {
		m.latency.WithLabelValues(name).Observe(took.Seconds())
	}
}

// countOverLimit records a request that was rejected before authentication.
func (m *gatewayMetrics) countOverLimit() {
	m.overLimit.Inc()
	m.requests.WithLabelValues(noCluster, strconv.Itoa(http.StatusTooManyRequests)).Inc()
}

// clusterCollector reports whether the gateway's data about each cluster is current.
type clusterCollector struct {
	metrics.BaseStableCollector
	gateway *Gateway
}

var clusterCurrent = metrics.NewDesc("kubetenant_gateway_cluster_current",
	"1 if the gateway's data about a cluster is current, otherwise 0. While it is 0, tenants' callers are denied.",
	[]string{"cluster"}, nil, metrics.ALPHA, "")

// DescribeWithStability implements [metrics.StableCollector].
func (c *clusterCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- clusterCurrent }

// CollectWithStability implements [metrics.StableCollector].
func (c *clusterCollector) CollectWithStability(ch chan<- metrics.Metric) {
	current := c.gateway.current.Load()
	if current == nil {
		return
	}
	for name, r := range current.routes {
		value := 0.0
		if r.cluster.state.Current() {
			value = 1
		}
		ch <- metrics.NewLazyConstMetric(clusterCurrent, metrics.GaugeValue, value, name)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"errors"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/tenant"
)

// Metrics records authentication requests by source and result, and lookups in the token cache
// by result. A nil Metrics records nothing. It is safe for concurrent use.
type Metrics struct {
	requests *metrics.CounterVec
	cache    *metrics.CounterVec
}

// NewMetrics returns metrics that are not yet registered. Nothing is recorded before the
// registration.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "kubetenant",
			Subsystem: "authentication",
			Name:      "requests_total",
			Help: "Number of authentication requests by source and result. " +
				"The source is built-in for the server's own authenticators, and none if no source claimed the credential. " +
				"The result is success, refused, unclaimed, or unavailable if the source could not reach its provider.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"source", "result"}),
		cache: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "kubetenant",
			Subsystem: "authentication",
			Name:      "token_cache_requests_total",
			Help: "Number of lookups in the cache of bearer tokens, by result: hit or miss. " +
				"Tokens that no source claims are not included.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
	}
}

// Registerables returns the metrics, which must be registered once.
func (m *Metrics) Registerables() []metrics.Registerable {
	return []metrics.Registerable{m.requests, m.cache}
}

func (m *Metrics) hit()  { m.lookup("hit") }
func (m *Metrics) miss() { m.lookup("miss") }

func (m *Metrics) lookup(result string) {
	if m != nil {
		m.cache.WithLabelValues(result).Inc()
	}
}

// count adds a request to the metrics. No label value comes from a credential.
func (m *Metrics) count(resp *authenticator.Response, ok bool, r *refusal) {
	if m == nil {
		return
	}
	switch {
	case r != nil && errors.As(r, new(outbound.Unavailable)):
		m.requests.WithLabelValues(r.source, "unavailable").Inc()
	case r != nil:
		m.requests.WithLabelValues(r.source, "refused").Inc()
	case !ok:
		m.requests.WithLabelValues("none", "unclaimed").Inc()
	default:
		source := builtInSource
		if names := resp.User.GetExtra()[tenant.SourceKey]; len(names) == 1 {
			source = names[0]
		}
		m.requests.WithLabelValues(source, "success").Inc()
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package flowschemas

import (
	"context"
	"errors"
	"slices"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// Values of the metric's reason label. Each is a reason why a tenant's FlowSchema does not apply as
// configured.
const (
	// ReasonTenantLimit means that the tenant has no FlowSchema, because more than [MaxTenants]
	// Tenants have spec.fairUse.level.
	ReasonTenantLimit = "TenantLimit"
	// ReasonNamespaceLimit means that the tenant has more than [MaxNamespaces] namespaces. Its flow
	// does not include the service accounts in the remaining namespaces.
	ReasonNamespaceLimit = "NamespaceLimit"
	// ReasonLevelMissing means that the priority level that the Tenant selects does not exist. The
	// tenant uses [Level].
	ReasonLevelMissing = "LevelMissing"
	// ReasonForeign means that a FlowSchema with this name exists, but does not have the label of
	// this package.
	ReasonForeign = "Foreign"
	// ReasonWriteFailed means that the FlowSchema or the priority level [Level] could not be
	// written.
	ReasonWriteFailed = "WriteFailed"
	// ReasonUnavailable means that the server does not serve FlowSchemas, or that the FlowSchemas
	// or the tenant's namespaces have not been read.
	ReasonUnavailable = "Unavailable"
)

// Metrics are the metrics of a [Syncer]. Only the process that runs the Syncer sets them.
type Metrics struct{ problems *metrics.GaugeVec }

// NewMetrics returns the metrics.
func NewMetrics() *Metrics {
	return &Metrics{problems: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "kubetenant_flow_schema_problems",
		Help: "Number of FlowSchemas of tenants that do not apply as configured by reason: TenantLimit, NamespaceLimit, " +
			"LevelMissing, Foreign, WriteFailed or Unavailable.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})}
}

// Metrics returns the metrics to register.
func (m *Metrics) Metrics() []metrics.Registerable { return []metrics.Registerable{m.problems} }

func (m *Metrics) reset() { m.problems.Reset() }

func (m *Metrics) set(counts map[string]int) {
	for _, reason := range []string{
		ReasonTenantLimit, ReasonNamespaceLimit, ReasonLevelMissing, ReasonForeign, ReasonWriteFailed, ReasonUnavailable,
	} {
		m.problems.WithLabelValues(reason).Set(float64(counts[reason]))
	}
}

// problem is a problem with the FlowSchema or priority level of the given name.
type problem struct{ reason, name string }

// findings contains the problems that one pass found, and their details.
type findings struct{ problems map[problem]string }

func newFindings() *findings { return &findings{problems: map[problem]string{}} }

func (f *findings) add(reason, name, detail string) { f.problems[problem{reason, name}] = detail }

// remedy returns advice for an administrator about a problem.
func remedy(reason string) string {
	switch reason {
	case ReasonTenantLimit:
		return "remove spec.fairUse.level from other Tenants"
	case ReasonNamespaceLimit:
		return "reduce the number of the tenant's namespaces, or accept that the others are not in its flow"
	case ReasonLevelMissing:
		return "create the PriorityLevelConfiguration, or change spec.fairUse.level of the Tenant"
	case ReasonForeign:
		return "delete or rename this FlowSchema, so that the controller can create its own"
	}
	return "check the rights of the controller and the log of kube-apiserver"
}

// errProblem is the error that is logged with every problem. The field detail contains the cause.
var errProblem = errors.New("the FlowSchemas do not apply as configured")

// maxNamed is the maximum number of FlowSchemas that a log message names.
const maxNamed = 5

// report sets the metric, and logs the problems that the last pass did not find.
func (s *Syncer) report(ctx context.Context, found *findings) {
	counts := map[string]int{}
	now := make(map[problem]bool, len(found.problems))
	fresh := map[string][]string{}
	for p := range found.problems {
		counts[p.reason]++
		now[p] = true
		if !s.reported[p] {
			fresh[p.reason] = append(fresh[p.reason], p.name)
		}
	}
	for reason, names := range fresh {
		slices.Sort(names)
		klog.FromContext(ctx).Error(errProblem, "Failed to maintain the FlowSchemas of tenants", "reason", reason,
			"count", len(names), "flowSchemas", names[:min(maxNamed, len(names))],
			"detail", found.problems[problem{reason, names[0]}], "remedy", remedy(reason))
	}
	s.reported = now
	s.Metrics.set(counts)
}

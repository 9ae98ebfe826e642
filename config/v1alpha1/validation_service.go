// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
)

// minStaleAfter is the lower bound of staleAfter. In this time, the service checks kube-apiserver
// five times.
const minStaleAfter = 10 * time.Second

func validateService(s *Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.StaleAfter.Duration < minStaleAfter {
		errs = append(errs, field.Invalid(path.Child("staleAfter"), s.StaleAfter.Duration.String(), "must be 10s or more"))
	}
	if s.Drain.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("drain"), s.Drain.Duration.String(), "must not be negative"))
	}
	for i, audience := range s.APIAudiences {
		if audience == "" {
			errs = append(errs, field.Required(path.Child("apiAudiences").Index(i), ""))
		}
	}
	limits := path.Child("limits")
	for _, n := range []struct {
		path *field.Path
		is   int64
		min  int64
	}{
		{path.Child("tenantMetrics"), int64(*s.TenantMetrics), 0},
		{limits.Child("concurrent"), int64(*s.Limits.Concurrent), 1},
		{limits.Child("queued"), int64(*s.Limits.Queued), 0},
		{limits.Child("bodyBytes"), *s.Limits.BodyBytes, 1 << 10},
	} {
		if n.is < n.min {
			errs = append(errs, field.Invalid(n.path, n.is, fmt.Sprintf("must be at least %d", n.min)))
		}
	}
	if s.Limits.Timeout.Duration <= 0 {
		errs = append(errs, field.Invalid(limits.Child("timeout"), s.Limits.Timeout.Duration.String(), "must be positive"))
	}
	if s.Tracing != nil {
		errs = append(errs, tracingv1.ValidateTracingConfiguration(s.Tracing, nil, path.Child("tracing"))...)
	}
	return errs
}

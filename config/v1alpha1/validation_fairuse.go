// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func validateFairUse(f *tenantv1alpha1.FairUse, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if f.Level != "" && len(validation.IsDNS1123Label(f.Level)) > 0 {
		errs = append(errs, field.Invalid(path.Child("level"), f.Level, "must be a lower-case DNS label"))
	}
	for _, limit := range []struct {
		name string
		n    *int32
		most int32
	}{
		{"requestsPerSecond", f.RequestsPerSecond, 100_000},
		{"burst", f.Burst, 1_000_000},
		{"inFlight", f.InFlight, 100_000},
		{"watches", f.Watches, 1_000_000},
	} {
		if limit.n != nil && (*limit.n < 1 || *limit.n > limit.most) {
			errs = append(errs,
				field.Invalid(path.Child(limit.name), *limit.n, fmt.Sprintf("must be between 1 and %d", limit.most)))
		}
	}
	if f.Burst != nil && f.RequestsPerSecond == nil {
		errs = append(errs, field.Required(path.Child("requestsPerSecond"), "must be set if burst is set"))
	}
	return errs
}

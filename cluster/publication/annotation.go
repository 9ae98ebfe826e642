// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TenantsOf returns the tenants that a value of [tenant.PublishAnnotation] names.
func TenantsOf(value string) (v1alpha1.PublicationTenants, error) {
	if strings.TrimSpace(value) == tenant.AnyName {
		return v1alpha1.PublicationTenants{All: true}, nil
	}
	var ids []string
	for i, part := range strings.Split(value, ",") {
		id, err := tenant.Parse(strings.TrimSpace(part))
		if err != nil {
			return v1alpha1.PublicationTenants{}, fmt.Errorf("element %d: %w", i, err)
		}
		if id.IsSystem() {
			return v1alpha1.PublicationTenants{}, errors.New("an object cannot be published to the system tenant")
		}
		if !slices.Contains(ids, id.String()) {
			ids = append(ids, id.String())
		}
	}
	return v1alpha1.PublicationTenants{IDs: ids}, nil
}

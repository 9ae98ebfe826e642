// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestQuotasOfTenants checks to which tenant a quota belongs. A missing quota belongs to the tenant
// with the same object name.
func TestQuotasOfTenants(t *testing.T) {
	quotas := quotaTenants{"q": tenanttest.ID(t, "acme"), "globex": tenanttest.ID(t, "acme"), "bad": {}}
	for _, c := range []struct {
		name, id string
		want     bool
	}{
		{"q", "acme", true},
		{"q", "globex", false},
		{"acme", "acme", true},
		{"acme", "globex", false},
		{"globex", "acme", true},
		{"globex", "globex", false},
		{"bad", "acme", false},
		{"bad", "bad", false},
		{"none", "acme", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := quotas.BelongsTo(c.name, tenanttest.ID(t, c.id)); got != c.want {
				t.Errorf("quota %s belongs to %s: %t; want %t", c.name, c.id, got, c.want)
			}
		})
	}
	if (quotaTenants{"bad": {}}).BelongsTo("bad", tenanttest.ID(t, "acme")) || quotas.BelongsTo("x", tenant.ID{}) ||
		quotas.BelongsTo("bad", tenant.ID{}) {
		t.Error("an invalid quota belongs to a tenant, or a quota to no tenant")
	}
}

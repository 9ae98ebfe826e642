package simulator

import (
	"testing"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestNameOfQuota: the quota that is about a tenant is told by its name; none is "", and
// which of two is not told.
func TestNameOfQuota(t *testing.T) {
	of := func(name string) tenant.ID { return tenanttest.ID(t, name) }
	quotas := quotaTenants{
		"q":   of("acme"),
		"one": of("initech"),
		"two": of("initech"),
		"bad": {},
	}
	for name, want := range map[string]string{"acme": "q true", "globex": " true", "initech": " false"} {
		found, known := quotas.NameOf(of(name))
		got := found + " false"
		if known {
			got = found + " true"
		}
		if got != want {
			t.Errorf("NameOf(%s) = %q; want %q", name, got, want)
		}
	}
}

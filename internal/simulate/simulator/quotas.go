package simulator

import (
	"context"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

// quotaTenants knows of quotas only whom they are about, which decisions hang on: nothing is
// limited here. It implements [stack.QuotaStore].
type quotaTenants map[string]tenant.ID

func (quotaTenants) Of(context.Context, tenant.ID) ([]*quota.State, error)    { return nil, nil }
func (quotaTenants) Taken(context.Context, tenant.ID) (bool, error)           { return false, nil }
func (quotaTenants) Charge(context.Context, *quota.State, *quota.State) error { return nil }
func (quotaTenants) Classes() (quota.Classes, error)                          { return nil, nil }
func (q quotaTenants) TenantOf(name string) tenant.ID                         { return q[name] }

func (q quotaTenants) NameOf(id tenant.ID) (string, bool) {
	found := ""
	for name, of := range q {
		switch {
		case of != id:
		case found != "":
			return "", false
		default:
			found = name
		}
	}
	return found, true
}

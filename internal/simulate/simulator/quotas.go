// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

// quotaTenants contains the tenant of each quota, keyed by the quota's name. It enforces no
// limits. It implements [lookup.Quotas].
type quotaTenants map[string]tenant.ID

func (quotaTenants) States(context.Context, tenant.ID) ([]*quota.State, error) { return nil, nil }
func (quotaTenants) HasQuota(context.Context, tenant.ID) (bool, error)         { return false, nil }
func (quotaTenants) Charge(context.Context, *quota.State, *quota.State) error  { return nil }
func (quotaTenants) Classes() (quota.Classes, error)                           { return nil, nil }

// BelongsTo implements [lookup.Quotas].
func (q quotaTenants) BelongsTo(name string, id tenant.ID) bool {
	owner, exists := q[name]
	if !exists {
		return name == id.ObjectName()
	}
	return owner == id && !id.IsZero()
}

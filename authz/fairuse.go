// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// FairUsePath is the path of the report on the usage of the caller's tenant. Callers of the system
// tenant see the report on all tenants.
const FairUsePath = "/kubetenant/fair-use"

// AuditPath is the path of the audit stream of the caller's own tenant. Callers of the system
// tenant can read all streams.
const AuditPath = "/kubetenant/audit"

// FairUseTenant returns the tenant whose limits of fair use apply to a request with user u. It is
// the tenant of the authenticated caller. If that is the system tenant, it is the tenant of the
// impersonated user, because a gateway or a controller acts for that user. FairUseTenant returns
// the zero ID if there is no tenant.
//
// Security: the server MUST have checked that the caller may impersonate u.
func (b *Boundary) FairUseTenant(ctx context.Context, u user.Info) tenant.ID {
	if u == nil {
		return tenant.ID{}
	}
	state := requestStateFrom(ctx)
	id, err := b.options.Subjects.TenantOf(ctx, state.authenticatedOr(u))
	if err == nil && id.IsSystem() && !state.isAuthenticatedUser(u) {
		id, err = b.options.Subjects.impersonatedTenant(ctx, id, u)
	}
	if err != nil {
		return tenant.ID{}
	}
	return id
}

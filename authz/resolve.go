// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// caller is the resolved caller of a request. Later steps use its user instead of the user in the
// attributes.
type caller struct {
	// tenant is zero if the caller has no tenant, or if its tenant could not be determined.
	tenant tenant.ID
	// user is the user for the delegate. An impersonated user is bound to its tenant. user is nil
	// if denied is set.
	user user.Info
	// denied is the reason to deny every request of the caller, or [ReasonNone]. err is the
	// cause, for the log.
	denied Reason
	err    error
}

// resolve returns the caller of a request. For an impersonation check, the caller is the
// authenticated user, because the attributes may contain a changed copy of that user.
func (b *Boundary) resolve(ctx context.Context, state *requestState, attrs *requestAttributes) caller {
	if attrs.user == nil {
		return caller{denied: ReasonNoTenant}
	}
	id, u, err := b.identify(ctx, state, attrs)
	if err != nil {
		switch {
		case errors.Is(err, errImpersonation):
			return caller{denied: ReasonImpersonation}
		case errors.Is(err, tenant.ErrUnbound):
			return caller{user: u}
		case errors.Is(err, ErrUndated):
			return caller{denied: ReasonUndated}
		}
		return caller{denied: ReasonBadTenant, err: err}
	}
	switch {
	case b.options.Revoked != nil && b.options.Revoked(id, u):
		return caller{tenant: id, denied: ReasonRevoked}
	case !id.IsSystem() && b.checkForm(u) != nil:
		return caller{tenant: id, denied: ReasonMalformed}
	case !id.IsSystem() && inForeignSystemGroup(u):
		return caller{tenant: id, denied: ReasonSystemGroup}
	}
	return caller{tenant: id, user: u}
}

// addedGroups and addedBytes are the number of groups and bytes that a server may add to an
// identity after authentication checked its size. A server adds the groups of the tenant, of all
// authenticated users and of service accounts.
const (
	addedGroups = 8
	addedBytes  = 4 << 10
)

// checkForm returns an error if the identity is too large, or if a server that trims names could
// confuse a tenant's caller with another user. It repeats a check of authentication for servers
// that authenticate requests themselves. Extras are not checked, because [tenant.Of] validates the
// extra that names the tenant.
func (b *Boundary) checkForm(u user.Info) error {
	limits := b.options.Limits.OrDefault()
	groups := u.GetGroups()
	size := len(u.GetName()) + len(u.GetUID())
	wellFormed := tenant.IsWellFormed(u.GetName()) && tenant.IsWellFormed(u.GetUID())
	for _, group := range groups {
		size += len(group)
		wellFormed = wellFormed && size <= limits.Bytes+addedBytes && tenant.IsWellFormed(group)
	}
	switch {
	case size > limits.Bytes+addedBytes || len(groups) > limits.Groups+addedGroups:
		return tenant.ErrLarge
	case !wellFormed:
		return tenant.ErrForm
	}
	return nil
}

// errImpersonation reports that an impersonated user does not belong to the tenant of its
// impersonator, or that the impersonator has no tenant or conflicting tenants.
var errImpersonation = errors.New("impersonation")

// identify returns the caller's tenant and the user for the delegate. A reviewed or impersonated
// user has only the groups that the client sent. identify therefore adds the group of the tenant,
// as authentication does. It does not add the group if the impersonator belongs to a tenant but
// is not in that group itself.
func (b *Boundary) identify(
	ctx context.Context, state *requestState, attrs *requestAttributes,
) (tenant.ID, user.Info, error) {
	u := attrs.user
	if state.isAuthenticatedUser(u) || attrs.isImpersonation() {
		id, err := b.options.Subjects.TenantOf(ctx, state.authenticatedOr(u))
		return id, b.withTenantGroup(u, id), err
	}
	impersonatorTenant, err := b.options.Subjects.TenantOf(ctx, state.authenticated)
	if err != nil {
		if errors.Is(err, ErrConflictingTenants) || errors.Is(err, tenant.ErrUnbound) { // an impersonator needs a tenant
			err = errImpersonation
		}
		return tenant.ID{}, u, err
	}
	id, err := b.options.Subjects.impersonatedTenant(ctx, impersonatorTenant, u)
	switch {
	case errors.Is(err, ErrConflictingTenants):
		return tenant.ID{}, u, errImpersonation
	case err != nil:
		return tenant.ID{}, u, err
	}
	if impersonatorTenant.IsSystem() ||
		isInTenantGroup(state.authenticated, id) { // an impersonator cannot add a group that it is not in
		u = b.withTenantGroup(u, id)
	}
	return id, bind(u, id), nil
}

// dependsOnCaches reports whether the permissions of a caller depend on the caches that
// [Options.Stale] describes. They do for a tenant's caller, and for a service account that belongs
// to the system tenant only by the label of its namespace.
func (b *Boundary) dependsOnCaches(c *caller) bool {
	if !c.tenant.IsSystem() {
		return !c.tenant.IsZero()
	}
	namespace, isAccount := tenant.ServiceAccountNamespace(c.user.GetName())
	return isAccount && !slices.Contains(b.options.Subjects.SystemNamespaces, namespace)
}

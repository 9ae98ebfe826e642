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

// caller is who asks, resolved once for a request: what is behind reads it and
// looks at the user no more.
type caller struct {
	// tenant is zero for nobody's.
	tenant tenant.ID
	// user is the one to go on with: an impersonated one is bound to its
	// tenant. Nil where it is denied.
	user user.Info
	// denied says why whoever it is may ask nothing; err, for the log, what went wrong.
	denied Reason
	err    error
}

// resolve returns who asks. Whether somebody may be impersonated is always asked by the real
// caller, of whom the attributes may hold a changed copy.
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
	case b.Revoked != nil && b.Revoked(id, u):
		return caller{tenant: id, denied: ReasonRevoked}
	case !id.IsSystem() && b.checkForm(u) != nil:
		return caller{tenant: id, denied: ReasonMalformed}
	case !id.IsSystem() && inForeignSystemGroup(u):
		return caller{tenant: id, denied: ReasonSystemGroup}
	}
	return caller{tenant: id, user: u}
}

// The most that servers add to an identity after its limits were checked. Servers add the groups of
// a tenant, of all authenticated users and of service accounts.
const (
	addedGroups = 8
	addedBytes  = 4 << 10
)

// checkForm returns an error if a server that trims names could take the caller of a tenant for
// another user, or if the identity is too large. A server that authenticates requests itself does
// not check that. Extras are not checked: no server decides by them.
func (b *Boundary) checkForm(u user.Info) error {
	limits, groups := b.Limits.OrDefault(), u.GetGroups()
	size := len(u.GetName()) + len(u.GetUID())
	well := tenant.IsWellFormed(u.GetName()) && tenant.IsWellFormed(u.GetUID())
	for _, group := range groups {
		size += len(group)
		well = well && size <= limits.Bytes+addedBytes && tenant.IsWellFormed(group)
	}
	switch {
	case size > limits.Bytes+addedBytes || len(groups) > limits.Groups+addedGroups:
		return tenant.ErrLarge
	case !well:
		return tenant.ErrForm
	}
	return nil
}

// errImpersonation says that an impersonated user would leave the tenant of who impersonates it.
var errImpersonation = errors.New("impersonation")

// identify returns the tenant of who asks, and the user to go on with: in the tenant's
// group, as whoever the server authenticates is. Who is reviewed or impersonated comes with
// the groups that were sent.
func (b *Boundary) identify(
	ctx context.Context, state *requestState, attrs *requestAttributes,
) (tenant.ID, user.Info, error) {
	u := attrs.user
	if state.isReal(u) || attrs.isImpersonation() {
		id, err := b.Subjects.Of(ctx, state.realOr(u))
		return id, b.inGroup(u, id), err
	}
	real, err := b.Subjects.Of(ctx, state.real)
	if err != nil {
		if errors.Is(err, ErrDisagree) || errors.Is(err, tenant.ErrUnbound) { // who has no tenant is nobody else either
			err = errImpersonation
		}
		return tenant.ID{}, u, err
	}
	id, err := b.Subjects.impersonated(ctx, real, u)
	switch {
	case errors.Is(err, ErrDisagree):
		return tenant.ID{}, u, errImpersonation
	case err != nil:
		return tenant.ID{}, u, err
	}
	if real.IsSystem() || isInGroup(state.real, id) { // nobody gives a group that he is not in
		u = b.inGroup(u, id)
	}
	return id, bind(u, id), nil
}

// hangsOnCaches reports whether what a caller may do hangs on them: a tenant's, and a service
// account that is the system tenant's because its namespace says so.
func (b *Boundary) hangsOnCaches(c *caller) bool {
	if !c.tenant.IsSystem() {
		return !c.tenant.IsZero()
	}
	namespace, isAccount := tenant.ServiceAccountNamespace(c.user.GetName())
	return isAccount && !slices.Contains(b.Subjects.SystemNamespaces, namespace)
}

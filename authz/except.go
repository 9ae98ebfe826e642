// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// Crossing is a request by a caller of one tenant for objects of another tenant. Its attributes are
// those of the request. If a user is impersonated, User is that user.
type Crossing struct {
	authorizer.Attributes
	Caller tenant.ID
	User   user.Info
	Space  Space
}

// GetUser returns the user that the boundary decides about.
func (c *Crossing) GetUser() user.Info { return c.User }

// Exception allows cross-tenant requests that an authorized user has permitted. Its reason is a
// constant. Exceptions are not evaluated for impersonation checks, for requests on a tenant path,
// or for callers of the system tenant, which are not limited. A read of a namespace by the server
// itself therefore never leads to another such read.
//
// An active request that an exception allowed ends with the exception. It ends at the time that
// Allows returns, where zero means no end, or when exceptions change ([Sessions.EndExcepted]).
type Exception struct {
	Reason Reason
	// Whole specifies that lists over all namespaces have one page, like lists that are limited to a
	// tenant. A continue token would depend on objects that the list does not contain.
	Whole  bool
	Allows func(context.Context, *Crossing) (allowed bool, until time.Time)
}

// except returns the verdict of the exception that allows attrs. It returns the zero verdict if no
// exception does, if a lookup fails, or if no tenant may make such a request.
func (b *Boundary) except(ctx context.Context, state *requestState, c *caller, attrs *requestAttributes) verdict {
	id := c.tenant
	if len(b.Exceptions) == 0 || id.IsZero() || id.IsSystem() || attrs.isImpersonation() ||
		state != nil && state.path != (tenantPath{}) || b.unfit(attrs.verb, attrs) != ReasonNone {
		return verdict{}
	}
	space, err := b.spaceOf(ctx, id, attrs)
	if err != nil || space == (Space{ID: id}) || state != nil && !space.All && !b.keepsTo(state, space.ID, attrs) {
		return verdict{}
	}
	var selector labels.Requirements
	if state != nil && !space.All && b.isAcross(attrs) {
		if selector, err = soleSelector(state.query); err != nil {
			return verdict{}
		}
	}
	crossing := &Crossing{
		Attributes: attrs.Attributes,
		Caller:     id,
		User:       c.user,
		Space:      space,
	}
	for _, e := range b.Exceptions {
		if allowed, until := e.Allows(ctx, crossing); allowed {
			if e.Whole && state != nil && space.All {
				given, err := soleSelector(state.query)
				if err != nil {
					continue
				}
				selector = append(labels.Requirements{}, given...) // not nil, even without a requirement
			}
			return verdict{
				excepted: true,
				reason:   e.Reason,
				owner:    space.ID,
				limits:   &limits{selector: selector, until: until},
			}
		}
	}
	return verdict{}
}

// isAcross reports whether attrs is a request over all namespaces.
func (b *Boundary) isAcross(attrs *requestAttributes) bool {
	return isCollection(attrs.verb) && attrs.namespace == "" &&
		(b.scopeOf(attrs) != ScopeCluster || attrs.resource == namespaces && attrs.name == "")
}

// keepsTo reports whether the query of a list over all namespaces limits it to id. It also reports
// true for other requests. RequestInfo contains only the first of several selectors.
func (b *Boundary) keepsTo(state *requestState, id tenant.ID, attrs *requestAttributes) bool {
	if !b.isAcross(attrs) {
		return true
	}
	selector, err := soleSelector(state.query)
	selected, ok := selectedTenant(selector)
	return err == nil && ok && selected == id
}

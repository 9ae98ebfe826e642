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

// Crossing is a request by a caller of one tenant in the space of another. Its attributes are the
// request's own, with an impersonated user in the user's place.
type Crossing struct {
	authorizer.Attributes
	Caller tenant.ID
	User   user.Info
	Space  Space
}

// GetUser returns the user that the boundary decides about.
func (c *Crossing) GetUser() user.Info { return c.User }

// Exception allows a crossing that somebody who may do so has opened. Its reason is a constant. It
// is never asked about impersonation, nor for a request on a tenant's path, nor for callers of the
// system tenant, whom nothing keeps in: so the server's own look at a namespace asks for no other.
//
// What stays open ends when the exception does: at the time that Allows returns, zero for none, and
// whenever somebody says that exceptions have changed ([Sessions.EndExcepted]).
type Exception struct {
	Reason Reason
	// Whole says that lists over all namespaces are answered whole, as those that are limited to a
	// tenant: what a continue token says depends on objects that the list does not hold.
	Whole  bool
	Allows func(context.Context, *Crossing) (allowed bool, until time.Time)
}

// except returns the verdict of the exception that allows attrs, or one that is not excepted. A
// lookup that fails opens nothing, nor does a question that no tenant may have answered.
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
				selector = append(labels.Requirements{}, given...) // no requirement, too
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

// isAcross reports whether attrs goes over all namespaces.
func (b *Boundary) isAcross(attrs *requestAttributes) bool {
	return isCollection(attrs.verb) && attrs.namespace == "" &&
		(b.scopeOf(attrs) != ScopeCluster || attrs.resource == namespaces && attrs.name == "")
}

// keepsTo reports whether a list over all namespaces, if attrs is one, is limited to id by the
// request itself too: RequestInfo looks only at the first of several selectors.
func (b *Boundary) keepsTo(state *requestState, id tenant.ID, attrs *requestAttributes) bool {
	if !b.isAcross(attrs) {
		return true
	}
	selector, err := soleSelector(state.query)
	selected, ok := selectedTenant(selector)
	return err == nil && ok && selected == id
}

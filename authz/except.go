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

// CrossTenantRequest is a request by a caller of one tenant for objects of another tenant. Its attributes are
// those of the request. If a user is impersonated, User is that user.
type CrossTenantRequest struct {
	authorizer.Attributes
	Caller tenant.ID
	User   user.Info
	Owner  ObjectOwner
}

// GetUser returns the user that the boundary decides about.
func (c *CrossTenantRequest) GetUser() user.Info { return c.User }

// Exception allows cross-tenant requests that an authorized user has permitted. Its reason is a
// constant. Exceptions are not evaluated for impersonation checks, for requests on a tenant path,
// or for callers of the system tenant, which are not limited. A read of a namespace by the server
// itself therefore never leads to another such read.
//
// An active request that an exception allowed ends with the exception. It ends at the time that
// Allows returns, where zero means no end, or when exceptions change ([Sessions.EndExcepted]).
type Exception struct {
	Reason Reason
	// Unpaged specifies that lists over all namespaces have one page, like lists that are limited to a
	// tenant. A continue token would depend on objects that the list does not contain.
	Unpaged bool
	Allows  func(context.Context, *CrossTenantRequest) (allowed bool, until time.Time)
}

// except returns the verdict of the exception that allows attrs. It returns the zero verdict if no
// exception does, if a lookup fails, or if no tenant may make such a request.
func (b *Boundary) except(ctx context.Context, state *requestState, c *caller, attrs *requestAttributes) verdict {
	id := c.tenant
	if len(b.Exceptions) == 0 || id.IsZero() || id.IsSystem() || attrs.isImpersonation() ||
		state != nil && state.path != (tenantPath{}) || b.invalidReason(attrs.verb, attrs) != ReasonNone {
		return verdict{}
	}
	owner, err := b.objectOwnerOf(ctx, id, attrs)
	if err != nil || owner == (ObjectOwner{ID: id}) ||
		state != nil && !owner.All && !b.isLimitedTo(state, owner.ID, attrs) {
		return verdict{}
	}
	var selector labels.Requirements
	if state != nil && !owner.All && b.isAllNamespaces(attrs) {
		if selector, err = onlyLabelSelector(state.query); err != nil {
			return verdict{}
		}
	}
	req := &CrossTenantRequest{
		Attributes: attrs.Attributes,
		Caller:     id,
		User:       c.user,
		Owner:      owner,
	}
	for _, e := range b.Exceptions {
		if allowed, until := e.Allows(ctx, req); allowed {
			if e.Unpaged && state != nil && owner.All {
				requirements, err := onlyLabelSelector(state.query)
				if err != nil {
					continue
				}
				selector = append(labels.Requirements{}, requirements...) // not nil, even without a requirement
			}
			return verdict{
				excepted: true,
				reason:   e.Reason,
				owner:    owner.ID,
				limits:   &limits{selector: selector, until: until},
			}
		}
	}
	return verdict{}
}

// isAllNamespaces reports whether attrs is a request over all namespaces.
func (b *Boundary) isAllNamespaces(attrs *requestAttributes) bool {
	return isCollection(attrs.verb) && attrs.namespace == "" &&
		(b.scopeOf(attrs) != ScopeCluster || attrs.resource == namespaces && attrs.name == "")
}

// isLimitedTo reports whether the query of a list over all namespaces limits it to id. It also reports
// true for other requests. RequestInfo contains only the first of several selectors.
func (b *Boundary) isLimitedTo(state *requestState, id tenant.ID, attrs *requestAttributes) bool {
	if !b.isAllNamespaces(attrs) {
		return true
	}
	selector, err := onlyLabelSelector(state.query)
	selected, ok := selectedTenant(selector)
	return err == nil && ok && selected == id
}

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

// CrossTenantRequest is a request by a tenant's caller for objects that do not all belong to that
// tenant. User is the user that the boundary decides about, such as an impersonated user.
type CrossTenantRequest struct {
	authorizer.Attributes
	Caller tenant.ID
	User   user.Info
	Owner  ObjectOwner
}

// GetUser returns User instead of the user in the attributes.
func (c *CrossTenantRequest) GetUser() user.Info { return c.User }

// Exception allows cross-tenant requests that an authorized user has permitted. The boundary does
// not evaluate exceptions for impersonation checks, for requests on a tenant path, or for callers
// of the system tenant, which are not limited. The server itself reads namespaces as a caller of
// the system tenant, so evaluating an exception never causes another evaluation.
//
// An active request that an exception allowed ends with the exception. It ends at the time that
// Allows returns, unless that time is zero. It also ends when [Sessions.EndExcepted] is called
// because the exceptions have changed.
type Exception struct {
	Reason Reason
	// Unpaged specifies that lists over all namespaces have one page, like lists that are limited
	// to a tenant. A continue token would depend on objects that the list does not contain.
	Unpaged bool
	Allows  func(context.Context, *CrossTenantRequest) (allowed bool, until time.Time)
}

// except returns the verdict of the exception that allows attrs. It returns the zero verdict if
// no exception allows attrs, if a lookup fails, or if no tenant may make this request.
func (b *Boundary) except(ctx context.Context, state *requestState, c *caller, attrs *requestAttributes) verdict {
	id := c.tenant
	if len(b.options.Exceptions) == 0 || id.IsZero() || id.IsSystem() || attrs.isImpersonation() ||
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
	for _, e := range b.options.Exceptions {
		if allowed, until := e.Allows(ctx, req); allowed {
			if e.Unpaged && state != nil && owner.All {
				requirements, err := onlyLabelSelector(state.query)
				if err != nil {
					continue
				}
				selector = append(labels.Requirements{}, requirements...) // not nil, so that [WithTenant] removes paging
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

// isAllNamespaces reports whether attrs is a request over all namespaces, or for all Namespace
// objects.
func (b *Boundary) isAllNamespaces(attrs *requestAttributes) bool {
	return isCollection(attrs.verb) && attrs.namespace == "" &&
		(b.scopeOf(attrs) != ScopeCluster || attrs.resource == namespaces && attrs.name == "")
}

// isLimitedTo reports whether the label selector in the query limits a request over all
// namespaces to tenant id. For any other request, it returns true. It parses the query itself,
// because RequestInfo contains only the first of several selectors.
func (b *Boundary) isLimitedTo(state *requestState, id tenant.ID, attrs *requestAttributes) bool {
	if !b.isAllNamespaces(attrs) {
		return true
	}
	selector, err := onlyLabelSelector(state.query)
	selected, ok := selectedTenant(selector)
	return err == nil && ok && selected == id
}

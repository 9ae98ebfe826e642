// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// Space specifies the owner of the objects of a request. The zero value means that they are
// unowned.
type Space struct {
	// ID is the only tenant whose objects the request reaches. The system tenant owns everything that
	// no tenant owns.
	ID tenant.ID
	// All specifies that the request reaches objects of several tenants.
	All bool
}

// SpaceOf returns the owner of the objects of a request. For a request in a namespace, it is the
// owner of the namespace. For a list over all namespaces, it is the tenant of the label selector,
// or All. For paths and cluster-scoped resources, it is the system tenant. The error reports that
// the lookup of the owner failed.
func (b *Boundary) SpaceOf(ctx context.Context, a authorizer.Attributes) (Space, error) {
	attrs := readAttributes(a)
	return b.spaceOf(ctx, tenant.ID{}, &attrs)
}

// spaceOf is [Boundary.SpaceOf] for a request of tenant id.
func (b *Boundary) spaceOf(ctx context.Context, id tenant.ID, attrs *requestAttributes) (Space, error) {
	switch {
	case !attrs.isResource:
		return Space{ID: tenant.System()}, nil
	case attrs.resource == namespaces && attrs.name != "" && (attrs.namespace == "" || attrs.namespace == attrs.name):
		return b.ownersSpace(ctx, id, attrs, attrs.name)
	case attrs.resource == namespaces && attrs.verb == "create":
		return Space{ID: tenant.System()}, nil
	case attrs.namespace != "":
		return b.ownersSpace(ctx, id, attrs, attrs.namespace)
	case attrs.resource != namespaces && b.scopeOf(attrs) == ScopeCluster:
		return Space{ID: tenant.System()}, nil
	}
	selector, err := attrs.GetLabelSelector()
	selectedID, selected := selectedTenant(selector)
	if err == nil && selected && isCollection(attrs.verb) && attrs.subresource == "" &&
		b.isSelectable(attrs.resource, selectedID) {
		return Space{ID: selectedID}, nil
	}
	return Space{All: true}, nil
}

// isSelectable reports whether a list that is limited to the tenant's label contains only objects
// of that tenant.
func (b *Boundary) isSelectable(resource schema.GroupResource, id tenant.ID) bool {
	switch b.Scopes.Of(resource) {
	case ScopeNamespaced:
		return b.Labelled != nil && b.Labelled(resource, id)
	case ScopeUnknown:
		return slices.Contains(b.Selectable, resource)
	}
	return resource == namespaces
}

func (b *Boundary) ownersSpace(
	ctx context.Context, id tenant.ID, attrs *requestAttributes, namespace string,
) (Space, error) {
	owner, err := b.find(ctx, id, attrs, namespace).owner()
	return Space{ID: owner}, err
}

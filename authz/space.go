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

// Space is whose objects a request is about. The zero value is nobody's.
type Space struct {
	// ID is the one tenant that the request stays with; the system tenant for all that no tenant owns.
	ID tenant.ID
	// All: the request goes over the objects of several tenants.
	All bool
}

// SpaceOf returns whose objects a request is about: the owner of its namespace; of a list over all
// namespaces the tenant that its label selector is limited to, else all; the system tenant for
// paths and cluster-scoped resources. The error says that the owner could not be looked up.
func (b *Boundary) SpaceOf(ctx context.Context, a authorizer.Attributes) (Space, error) {
	attrs := readAttributes(a)
	return b.spaceOf(ctx, tenant.ID{}, &attrs)
}

// spaceOf is SpaceOf for a tenant that asks.
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

// isSelectable reports whether a list that is limited to the label holds
// objects of that tenant only.
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

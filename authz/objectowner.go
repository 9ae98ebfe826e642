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

// ObjectOwner specifies the owner of the requested objects. The zero value means that the objects
// are unowned.
type ObjectOwner struct {
	// ID is the only tenant whose objects the request reaches. The system tenant owns everything
	// outside the tenants' namespaces.
	ID tenant.ID
	// All specifies that the request reaches objects of several tenants.
	All bool
}

// ObjectOwnerOf returns the owner of the requested objects. For a request in a namespace, it is
// the owner of the namespace. For a request over all namespaces, it is the tenant to which the
// label selector limits the objects, otherwise All. For paths, cluster-scoped resources and new
// namespaces, it is the system tenant. The error reports that the lookup of the owner failed.
func (b *Boundary) ObjectOwnerOf(ctx context.Context, a authorizer.Attributes) (ObjectOwner, error) {
	attrs := readAttributes(a)
	return b.objectOwnerOf(ctx, tenant.ID{}, &attrs)
}

// objectOwnerOf is [Boundary.ObjectOwnerOf] with the lookup budget of tenant id.
func (b *Boundary) objectOwnerOf(ctx context.Context, id tenant.ID, attrs *requestAttributes) (ObjectOwner, error) {
	switch {
	case !attrs.isResource:
		return ObjectOwner{ID: tenant.System()}, nil
	case attrs.resource == namespaces && attrs.name != "" && (attrs.namespace == "" || attrs.namespace == attrs.name):
		return b.namespaceObjectOwner(ctx, id, attrs, attrs.name)
	case attrs.resource == namespaces && attrs.verb == "create":
		return ObjectOwner{ID: tenant.System()}, nil
	case attrs.namespace != "":
		return b.namespaceObjectOwner(ctx, id, attrs, attrs.namespace)
	case attrs.resource != namespaces && b.scopeOf(attrs) == ScopeCluster:
		return ObjectOwner{ID: tenant.System()}, nil
	}
	selector, err := attrs.GetLabelSelector()
	selectedID, selected := selectedTenant(selector)
	if err == nil && selected && isCollection(attrs.verb) && attrs.subresource == "" &&
		b.isSelectable(attrs.resource, selectedID) {
		return ObjectOwner{ID: selectedID}, nil
	}
	return ObjectOwner{All: true}, nil
}

// isSelectable reports whether a list of the resource that is limited by the label of tenant id
// contains only objects of that tenant.
func (b *Boundary) isSelectable(resource schema.GroupResource, id tenant.ID) bool {
	switch b.options.Scopes.Of(resource) {
	case ScopeNamespaced:
		return b.options.Labeled != nil && b.options.Labeled(resource, id)
	case ScopeUnknown:
		return slices.Contains(b.options.Selectable, resource)
	}
	return resource == namespaces
}

func (b *Boundary) namespaceObjectOwner(
	ctx context.Context, id tenant.ID, attrs *requestAttributes, namespace string,
) (ObjectOwner, error) {
	owner, err := b.find(ctx, id, attrs, namespace).owner()
	return ObjectOwner{ID: owner}, err
}

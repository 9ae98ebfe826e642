// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import "k8s.io/apimachinery/pkg/runtime/schema"

// Scope specifies whether the objects of a resource are in namespaces.
type Scope int

// The scopes. The zero value is [ScopeUnknown].
const (
	ScopeUnknown Scope = iota
	ScopeNamespaced
	ScopeCluster
)

// Scopes determines the scope of a resource. Built-in resources are in a table. The scope of a
// custom resource is in its CustomResourceDefinition. Resources of aggregated servers have an
// unknown scope.
type Scopes struct {
	// Custom returns the scope of a resource that is not built in. If nil, there are no custom
	// resources.
	Custom func(schema.GroupResource) Scope
}

// Of returns the scope of a resource.
func (s Scopes) Of(resource schema.GroupResource) Scope {
	if scope := builtInScope(resource); scope != ScopeUnknown || s.Custom == nil {
		return scope
	}
	return s.Custom(resource)
}

// scopeOf returns the scope of the resource of attrs. It looks up the scope only once for each
// request.
func (b *Boundary) scopeOf(attrs *requestAttributes) Scope {
	if !attrs.scopeKnown {
		attrs.scope = b.options.Scopes.Of(attrs.resource)
		attrs.scopeKnown = true
	}
	return attrs.scope
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import "k8s.io/apimachinery/pkg/runtime/schema"

// Scope says whether the objects of a resource live in namespaces.
type Scope int

// The scopes. The zero value is what is not known.
const (
	ScopeUnknown Scope = iota
	ScopeNamespaced
	ScopeCluster
)

// Scopes tells the scope of a resource: the built-in ones from a table, custom ones from what the
// server's CustomResourceDefinitions say. Resources of aggregated servers are unknown.
type Scopes struct {
	// Custom answers for resources that are not built in. Nil means that there are none.
	Custom func(schema.GroupResource) Scope
}

// Of returns the scope of a resource.
func (s Scopes) Of(resource schema.GroupResource) Scope {
	if scope := builtInScope(resource); scope != ScopeUnknown || s.Custom == nil {
		return scope
	}
	return s.Custom(resource)
}

// scopeOf returns the scope of what attrs is about, the same for all who ask about one request.
func (b *Boundary) scopeOf(attrs *requestAttributes) Scope {
	if !attrs.scoped {
		attrs.scope, attrs.scoped = b.Scopes.Of(attrs.resource), true
	}
	return attrs.scope
}

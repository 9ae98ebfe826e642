// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package lookuptest provides fakes of the interfaces in package lookup.
package lookuptest

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/tenant"
)

// OwnedBy returns a cluster that has the given owners of namespaces, and no other state.
func OwnedBy(owners *authz.Owners) lookup.Cluster { return (&lookup.Parts{Owners: owners}).Cluster() }

// Namespaces implements [lookup.Namespaces] with functions. If a function is nil, the method that
// would call it reports that its result is unknown.
type Namespaces struct {
	Owned func(tenant.ID) ([]string, error)
	IDs   func() (ids []string, known bool)
}

var errUnknown = errors.New("the namespaces are not known")

// OwnedNamespaces implements [lookup.Namespaces].
func (n *Namespaces) OwnedNamespaces(id tenant.ID) ([]string, error) {
	if n.Owned == nil {
		return nil, errUnknown
	}
	return n.Owned(id)
}

// IDsWithoutTenant implements [lookup.Namespaces].
func (n *Namespaces) IDsWithoutTenant() (ids []string, known bool) {
	if n.IDs == nil {
		return nil, false
	}
	return n.IDs()
}

// References implements [lookup.Namespaces]. It returns no objects.
func (*Namespaces) References(context.Context, tenant.ID, []string) ([]string, error) {
	return nil, nil
}

// AllLabeled implements [lookup.Resources]. It has no custom resources, and reports that the
// objects of all resources are labeled.
type AllLabeled struct{}

// Scope implements [lookup.Resources].
func (AllLabeled) Scope(schema.GroupResource) authz.Scope { return authz.ScopeUnknown }

// KindScope implements [lookup.Resources].
func (AllLabeled) KindScope(schema.GroupKind) authz.Scope { return authz.ScopeUnknown }

// Kind implements [lookup.Resources].
func (AllLabeled) Kind(schema.GroupResource) string { return "" }

// Labeled implements [lookup.Resources].
func (AllLabeled) Labeled(schema.GroupResource, tenant.ID) bool { return true }

// Controller implements [lookup.Controllers]. It returns Owner for every object.
type Controller struct{ Owner runtime.Object }

// Metadata implements [lookup.Controllers].
func (c Controller) Metadata(context.Context, schema.GroupVersionKind, string, string) (runtime.Object, error) {
	return c.Owner, nil
}

// Object implements [lookup.Controllers].
func (c Controller) Object(context.Context, schema.GroupVersionKind, string, string) (runtime.Object, error) {
	return c.Owner, nil
}

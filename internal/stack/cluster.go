// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// clusterParts contains the parts of a [lookup.Cluster] and [Server.Stale]. A part is nil if the
// cluster does not have it, except owners and resources.
type clusterParts struct {
	owners      *authz.Owners
	namespaces  lookup.Namespaces
	resources   lookup.Resources
	tenants     lookup.Tenants
	grants      *accessgrant.Grants
	quotas      lookup.Quotas
	controllers lookup.Controllers
	objects     lookup.Objects
	stale       func() bool
}

func partsOf(c lookup.Cluster, stale func() bool) *clusterParts {
	parts := &clusterParts{
		owners:      c.Owners(),
		namespaces:  c.Namespaces(),
		resources:   c.Resources(),
		tenants:     c.Tenants(),
		grants:      c.Grants(),
		quotas:      c.Quotas(),
		controllers: c.Controllers(),
		objects:     c.Objects(),
		stale:       stale,
	}
	if parts.resources == nil {
		parts.resources = noResources{}
	}
	return parts
}

// noResources is for a cluster without [lookup.Resources]. The scope of every custom resource is
// unknown.
type noResources struct{}

// Scope implements [lookup.Resources].
func (noResources) Scope(schema.GroupResource) authz.Scope { return authz.ScopeUnknown }

// KindScope implements [lookup.Resources].
func (noResources) KindScope(schema.GroupKind) authz.Scope { return authz.ScopeUnknown }

// Kind implements [lookup.Resources].
func (noResources) Kind(schema.GroupResource) string { return "" }

// Labeled implements [lookup.Resources].
func (noResources) Labeled(schema.GroupResource, tenant.ID) bool { return false }

// selectedLabel calls [lookup.Objects.SelectedLabel]. It returns "" if the cluster has no
// [lookup.Objects].
func (c *clusterParts) selectedLabel(key string) string {
	if c.objects == nil {
		return ""
	}
	return c.objects.SelectedLabel(key)
}

// defaultPriority calls [lookup.Objects.DefaultPriority]. It returns false if the cluster has no
// [lookup.Objects].
func (c *clusterParts) defaultPriority(name string) bool {
	return c.objects != nil && c.objects.DefaultPriority(name)
}

// controllerObject returns the method [lookup.Controllers.Object], or nil if the cluster has no
// [lookup.Controllers].
func (c *clusterParts) controllerObject() plugins.ObjectFunc {
	if c.controllers == nil {
		return nil
	}
	return c.controllers.Object
}

// ownedNamespaces returns the method [lookup.Namespaces.OwnedNamespaces], or nil if the cluster
// has no [lookup.Namespaces].
func (c *clusterParts) ownedNamespaces() func(tenant.ID) ([]string, error) {
	if c.namespaces == nil {
		return nil
	}
	return c.namespaces.OwnedNamespaces
}

// references returns the method [lookup.Namespaces.References], or nil if the cluster has no
// [lookup.Namespaces].
func (c *clusterParts) references() func(context.Context, tenant.ID, []string) ([]string, error) {
	if c.namespaces == nil {
		return nil
	}
	return c.namespaces.References
}

// NoCluster returns a cluster without namespaces.
func NoCluster() lookup.Cluster {
	return (&lookup.Parts{Owners: authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}, nil)}).Cluster()
}

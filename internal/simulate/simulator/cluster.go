// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	authzgrant "github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/tenant"
)

// Cluster is the cluster of a snapshot. It assumes that every object has the label of its tenant.
type Cluster struct {
	snapshot *Snapshot
	owners   *authz.Owners
	grants   *authzgrant.Grants
}

// NewCluster returns the cluster of a snapshot. If now is nil, [time.Now] is used.
func NewCluster(ctx context.Context, s *Snapshot, now func() time.Time) (*Cluster, error) {
	namespaces, err := s.NamespaceLister()
	if err != nil {
		return nil, err
	}
	grants, err := accessgrant.New(s.AccessGrants(), s.TenantObjects().Lineage, now)
	if err != nil {
		return nil, err
	}
	if err := grants.Sync(ctx); err != nil {
		return nil, err
	}
	return &Cluster{s, authz.NewOwners(namespaces.Get, nil), grants.Grants()}, nil
}

// Owners implements [lookup.Cluster].
func (c *Cluster) Owners() *authz.Owners { return c.owners }

// Namespaces implements [lookup.Cluster].
func (c *Cluster) Namespaces() lookup.Namespaces { return c.snapshot }

// Resources implements [lookup.Cluster].
func (c *Cluster) Resources() lookup.Resources { return resources{c.snapshot} }

// Tenants implements [lookup.Cluster].
func (c *Cluster) Tenants() lookup.Tenants { return c.snapshot.TenantObjects() }

// Grants implements [lookup.Cluster].
func (c *Cluster) Grants() *authzgrant.Grants { return c.grants }

// Quotas implements [lookup.Cluster].
func (c *Cluster) Quotas() lookup.Quotas { return quotaTenants(c.snapshot.Quotas) }

// Controllers implements [lookup.Cluster].
func (c *Cluster) Controllers() lookup.Controllers { return nil }

// Objects implements [lookup.Cluster].
func (c *Cluster) Objects() lookup.Objects { return c.snapshot }

// IDsWithoutTenant implements [lookup.Namespaces]. The result is unknown, because a snapshot may
// not contain all Tenants of the cluster.
func (s *Snapshot) IDsWithoutTenant() (ids []string, known bool) { return nil, false }

// DefaultPriority implements [lookup.Objects].
func (s *Snapshot) DefaultPriority(string) bool { return false }

// SelectedLabel implements [lookup.Objects].
func (s *Snapshot) SelectedLabel(key string) string { return s.selected[key] }

// resources contains the custom resources of a snapshot.
type resources struct{ snapshot *Snapshot }

// Scope implements [lookup.Resources].
func (r resources) Scope(resource schema.GroupResource) authz.Scope {
	return r.snapshot.CustomScope(resource)
}

// KindScope implements [lookup.Resources].
func (resources) KindScope(schema.GroupKind) authz.Scope { return authz.ScopeUnknown }

// Kind implements [lookup.Resources].
func (resources) Kind(schema.GroupResource) string { return "" }

// Labeled implements [lookup.Resources].
func (resources) Labeled(schema.GroupResource, tenant.ID) bool { return true }

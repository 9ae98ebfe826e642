// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/tenant"
)

var _ lookup.Cluster = &Cluster{}

// Owners implements [lookup.Cluster].
func (c *Cluster) Owners() *authz.Owners { return c.owners }

// Namespaces implements [lookup.Cluster].
func (c *Cluster) Namespaces() lookup.Namespaces { return c }

// Resources implements [lookup.Cluster]. The method Labeled of the result returns false until
// [Cluster.RunBackfill] has labeled the objects of the resource.
func (c *Cluster) Resources() lookup.Resources { return &resources{c.CRDs, c.Backfill.Done} }

// Tenants implements [lookup.Cluster].
func (c *Cluster) Tenants() lookup.Tenants { return c.TenantStore }

// Grants implements [lookup.Cluster].
func (c *Cluster) Grants() *accessgrant.Grants { return c.GrantController.Grants() }

// Quotas implements [lookup.Cluster].
func (c *Cluster) Quotas() lookup.Quotas { return c.QuotaStore }

// Controllers implements [lookup.Cluster].
func (c *Cluster) Controllers() lookup.Controllers { return c.ControllerLookup }

// Objects implements [lookup.Cluster]. It returns nil until [Cluster.FollowAdmission] is called.
func (c *Cluster) Objects() lookup.Objects {
	if c.admission == nil {
		return nil
	}
	return c.admission
}

// FollowAdmission makes PriorityClasses and the namespace selectors of webhooks and policies
// available to admission plugins. selecting has the informers of webhooks and policies. It MUST be
// called before the informers start. synced reports whether all of these objects have been read.
func (c *Cluster) FollowAdmission(
	classes schedulinginformers.PriorityClassInformer, selecting ...cache.SharedIndexInformer,
) (synced func() bool, err error) {
	selectors, err := NewNamespaceSelectors(selecting...)
	if err != nil {
		return nil, err
	}
	informer := classes.Informer()
	c.admission = &admissionObjects{c, selectors, DefaultPriority(classes.Lister())}
	return func() bool { return selectors.HasSynced() && informer.HasSynced() }, nil
}

// resources implements [lookup.Resources].
type resources struct {
	*CRDScopes

	labeled func(schema.GroupResource, tenant.ID) bool
}

// Scope implements [lookup.Resources].
func (r *resources) Scope(resource schema.GroupResource) authz.Scope {
	return r.ResourceScope(resource)
}

// KindScope implements [lookup.Resources].
func (r *resources) KindScope(kind schema.GroupKind) authz.Scope { return r.ScopeOfKind(kind) }

// Kind implements [lookup.Resources].
func (r *resources) Kind(resource schema.GroupResource) string { return r.KindOf(resource) }

// Labeled implements [lookup.Resources].
func (r *resources) Labeled(resource schema.GroupResource, id tenant.ID) bool {
	return r.labeled(resource, id)
}

// admissionObjects implements [lookup.Objects].
type admissionObjects struct {
	cluster         *Cluster
	selectors       *NamespaceSelectors
	defaultPriority func(name string) bool
}

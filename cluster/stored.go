// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/stored"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
)

// errSync reports that the caches did not sync before the context ended.
var errSync = errors.New("the caches of namespaces, definitions and Tenants did not sync")

// MeasureStored runs the measurer of package stored until ctx ends. Only one process at a time may
// run it. c.TenantStore, c.QuotaStore and c.CRDs must be running.
func (c *Cluster) MeasureStored(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.NamespacesSynced, c.CRDs.HasSynced, c.TenantStore.HasSynced) {
		return errSync
	}
	return stored.New(stored.Options{
		List:       stored.ListsOf(c.Typed.Discovery().RESTClient()),
		Client:     c.Dynamic,
		Resources:  LabeledResources(c.Typed.Discovery(), c.CRDs.ResourceScope),
		Namespaces: c.ownersByNamespace,
		Tenants:    c.tenantUIDs,
		Classes:    c.QuotaStore.Classes,
		ManagerOf:  usage.FieldManager,
		Metrics:    c.Stored,
	}).Run(ctx)
}

// ownersByNamespace returns the owner of each namespace, keyed by namespace name.
func (c *Cluster) ownersByNamespace() (map[string]tenant.ID, error) {
	all, err := c.NamespaceLister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	owners := make(map[string]tenant.ID, len(all))
	for _, ns := range all {
		owners[ns.Name] = c.owners.OwnerOf(ns)
	}
	return owners, nil
}

// tenantUIDs returns the UIDs of all Tenants, keyed by tenant ID. It returns false if the Tenants
// have not been read.
func (c *Cluster) tenantUIDs() (map[tenant.ID]string, bool) {
	if !c.TenantStore.HasSynced() {
		return nil, false
	}
	uids := map[tenant.ID]string{}
	for _, id := range c.TenantStore.IDs() {
		uids[id] = c.TenantStore.Lineage(id).UID
	}
	return uids, true
}

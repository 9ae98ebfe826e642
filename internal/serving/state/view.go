// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

// view is the [lookup.Cluster] of a State. A field is nil if the process does not use that part of
// the cluster.
type view struct {
	*cluster.Cluster

	grants      *accessgrant.Grants
	quotas      lookup.Quotas
	controllers lookup.Controllers
	// labeled reports whether the controller has labeled all objects of a resource and a tenant.
	labeled func(schema.GroupResource, tenant.ID) bool
}

// Resources implements [lookup.Cluster].
func (v *view) Resources() lookup.Resources {
	return &labeledResources{v.Cluster.Resources(), v.labeled}
}

// Grants implements [lookup.Cluster].
func (v *view) Grants() *accessgrant.Grants { return v.grants }

// Quotas implements [lookup.Cluster].
func (v *view) Quotas() lookup.Quotas { return v.quotas }

// Controllers implements [lookup.Cluster].
func (v *view) Controllers() lookup.Controllers { return v.controllers }

// labeledResources is the [lookup.Resources] of a cluster in which another process labels objects.
type labeledResources struct {
	lookup.Resources

	labeled func(schema.GroupResource, tenant.ID) bool
}

// Labeled implements [lookup.Resources].
func (r *labeledResources) Labeled(resource schema.GroupResource, id tenant.ID) bool {
	return r.labeled(resource, id)
}

// readOnlyQuotas checks quotas without charging requests to them.
type readOnlyQuotas struct{ lookup.Quotas }

// Charge implements [quota.Store].
func (readOnlyQuotas) Charge(context.Context, *quota.State, *quota.State) error { return nil }

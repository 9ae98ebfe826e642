// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// driftPage is the maximum number of objects that one list request of the drift checks returns.
const driftPage = 500

// checkDrift queues the namespaces and the tenants whose managed objects have changed or are
// missing. It checks RoleBindings, Roles and TenantQuotas, and reads all of them page by page. It
// deletes managed RoleBindings and Roles in namespaces without a tenant.
func (e *Engine) checkDrift(ctx context.Context) {
	desired := map[tenant.ID]*desiredState{}
	desiredFor := func(id tenant.ID) *desiredState {
		if _, known := desired[id]; !known {
			desired[id], _ = e.desiredFor(ctx, id) // nil if not known yet, a later pass checks it
		}
		return desired[id]
	}
	for _, id := range e.Tenants.IDs() {
		desiredFor(id)
	}
	e.checkBindings(ctx, desiredFor)
	e.checkRoles(ctx, desiredFor)
	e.checkQuotas(ctx, desiredFor, desired)
}

func (e *Engine) checkBindings(ctx context.Context, ofTenant func(tenant.ID) *desiredState) {
	correct := map[string]int{} // the number of correct bindings, keyed by namespace
	var drifted []string
	next := metav1.ListOptions{LabelSelector: tenantSelector, Limit: driftPage}
	for {
		if err := e.pages.Wait(ctx); err != nil {
			return
		}
		list, err := e.Client.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, next)
		if err != nil {
			e.logDriftError(ctx, err)
			return
		}
		for i := range list.Items {
			stored := &list.Items[i]
			switch g := e.desiredIn(stored.Namespace, ofTenant); {
			case g != nil && e.isDesired(g, stored):
				correct[stored.Namespace]++
			case g != nil:
				drifted = append(drifted, stored.Namespace)
			case e.hasNoTenant(stored.Namespace):
				if err := e.removeBinding(ctx, stored); err != nil {
					e.logDriftError(ctx, err)
				}
			}
		}
		if next.Continue = list.Continue; next.Continue == "" {
			break
		}
	}
	all, err := e.lister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, ns := range all {
		if g := e.desiredIn(ns.Name, ofTenant); g != nil && correct[ns.Name] != len(g.bindingsIn(ns)) {
			drifted = append(drifted, ns.Name)
		}
	}
	for _, name := range drifted {
		e.markDrifted(name)
		e.updates.Add(name)
	}
}

// hasNoTenant reports whether a namespace exists, is not being deleted, and is unowned or belongs
// to the system tenant. A managed object in such a namespace remains from a former tenant. For
// example, a leader that had not observed the change of the owner may have created the object.
func (e *Engine) hasNoTenant(namespace string) bool {
	ns, err := e.lister.Get(namespace)
	if err != nil || ns.DeletionTimestamp != nil {
		return false
	}
	id := e.OwnerOf(ns)
	return id.IsZero() || id.IsSystem()
}

func (e *Engine) logDriftError(ctx context.Context, err error) {
	if ctx.Err() == nil && !apierrors.IsNotFound(err) { // if the kind is not defined, no objects exist
		klog.FromContext(ctx).Info("Failed to check whether the objects of Tenants are in place", "err", err)
	}
}

// checkQuotas queues the tenants whose managed TenantQuota is missing or has other limits than
// the Tenant specifies.
func (e *Engine) checkQuotas(
	ctx context.Context,
	desiredFor func(tenant.ID) *desiredState,
	desired map[tenant.ID]*desiredState,
) {
	stored := map[string]corev1.ResourceList{} // keyed by tenant ID
	err := e.quotas.ForEach(ctx, metav1.ListOptions{LabelSelector: tenant.ManagedLabel, Limit: driftPage},
		func(q *v1alpha1.TenantQuota) { stored[q.Spec.Tenant] = q.Spec.Hard },
		func(*typed.Invalid) {})
	if err != nil {
		e.logDriftError(ctx, err)
		return
	}
	for name := range stored {
		if id, err := tenant.Parse(name); err == nil {
			desiredFor(id)
		}
	}
	for id, g := range desired {
		hard, ok := stored[id.String()]
		if ok {
			e.setManaged(id)
		} else {
			e.forgetManaged(id)
		}
		if g != nil && (ok || len(g.quota) > 0) && !upstreamquota.Equals(hard, g.quota) {
			e.queueStatus(id)
		}
	}
}

// isDesired reports whether a namespace should have the stored binding, and whether the binding has
// the wanted content.
func (e *Engine) isDesired(g *desiredState, stored *rbacv1.RoleBinding) bool {
	ns, err := e.lister.Get(stored.Namespace)
	if err != nil {
		return false
	}
	bindings := g.bindingsIn(ns)
	for i := range bindings {
		if bindings[i].Name == stored.Name {
			return isSame(stored, &bindings[i])
		}
	}
	return false
}

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

// driftPage is the number of objects in a page of the drift pass.
const driftPage = 500

// lookForDrift queues the namespaces and the tenants whose managed objects have changed or are
// missing. It reads all managed objects page by page.
func (e *Engine) lookForDrift(ctx context.Context) {
	gives := map[tenant.ID]*given{}
	of := func(id tenant.ID) *given {
		if _, known := gives[id]; !known {
			gives[id], _ = e.givenBy(ctx, id) // nil: not known yet, checked later
		}
		return gives[id]
	}
	for _, id := range e.Tenants.IDs() {
		of(id)
	}
	e.lookForBindings(ctx, of)
	e.lookForRoles(ctx, of)
	e.lookForQuotas(ctx, of, gives)
}

func (e *Engine) lookForBindings(ctx context.Context, ofTenant func(tenant.ID) *given) {
	right := map[string]int{} // the number of correct bindings by namespace
	var wrong []string
	next := metav1.ListOptions{LabelSelector: tenantSelector, Limit: driftPage}
	for {
		if err := e.pages.Wait(ctx); err != nil {
			return
		}
		list, err := e.Client.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, next)
		if err != nil {
			e.notLooked(ctx, err)
			return
		}
		for i := range list.Items {
			is := &list.Items[i]
			switch g := e.givenIn(is.Namespace, ofTenant); {
			case g != nil && e.has(g, is):
				right[is.Namespace]++
			case g != nil:
				wrong = append(wrong, is.Namespace)
			case e.hasNoTenant(is.Namespace):
				if err := e.remove(ctx, is); err != nil {
					e.notLooked(ctx, err)
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
		if g := e.givenIn(ns.Name, ofTenant); g != nil && right[ns.Name] != len(g.bindingsIn(ns)) {
			wrong = append(wrong, ns.Name)
		}
	}
	for _, name := range wrong {
		e.looksDrifted(name)
		e.later.Add(name)
	}
}

// hasNoTenant reports whether a namespace exists and no tenant owns it. A managed binding there
// remains from a former tenant. A leader that had not observed the release of the namespace may
// have created it.
func (e *Engine) hasNoTenant(namespace string) bool {
	ns, err := e.lister.Get(namespace)
	if err != nil || ns.DeletionTimestamp != nil {
		return false
	}
	id := e.OwnerOf(ns)
	return id.IsZero() || id.IsSystem()
}

func (e *Engine) notLooked(ctx context.Context, err error) {
	if ctx.Err() == nil && !apierrors.IsNotFound(err) { // if the kind is not defined, no objects exist
		klog.FromContext(ctx).Info("Failed to check whether the objects of Tenants are in place", "err", err)
	}
}

// lookForQuotas queues the tenants whose managed quota has changed or does not exist.
func (e *Engine) lookForQuotas(ctx context.Context, of func(tenant.ID) *given, given map[tenant.ID]*given) {
	right := map[string]corev1.ResourceList{} // by tenant
	err := e.quotas.Each(ctx, metav1.ListOptions{LabelSelector: tenant.ManagedLabel, Limit: driftPage},
		func(q *v1alpha1.TenantQuota) { right[q.Spec.Tenant] = q.Spec.Hard },
		func(*typed.Invalid) {})
	if err != nil {
		e.notLooked(ctx, err)
		return
	}
	for name := range right {
		if id, err := tenant.Parse(name); err == nil {
			of(id)
		}
	}
	for id, g := range given {
		hard, has := right[id.String()]
		if has {
			e.noteManaged(id)
		} else {
			e.forgetManaged(id)
		}
		if g != nil && (has || len(g.quota) > 0) && !upstreamquota.Equals(hard, g.quota) {
			e.tellOf(id)
		}
	}
}

// has reports whether a binding is unchanged and one that its namespace should have.
func (e *Engine) has(g *given, is *rbacv1.RoleBinding) bool {
	ns, err := e.lister.Get(is.Namespace)
	if err != nil {
		return false
	}
	bindings := g.bindingsIn(ns)
	for i := range bindings {
		if bindings[i].Name == is.Name {
			return isSame(is, &bindings[i])
		}
	}
	return false
}

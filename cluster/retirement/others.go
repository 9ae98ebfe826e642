// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// deleteObjects deletes the ClusterRoleBindings, TenantQuotas, TenantMembers and TenantUsage of
// the tenant. It returns the time until the next check, or zero if only the TenantUsage may
// remain. finalizers are the finalizers of other programs on the Tenant.
func (e *deletion) deleteObjects(ctx context.Context, finalizers []string) (time.Duration, error) {
	if !meta.IsStatusConditionTrue(e.t.Status.Conditions, v1alpha1.ConditionDeleting) {
		if err := e.writeConditions(ctx, retiringCondition(nil, finalizers)); err != nil {
			return 0, err
		}
	}
	bindings, bindingsErr := e.deleteBindings(ctx)
	quotas, quotasErr := e.deleteQuotas(ctx)
	members, membersErr := e.deleteMembers(ctx)
	e.deleteUsage(ctx)
	if err := errors.Join(bindingsErr, quotasErr, membersErr); err != nil {
		return 0, err
	}
	left := slices.Concat(bindings, quotas, members)
	now := retiringCondition(left, finalizers)
	was := meta.FindStatusCondition(e.t.Status.Conditions, v1alpha1.ConditionDeleting)
	isSame := was != nil && was.Reason == now.Reason && was.Message == tenants.ConditionMessage(now.Message)
	if err := e.writeConditions(ctx, now); err != nil {
		return 0, err
	}
	switch {
	case len(left) == 0:
		return 0, nil
	case isSame: // nothing has changed since the last check
		return pollStuckEvery, nil
	}
	return pollEvery, nil
}

// retiringCondition returns the condition Deleting of a Tenant while the cluster-scoped objects
// of its tenant are deleted. left describes the objects that remain. finalizers are the
// finalizers of other programs on the Tenant.
func retiringCondition(left, finalizers []string) metav1.Condition {
	var waits []string
	if len(left) > 0 {
		waits = append(waits, fmt.Sprintf("objects that are not deleted yet: %d (%s)", len(left),
			strings.Join(left[:min(maxNamed, len(left))], "; ")))
	}
	if len(finalizers) > 0 {
		waits = append(waits, "waiting for other finalizers of the Tenant: "+strings.Join(finalizers, ", "))
	}
	if len(waits) == 0 {
		return deletingCondition(v1alpha1.ReasonRetiring,
			"deleting bindings and quotas: the name is retired when every server has observed the deletion")
	}
	return deletingCondition(v1alpha1.ReasonStuck, strings.Join(waits, "; "))
}

// describe returns the kind, the name and the finalizers of an object that still exists.
func describe(kind string, object metav1.Object) string {
	text := kind + " " + object.GetName()
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		text += ", finalizers: " + strings.Join(finalizers, ", ")
	}
	return text
}

// deleteEach calls remove for each object that is not already being deleted.
func (e *deletion) deleteEach(ctx context.Context, all []metav1.Object, remove func(metav1.Object) error) error {
	for _, object := range all {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := e.writes.Wait(ctx); err != nil {
			return err
		}
		if err := ignoreNotFound(remove(object)); err != nil {
			return err
		}
	}
	return nil
}

// remaining describes the objects in now that are also in deleted or are being deleted. It
// ignores objects that were created later, which have other UIDs.
func remaining(kind string, deleted, now []metav1.Object) (left []string) {
	for _, object := range now {
		if slices.ContainsFunc(deleted, func(d metav1.Object) bool { return d.GetUID() == object.GetUID() }) ||
			object.GetDeletionTimestamp() != nil {
			left = append(left, describe(kind, object))
		}
	}
	return left
}

// deleteBindings deletes the ClusterRoleBindings whose label [tenant.OfTenantLabel] names the
// tenant. It describes the bindings that still exist.
func (e *deletion) deleteBindings(ctx context.Context) ([]string, error) {
	list := func() (all []metav1.Object, err error) {
		bindings, err := e.Client.RbacV1().ClusterRoleBindings().List(ctx,
			metav1.ListOptions{LabelSelector: tenant.OfTenantLabel + "=" + e.id.String()})
		if err != nil {
			return nil, err
		}
		for i := range bindings.Items {
			all = append(all, &bindings.Items[i])
		}
		return all, nil
	}
	return e.deleteAll(ctx, "ClusterRoleBinding", list, func(b metav1.Object) error {
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.GetUID()))}
		return e.Client.RbacV1().ClusterRoleBindings().Delete(ctx, b.GetName(), options)
	})
}

// deleteAll deletes the objects that list returns. It describes the objects that still exist.
func (e *deletion) deleteAll(
	ctx context.Context, kind string, list func() ([]metav1.Object, error), remove func(metav1.Object) error,
) ([]string, error) {
	all, err := list()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if err := e.deleteEach(ctx, all, remove); err != nil {
		return nil, err
	}
	now, err := list()
	return remaining(kind, all, now), err
}

// deleteMembers deletes the TenantMembers, so that a later tenant with the same ID does not
// inherit them. It describes the TenantMembers if they still exist.
func (e *deletion) deleteMembers(ctx context.Context) ([]string, error) {
	list := func() ([]metav1.Object, error) {
		m, err := e.members.Get(ctx, cache.ObjectName{Name: e.id.ObjectName()})
		if invalid := (*typed.Invalid)(nil); errors.As(err, &invalid) {
			return []metav1.Object{invalid}, nil
		}
		if err != nil {
			return nil, ignoreNotFound(err)
		}
		return []metav1.Object{m}, nil
	}
	return e.deleteAll(ctx, v1alpha1.KindTenantMembers, list, func(m metav1.Object) error {
		return e.members.Delete(ctx, m)
	})
}

// deleteUsage deletes the TenantUsage, so that a later tenant with the same ID cannot read it. A
// failure does not prevent the deletion of the tenant, because a TenantUsage gives no rights and
// is replaced for a later tenant.
func (e *deletion) deleteUsage(ctx context.Context) {
	var found metav1.Object
	u, err := e.usages.Get(ctx, cache.ObjectName{Name: e.id.ObjectName()})
	found = u
	if invalid := (*typed.Invalid)(nil); errors.As(err, &invalid) {
		found = invalid
		err = nil
	}
	if err == nil {
		err = e.usages.Delete(ctx, found)
	}
	if err := ignoreNotFound(err); err != nil {
		klog.FromContext(ctx).Info("Failed to delete the TenantUsage of a deleted tenant", "tenant", e.id, "err", err)
	}
}

// deleteQuotas deletes the TenantQuotas of the tenant, including those that do not decode. It
// describes the quotas that still exist. It fails if it is unknown to which tenant a quota
// belongs.
func (e *deletion) deleteQuotas(ctx context.Context) ([]string, error) {
	var unknown error
	list := func() (all []metav1.Object, err error) {
		unknown = nil
		err = e.quotas.ForEach(
			ctx,
			metav1.ListOptions{FieldSelector: tenants.QuotaSelector(e.id)},
			func(q *v1alpha1.TenantQuota) {
				if q.Spec.Tenant == e.id.String() {
					all = append(all, q)
				}
			},
			func(i *typed.Invalid) {
				switch i.Tenant {
				case e.id.String():
					all = append(all, i)
				case "":
					unknown = i
				}
			},
		)
		return all, ignoreNotFound(err) // the server may not define the kind
	}
	left, err := e.deleteAll(ctx, v1alpha1.KindTenantQuota, list, func(q metav1.Object) error {
		return e.quotas.Delete(ctx, q)
	})
	return left, errors.Join(err, unknown)
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// recordSettles is the minimum time between the creation of the RetiredTenant and the removal of
// the Tenant's finalizer, so that every server can observe the RetiredTenant. After the Tenant is
// removed, a server that has not observed the RetiredTenant could allow requests that the Tenant
// denied. The time is shorter than settleTime, because a canceled deletion deletes no namespaces
// and does not reserve the ID.
const recordSettles = 2 * time.Second

// cancel removes the Tenant without deleting the namespaces and objects of the tenant. The server
// cannot undo the deletion of the Tenant object. cancel therefore records the access that the
// Tenant specified in a RetiredTenant, and then removes the finalizer. Unless the server requires a
// Tenant, the recorded access applies until a Tenant is created again. inTime specifies whether the
// delay is not over. again is the time until the next check. If canceled is false, the deletion
// continues, because the tenant's ID is already reserved or the annotation was set too late.
func (e *deletion) cancel(ctx context.Context, inTime bool) (again time.Duration, canceled bool, err error) {
	name := tenants.RetiredName(e.t.Name, string(e.t.UID))
	record, err := e.retired.Get(ctx, cache.ObjectName{Name: name})
	switch {
	case err == nil && record.Spec.TakenBack != "":
		if again := recordSettles - time.Since(record.CreationTimestamp.Time); again > 0 {
			return again, true, nil
		}
		return 0, true, e.finishCancel(ctx)
	case err == nil, apierrors.IsNotFound(err) && !inTime:
		return 0, false, nil
	case !apierrors.IsNotFound(err):
		return 0, false, err
	}
	if err := e.writes.Wait(ctx); err != nil {
		return 0, false, err
	}
	_, err = e.retired.Create(ctx, &v1alpha1.RetiredTenant{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindRetiredTenant},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.RetiredTenantSpec{
			ID:        e.id.String(),
			UID:       string(e.t.UID),
			TakenBack: remainingAccess(e.t),
		},
	})
	return recordSettles, true, err
}

func (e *deletion) finishCancel(ctx context.Context) error {
	if err := e.removeFinalizer(ctx, e.t); err != nil {
		return err
	}
	e.events.Event(v1alpha1.KindTenant, e.t, corev1.EventTypeNormal, &metav1.Condition{
		Reason:  v1alpha1.ReasonTakenBack,
		Message: "the deletion was canceled: only the Tenant and the bindings that it created are deleted",
	})
	return nil
}

// remainingAccess returns the stricter of spec.access and spec.suspension.
func remainingAccess(t *v1alpha1.Tenant) v1alpha1.TenantAccess {
	switch _, access := tenants.AccessOf(t); access {
	case authz.AccessOpen:
		return v1alpha1.TenantAccessOpen
	case authz.AccessReadOnly:
		return v1alpha1.TenantAccessReadOnly
	}
	return v1alpha1.TenantAccessClosed
}

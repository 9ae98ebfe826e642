// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// namedFailures is the maximum number of namespaces that a condition of a Tenant names.
const namedFailures = 5

// writeStatus updates the managed TenantQuota of a tenant and the status of its Tenant. The
// status reports failures. writeStatus returns an error only if a retry may succeed.
func (e *Engine) writeStatus(ctx context.Context, id tenant.ID) error {
	t, known := e.Tenants.Tenant(id)
	switch {
	case !known:
		return nil // the tenant is queued again when its Tenant is known
	case t == nil, t.DeletionTimestamp != nil: // package retirement writes the status of a Tenant that is being deleted
		return nil
	}
	desired, known := e.desiredFor(ctx, id)
	if !known {
		return e.writeUndefined(ctx, t)
	}
	quota, failed := e.applyQuota(ctx, id, t)
	// The status does not report conflicts, because a retry fixes them.
	if apierrors.IsConflict(failed) || ctx.Err() != nil {
		return failed
	}
	status, err := e.statusOf(id, t, desired, failed)
	if err != nil {
		return err
	}
	status.Quota = quota
	if errors.Is(failed, errQuotaTaken) || e.Definitions.Undefined(v1alpha1.ResourceTenantQuotas) != "" {
		failed = nil // the drift check and the installation of the definition queue the tenant again
	}
	if err := e.patchStatus(ctx, t, status); err != nil {
		return err
	}
	return failed
}

// patchStatus writes the status of a Tenant if it has changed.
func (e *Engine) patchStatus(ctx context.Context, t *v1alpha1.Tenant, status *v1alpha1.TenantStatus) error {
	if equality.Semantic.DeepEqual(status, &t.Status) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return err
	}
	if status.Quota == "" {
		content["quota"] = nil // otherwise, the merge patch would keep the old name
	}
	id, _ := tenants.AccessOf(t)
	if err := e.writes.wait(ctx, id, adds); err != nil {
		return err
	}
	_, err = e.tenants.PatchRead(ctx, t, map[string]any{"status": content}, "status")
	switch {
	case apierrors.IsNotFound(err): // a Tenant that is created later causes an event
		return nil
	case err != nil:
		return err
	}
	e.recordEvent(t, status)
	return nil
}

// statusOf returns the status that a Tenant should have. tenantwide is the error from writing the
// TenantQuota, or nil.
func (e *Engine) statusOf(
	id tenant.ID, t *v1alpha1.Tenant, desired *desiredState, tenantwide error,
) (*v1alpha1.TenantStatus, error) {
	names, err := e.Owned(id.String())
	if err != nil {
		return nil, err
	}
	status := &v1alpha1.TenantStatus{ObservedGeneration: t.Generation, Conditions: slices.Clone(t.Status.Conditions)}
	for _, name := range names {
		ns, err := e.lister.Get(name)
		if err != nil || ns.DeletionTimestamp != nil {
			continue
		}
		status.Namespaces.Total++
		if desired.isPrepared(ns) {
			status.Namespaces.Prepared++
		}
	}
	failed := e.failures(names)
	example := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: append(names, id.ObjectName())[0]}}
	wrong := desired.objects(id, example).err
	status.Namespaces.Failed = int32(len(failed)) // #nosec G115 -- at most the number of namespaces
	c := metav1.Condition{
		Type:               v1alpha1.ConditionPrepared,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: t.Generation,
	}
	missing := e.missingDefinitionsFor(t)
	switch n := status.Namespaces; {
	case missing != "":
		c.Reason, c.Message = v1alpha1.ReasonDefinition, missing
	case errors.Is(tenantwide, errQuotaTaken):
		c.Reason, c.Message = v1alpha1.ReasonQuota, tenantwide.Error()
	case tenantwide != nil:
		c.Reason, c.Message = v1alpha1.ReasonFailed, tenantwide.Error()
	case desired.refused != nil:
		c.Reason, c.Message = v1alpha1.ReasonSubject, desired.refused.Error()
	case wrong != nil:
		c.Reason, c.Message = v1alpha1.ReasonTemplate, wrong.Error()
	case len(failed) > 0:
		c.Reason, c.Message = v1alpha1.ReasonFailed, strings.Join(failed[:min(namedFailures, len(failed))], "; ")
	case n.Prepared < n.Total:
		c.Reason, c.Message = v1alpha1.ReasonPreparing,
			fmt.Sprintf("%d of %d namespaces are prepared", n.Prepared, n.Total)
	default:
		c.Status = metav1.ConditionTrue
		c.Reason = v1alpha1.ReasonPrepared
		c.Message = "every namespace has the objects that the Tenant defines"
	}
	c.Message = tenants.ConditionMessage(c.Message)
	meta.SetStatusCondition(&status.Conditions, c)
	ready := readyOf(id, t, names, status.Namespaces.Total, c)
	if missing := e.missingOwnDefinitions(); missing != "" {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonDefinition, missing
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	meta.SetStatusCondition(&status.Conditions, suspendedOf(t))
	return status, nil
}

// readyOf returns the condition Ready of a Tenant. prepared is the condition Prepared. Ready is
// False if prepared is False, or if the number or the names of the namespaces violate the spec of
// the Tenant.
func readyOf(
	id tenant.ID, t *v1alpha1.Tenant, names []string, total int32, prepared metav1.Condition,
) metav1.Condition {
	c := prepared
	c.Type = v1alpha1.ConditionReady
	if c.Status != metav1.ConditionTrue {
		return c
	}
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return t.Spec.Namespaces.Prefix != v1alpha1.NamespacePrefixRequired || tenant.PrefixOwner(name) == id
	})
	switch limit := t.Spec.Namespaces.Max; {
	case limit != nil && total > *limit:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonManyNamespaces
		c.Message = fmt.Sprintf("the tenant has %d namespaces but spec.namespaces.max is %d: delete some before you "+
			"create others",
			total, *limit)
	case len(others) > 0:
		slices.Sort(others)
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonOtherNames
		c.Message = fmt.Sprintf("the names of %d namespaces do not begin with %s, as spec.namespaces.prefix requires: the "+
			"namespaces are kept (%s)",
			len(others), id.NamespacePrefix(), strings.Join(others[:min(namedFailures, len(others))], ", "))
	default:
		c.Reason = v1alpha1.ReasonReady
	}
	return c
}

// suspendedOf returns the condition Suspended of a Tenant. The stricter of spec.access and
// spec.suspension applies.
func suspendedOf(t *v1alpha1.Tenant) metav1.Condition {
	c := metav1.Condition{
		Type:               v1alpha1.ConditionSuspended,
		Status:             metav1.ConditionFalse,
		Reason:             v1alpha1.ReasonOpen,
		ObservedGeneration: t.Generation,
	}
	for _, access := range []v1alpha1.TenantAccess{v1alpha1.TenantAccessReadOnly, v1alpha1.TenantAccessClosed} {
		if t.Spec.Access == access || t.Spec.Suspension == access {
			c.Status = metav1.ConditionTrue
			c.Reason = string(access)
		}
	}
	return c
}

// recordEvent records an event if the reason of the condition Prepared has changed.
func (e *Engine) recordEvent(t *v1alpha1.Tenant, status *v1alpha1.TenantStatus) {
	was := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPrepared)
	is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPrepared)
	if is.Reason == v1alpha1.ReasonDefinition || was != nil && was.Reason == v1alpha1.ReasonDefinition {
		return // one event for the definition is enough
	}
	if was != nil && was.Reason == is.Reason || was == nil && is.Status == metav1.ConditionTrue ||
		is.Reason == v1alpha1.ReasonPreparing {
		return
	}
	kind := corev1.EventTypeWarning
	if is.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	e.events.Event(v1alpha1.KindTenant, t, kind, is)
}

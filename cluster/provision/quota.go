// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// errQuotaTaken reports that the tenant has a TenantQuota that another caller created.
var errQuotaTaken = errors.New("spec.quota: the tenant has a TenantQuota that does not belong to the Tenant: delete it")

// hardOf returns the limits that a Tenant specifies for its TenantQuota, including
// spec.namespaces.max. The result is empty if the Tenant specifies no limits.
func hardOf(spec *v1alpha1.TenantSpec) corev1.ResourceList {
	if spec.Namespaces.Max == nil {
		return spec.Quota
	}
	hard := corev1.ResourceList{
		"count/namespaces": *resource.NewQuantity(int64(*spec.Namespaces.Max), resource.DecimalSI),
	}
	maps.Copy(hard, spec.Quota)
	return hard
}

// applyQuota creates or updates the TenantQuota that a Tenant specifies, and returns its name. If
// the Tenant specifies no limits, applyQuota deletes the managed TenantQuota and returns "". A
// default TenantQuota becomes managed. If applyQuota fails, it returns the name of the
// TenantQuota that may still exist, or "".
func (e *Engine) applyQuota(ctx context.Context, id tenant.ID, t *v1alpha1.Tenant) (string, error) {
	hard := hardOf(&t.Spec)
	if len(hard) == 0 && t.Status.Quota == "" && !e.isManaged(id) {
		return "", nil
	}
	stored, others, err := e.quotaOf(ctx, id)
	switch {
	case err != nil:
		return t.Status.Quota, fmt.Errorf("spec.quota: %w", err)
	case len(hard) == 0:
		if err := e.removeQuota(ctx, stored); err != nil {
			return t.Status.Quota, err
		}
		e.forgetManaged(id)
		return "", nil
	case others != "":
		return "", fmt.Errorf("%w (%s)", errQuotaTaken, others)
	case stored == nil:
		return e.createQuota(ctx, id, hard)
	}
	return stored.Name, e.updateQuota(ctx, stored, hard)
}

// isManaged reports whether the engine has observed or created a managed TenantQuota for the
// tenant. The status of the Tenant may not name this quota yet.
func (e *Engine) isManaged(id tenant.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.managed[id]
}

func (e *Engine) setManaged(id tenant.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.managed[id] = true
}

func (e *Engine) forgetManaged(id tenant.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.managed, id)
}

// quotaOf returns the managed or default TenantQuota of a tenant, or nil. It also returns the
// name of a TenantQuota that another caller created, or "". It fails if a TenantQuota of the
// tenant does not decode.
func (e *Engine) quotaOf(ctx context.Context, id tenant.ID) (own *v1alpha1.TenantQuota, others string, err error) {
	var unknown error
	options := metav1.ListOptions{ResourceVersion: "0", FieldSelector: tenants.QuotaSelector(id)}
	err = e.quotas.ForEach(ctx, options, func(q *v1alpha1.TenantQuota) {
		if q.Spec.Tenant != id.String() {
			return
		}
		if q.Labels[tenant.ManagedLabel] != "" || q.Labels[v1alpha1.DefaultQuotaLabel] != "" {
			own = q
			return
		}
		others = q.Name
	}, func(i *typed.Invalid) { unknown = i })
	return own, others, errors.Join(err, unknown)
}

func (e *Engine) createQuota(ctx context.Context, id tenant.ID, hard corev1.ResourceList) (string, error) {
	for _, name := range []string{id.ObjectName(), id.DistinctObjectName()} { // the first name may already be in use
		if err := e.writes.wait(ctx, id, revokes); err != nil {
			return "", err
		}
		_, err := e.quotas.Create(ctx, &v1alpha1.TenantQuota{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenantQuota},
			ObjectMeta: metav1.ObjectMeta{
				Name:   name,
				Labels: map[string]string{tenant.ManagedLabel: managed.SourceTenant},
			},
			Spec: v1alpha1.TenantQuotaSpec{Tenant: id.String(), Hard: hard},
		})
		if err == nil {
			e.setManaged(id)
			return name, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", err
		}
	}
	return "", errQuotaTaken
}

// updateQuota writes the limits of a quota. It retries after conflicts and reads the quota again
// before each retry, because the status of the quota changes with each object of the tenant.
func (e *Engine) updateQuota(ctx context.Context, stored *v1alpha1.TenantQuota, hard corev1.ResourceList) error {
	return retry.RetryOnConflict(conflictBackoff, func() error {
		err := e.patchQuota(ctx, stored, hard)
		if !apierrors.IsConflict(err) {
			return err
		}
		live, readErr := e.quotas.Get(ctx, cache.ObjectName{Name: stored.Name})
		if readErr != nil || live.UID != stored.UID {
			return readErr
		}
		stored = live
		return err
	})
}

func (e *Engine) patchQuota(ctx context.Context, stored *v1alpha1.TenantQuota, hard corev1.ResourceList) error {
	_, byDefault := stored.Labels[v1alpha1.DefaultQuotaLabel]
	if !byDefault && stored.Labels[tenant.ManagedLabel] == managed.SourceTenant &&
		upstreamquota.Equals(stored.Spec.Hard, hard) {
		return nil
	}
	limits := map[string]any{}
	for name := range stored.Spec.Hard {
		limits[string(name)] = nil
	}
	for name, limit := range hard {
		limits[string(name)] = limit
	}
	labels := map[string]any{}
	for key := range stored.Labels {
		labels[key] = nil
	}
	labels[tenant.ManagedLabel] = managed.SourceTenant
	id, _ := tenant.Parse(stored.Spec.Tenant)
	if err := e.writes.wait(ctx, id, revokes); err != nil {
		return err
	}
	_, err := e.quotas.PatchRead(ctx, stored, map[string]any{
		"metadata": map[string]any{"labels": labels},
		"spec":     map[string]any{"hard": limits},
	})
	return err
}

// removeQuota deletes a managed quota. It does nothing if stored is nil or is not managed.
func (e *Engine) removeQuota(ctx context.Context, stored *v1alpha1.TenantQuota) error {
	if stored == nil || stored.Labels[tenant.ManagedLabel] == "" {
		return nil
	}
	id, _ := tenant.Parse(stored.Spec.Tenant)
	if err := e.writes.wait(ctx, id, adds); err != nil {
		return err
	}
	err := e.quotas.Delete(ctx, stored)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

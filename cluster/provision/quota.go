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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// errQuotaTaken says that somebody else has made the quota of a tenant.
var errQuotaTaken = errors.New("spec.quota: a TenantQuota of the tenant is there that is not the Tenant's: delete it")

func (e *Engine) quotas() dynamic.NamespaceableResourceInterface {
	return e.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas))
}

// hardOf returns the limits of the TenantQuota of a Tenant. It is empty if the Tenant has no
// limits.
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

// applyQuota makes the TenantQuota of a Tenant what the Tenant says, and returns its name, empty
// for none; where that failed, the name of the one before, which may still be there. The default
// one that a server makes for whoever has none becomes it.
func (e *Engine) applyQuota(ctx context.Context, id tenant.ID, t *v1alpha1.Tenant) (string, error) {
	hard := hardOf(&t.Spec)
	if len(hard) == 0 && t.Status.Quota == "" && !e.isManaged(id) {
		return "", nil
	}
	is, others, err := e.quotaOf(ctx, id)
	switch {
	case err != nil:
		return t.Status.Quota, fmt.Errorf("spec.quota: %w", err)
	case len(hard) == 0:
		if err := e.removeQuota(ctx, is); err != nil {
			return t.Status.Quota, err
		}
		e.forgetManaged(id)
		return "", nil
	case others != "":
		return "", fmt.Errorf("%w (%s)", errQuotaTaken, others)
	case is == nil:
		return e.createQuota(ctx, id, hard)
	}
	return is.GetName(), e.updateQuota(ctx, is, id, hard)
}

// isManaged reports whether a quota of a tenant was seen that is the Tenant's:
// its status may not say so.
func (e *Engine) isManaged(id tenant.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.managed[id]
}

func (e *Engine) noteManaged(id tenant.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.managed[id] = true
}

func (e *Engine) forgetManaged(id tenant.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.managed, id)
}

// quotaOf returns the quota of a tenant that is the Tenant's or can become it, nil for none; and
// the name of one that cannot.
func (e *Engine) quotaOf(ctx context.Context, id tenant.ID) (is *unstructured.Unstructured, others string, err error) {
	all, err := e.quotas().List(ctx, metav1.ListOptions{ResourceVersion: "0", FieldSelector: tenants.QuotasOf(id)})
	if err != nil {
		return nil, "", err
	}
	for i := range all.Items {
		q := &all.Items[i]
		if of, _, _ := unstructured.NestedString(q.Object, "spec", "tenant"); of != id.String() {
			continue
		}
		switch {
		case q.GetLabels()[tenant.ManagedLabel] != "", q.GetLabels()[v1alpha1.DefaultQuotaLabel] != "":
			is = q
		default:
			others = q.GetName()
		}
	}
	return is, others, nil
}

func (e *Engine) createQuota(ctx context.Context, id tenant.ID, hard corev1.ResourceList) (string, error) {
	for _, name := range []string{id.ObjectName(), id.DistinctObjectName()} { // the first may be another tenant's
		u, err := quotaObject(name, id, hard)
		if err != nil {
			return "", err
		}
		if err := e.writes.Wait(ctx); err != nil {
			return "", err
		}
		_, err = e.quotas().Create(ctx, u, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
		if err == nil {
			e.noteManaged(id)
			return name, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", err
		}
	}
	return "", errQuotaTaken
}

// quotaObject is the TenantQuota of a Tenant.
func quotaObject(name string, id tenant.ID, hard corev1.ResourceList) (*unstructured.Unstructured, error) {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.TenantQuotaSpec{
		Tenant: id.String(),
		Hard:   hard,
	})
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenantQuota))
	u.SetName(name)
	u.SetLabels(map[string]string{tenant.ManagedLabel: managed.SourceTenant})
	return u, nil
}

// updateQuota brings a quota up to date, as it was read.
func (e *Engine) updateQuota(
	ctx context.Context, is *unstructured.Unstructured, id tenant.ID, hard corev1.ResourceList,
) error {
	q := &v1alpha1.TenantQuota{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(is.Object, q); err != nil {
		return err
	}
	_, byDefault := q.Labels[v1alpha1.DefaultQuotaLabel]
	if !byDefault && q.Labels[tenant.ManagedLabel] == managed.SourceTenant && upstreamquota.Equals(q.Spec.Hard, hard) {
		return nil
	}
	want, err := quotaObject(is.GetName(), id, hard)
	if err != nil {
		return err
	}
	is.Object["spec"] = want.Object["spec"]
	is.SetLabels(want.GetLabels())
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	_, err = e.quotas().Update(ctx, is, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

// removeQuota deletes a quota that is the Tenant's; nil is none.
func (e *Engine) removeQuota(ctx context.Context, is *unstructured.Unstructured) error {
	if is == nil || is.GetLabels()[tenant.ManagedLabel] == "" {
		return nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	err := e.quotas().Delete(ctx, is.GetName(),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(is.GetUID()))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

package tenantquota

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// ensureEvery is how often it is looked whether every tenant has a quota.
const ensureEvery = time.Second

// EnsureDefaults gives tenants that have no quota the one that hard returns, and takes it away where that is
// empty, until ctx ends. A tenant's writes wait for its quota.
func (q *Store) EnsureDefaults(ctx context.Context, namespaces corelisters.NamespaceLister, hard func() corev1.ResourceList) {
	wait.UntilWithContext(ctx, func(ctx context.Context) { q.ensureAll(ctx, namespaces, hard()) }, ensureEvery)
}

func (q *Store) ensureAll(ctx context.Context, namespaces corelisters.NamespaceLister, hard corev1.ResourceList) {
	if len(hard) == 0 {
		if err := q.dropDefaults(ctx); err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "A default quota that is not wanted any more still limits its tenant")
		}
		return
	}
	all, err := namespaces.List(labels.Everything())
	seen := map[tenant.ID]bool{}
	for _, ns := range all {
		id, parseErr := tenant.Parse(ns.Labels[tenant.Label])
		if parseErr != nil || id.IsSystem() || seen[id] {
			continue
		}
		seen[id] = true
		err = errors.Join(err, q.ensure(ctx, id, hard))
	}
	if err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Not every tenant has a quota: those without may create nothing that is limited")
	}
}

// ensure makes the quota of a tenant that has none, and brings one that was made so up to date.
func (q *Store) ensure(ctx context.Context, id tenant.ID, hard corev1.ResourceList) error {
	objects, err := q.of(id.String())
	if err != nil {
		return err
	}
	for _, u := range objects {
		state, _, err := stateOf(u)
		if err != nil {
			return err
		}
		if isDefault(u) && !upstreamquota.Equals(state.Hard, hard) {
			return q.apply(ctx, u.GetName(), id, hard)
		}
	}
	if len(objects) == 0 {
		name := DefaultName(id)
		if _, taken, err := q.informer.GetStore().GetByKey(name); err != nil || taken {
			name = distinctName(id) // by a quota of another tenant
		}
		return q.apply(ctx, name, id, hard)
	}
	return nil
}

// dropDefaults takes away the quotas that ensure made.
func (q *Store) dropDefaults(ctx context.Context) error {
	if !q.HasSynced() {
		return quota.ErrUnknown
	}
	var err error
	for _, obj := range q.informer.GetStore().List() {
		if u, is := obj.(*unstructured.Unstructured); is && isDefault(u) {
			err = errors.Join(err, q.drop(ctx, u))
		}
	}
	return err
}

// drop deletes a quota, and none that was made anew by its name.
func (q *Store) drop(ctx context.Context, u *unstructured.Unstructured) error {
	uid := u.GetUID()
	err := q.client.Resource(tenantQuotas()).Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// apply writes a quota as the configuration has it.
func (q *Store) apply(ctx context.Context, name string, id tenant.ID, hard corev1.ResourceList) error {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.TenantQuotaSpec{Tenant: id.String(), Hard: hard})
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(tenantQuotas().GroupVersion().WithKind(v1alpha1.KindTenantQuota))
	u.SetName(name)
	u.SetLabels(map[string]string{v1alpha1.DefaultQuotaLabel: "true"})
	_, err = q.client.Resource(tenantQuotas()).Apply(ctx, name, u, metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true})
	return err
}

// DefaultName is the name of the default quota of a tenant: the tenant's name where that can be an object's, and else one that no other
// tenant's can be.
func DefaultName(id tenant.ID) string {
	name := strings.ToLower(id.String())
	if name == id.String() && len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return distinctName(id)
}

func distinctName(id tenant.ID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(id.String())) + "." + hex.EncodeToString(sum[:4])
}

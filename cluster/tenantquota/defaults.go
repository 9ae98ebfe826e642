package tenantquota

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// ensureEvery is how often it is looked whether every tenant has a quota.
	ensureEvery = time.Second
	// ensureAnyway is after how long it is looked although nothing has changed.
	ensureAnyway = time.Minute
)

// EnsureDefaults gives tenants that have no quota the one that hard returns, and takes it away
// where that is empty, until ctx ends. A tenant's writes wait for its quota.
func (q *Store) EnsureDefaults(ctx context.Context, namespaces *Namespaces, hard func() corev1.ResourceList) {
	var last pass
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		// Counted before it is looked: what changes meanwhile is seen by the next one.
		now := pass{namespaces.changes.Load(), q.changes.Load(), hard(), time.Now()}
		if last.holds(&now) {
			return
		}
		if q.ensureAll(ctx, namespaces, now.hard) {
			last = now
		} else {
			last = pass{}
		}
	}, ensureEvery)
}

// pass is what a look at all tenants went by. The zero value is none.
type pass struct {
	namespaces, quotas uint64
	hard               corev1.ResourceList
	at                 time.Time
}

// holds reports whether nothing has changed since, nor is it long ago.
func (p *pass) holds(now *pass) bool {
	return p.namespaces == now.namespaces && p.quotas == now.quotas && upstreamquota.Equals(p.hard, now.hard) &&
		now.at.Sub(p.at) < ensureAnyway
}

// ensureAll reports whether all tenants have what they should.
func (q *Store) ensureAll(ctx context.Context, namespaces *Namespaces, hard corev1.ResourceList) bool {
	if len(hard) == 0 {
		err := q.dropDefaults(ctx)
		if err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "A default quota that is not wanted any more still limits its tenant")
		}
		return err == nil
	}
	var err error
	done := true
	for _, name := range namespaces.Tenants() {
		id, parseErr := tenant.Parse(name)
		if parseErr != nil || id.IsSystem() {
			continue
		}
		failed := q.ensure(ctx, id, hard)
		done = done && failed == nil
		if !errors.Is(failed, quota.ErrConflict) { // which hides no other error
			err = errors.Join(err, failed)
		}
	}
	if err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Not every tenant has a quota: those without may create nothing that is limited")
	}
	return done
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
			return q.update(ctx, u, hard)
		}
	}
	if len(objects) == 0 {
		name := id.ObjectName()
		if _, taken, err := q.informer.GetStore().GetByKey(name); err != nil || taken {
			name = id.DistinctObjectName() // by a quota of another tenant
		}
		return q.create(ctx, name, id, hard)
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
	err := q.client.Resource(tenantQuotas()).Delete(ctx, u.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// create makes a default quota, and leaves alone what has its name by now: the tenant's own,
// which is not seen here yet.
func (q *Store) create(ctx context.Context, name string, id tenant.ID, hard corev1.ResourceList) error {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.TenantQuotaSpec{
		Tenant: id.String(),
		Hard:   hard,
	})
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(tenantQuotas().GroupVersion().WithKind(v1alpha1.KindTenantQuota))
	u.SetName(name)
	u.SetLabels(map[string]string{v1alpha1.DefaultQuotaLabel: "true"})
	q.changes.Add(1) // it is looked at again, whether or not its event comes
	_, err = q.client.Resource(tenantQuotas()).Create(ctx, u, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// update brings a default quota up to date, and leaves alone one that has changed since it was seen
// here: it may be the tenant's own by now.
func (q *Store) update(ctx context.Context, known *unstructured.Unstructured, hard corev1.ResourceList) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": known.GetResourceVersion()},
		{"op": "replace", "path": "/spec/hard", "value": hard},
	})
	if err != nil {
		return err
	}
	q.changes.Add(1) // as in create
	_, err = q.client.Resource(tenantQuotas()).Patch(ctx, known.GetName(), types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	switch {
	case apierrors.IsConflict(err):
		return quota.ErrConflict // it is looked at again soon
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}

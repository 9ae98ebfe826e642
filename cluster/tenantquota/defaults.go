// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// ensureEvery is the interval at which [Store.EnsureDefaults] checks for changes of namespaces,
	// quotas and the configuration.
	ensureEvery = time.Second
	// ensureAnyway is the interval at which all tenants are checked, even if nothing has changed.
	ensureAnyway = time.Minute
)

// EnsureDefaults creates a default quota for each tenant without a quota, until ctx ends. hard
// returns the limits. If they change, EnsureDefaults updates the default quotas. If hard returns
// no limits, EnsureDefaults deletes the default quotas. Until its quota exists, a tenant cannot
// create limited objects.
func (s *Store) EnsureDefaults(ctx context.Context, namespaces *Namespaces, hard func() corev1.ResourceList) {
	var last pass
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		// The counters are read first, so that the next pass handles later changes.
		now := pass{namespaces.changes.Load(), s.changes.Load(), hard(), time.Now()}
		if last.covers(&now) {
			return
		}
		if s.ensureAll(ctx, namespaces, now.hard) {
			last = now
		} else {
			last = pass{}
		}
	}, ensureEvery)
}

// pass records the input for a check of all tenants. The zero value does not cover any later
// pass.
type pass struct {
	namespaces, quotas uint64
	hard               corev1.ResourceList
	at                 time.Time
}

// covers reports whether now has the same input as p, and p is not older than ensureAnyway.
func (p *pass) covers(now *pass) bool {
	return p.namespaces == now.namespaces && p.quotas == now.quotas && upstreamquota.Equals(p.hard, now.hard) &&
		now.at.Sub(p.at) < ensureAnyway
}

// ensureAll creates, updates or deletes the default quotas of all tenants, and reports whether it
// succeeded.
func (s *Store) ensureAll(ctx context.Context, namespaces *Namespaces, hard corev1.ResourceList) bool {
	if len(hard) == 0 {
		err := s.deleteDefaults(ctx)
		if err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to delete a default quota, which still limits its tenant")
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
		failed := s.ensure(ctx, id, hard)
		done = done && failed == nil
		if !errors.Is(failed, quota.ErrConflict) { // conflicts are retried without a log message
			err = errors.Join(err, failed)
		}
	}
	if err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to create the quotas of some tenants, which cannot create limited "+
			"objects until they have a quota")
	}
	return done
}

// ensure creates a default quota for a tenant without a quota, or updates the default quota.
func (s *Store) ensure(ctx context.Context, id tenant.ID, hard corev1.ResourceList) error {
	objects, err := s.quotasOf(id.String())
	if err != nil {
		return err
	}
	for _, object := range objects {
		q, err := typed.FromInformer[v1alpha1.TenantQuota](object)
		if err != nil {
			return err
		}
		if isDefault(q) && !upstreamquota.Equals(q.Spec.Hard, hard) {
			return s.update(ctx, q, hard)
		}
	}
	if len(objects) > 0 {
		return nil
	}
	name := id.ObjectName()
	if _, taken, err := s.informer.GetStore().GetByKey(name); err != nil || taken {
		name = id.DistinctObjectName() // another quota has the name
	}
	return s.create(ctx, name, id, hard)
}

// deleteDefaults deletes all default quotas.
func (s *Store) deleteDefaults(ctx context.Context) error {
	if !s.HasSynced() {
		return quota.ErrUnknown
	}
	var err error
	for _, obj := range s.informer.GetStore().List() {
		if object, ok := obj.(metav1.Object); ok && isDefault(object) {
			err = errors.Join(err, s.deleteDefault(ctx, object))
		}
	}
	return err
}

// deleteDefault deletes a default quota. Because of the UID precondition, it does not delete a
// quota with the same name that was created later.
func (s *Store) deleteDefault(ctx context.Context, object metav1.Object) error {
	uid := object.GetUID()
	err := s.client.Resource(tenantQuotas()).Delete(ctx, object.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// create creates a default quota. If a quota with this name already exists, which the store has
// not observed yet, create does not change it and returns nil.
func (s *Store) create(ctx context.Context, name string, id tenant.ID, hard corev1.ResourceList) error {
	s.changes.Add(1) // the tenant is checked again even if no event arrives
	_, err := s.quotas.Create(ctx, &v1alpha1.TenantQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenantQuota},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.DefaultQuotaLabel: "true"}},
		Spec:       v1alpha1.TenantQuotaSpec{Tenant: id.String(), Hard: hard},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// update updates the limits of a default quota. It returns [quota.ErrConflict] if the quota has
// changed since it was read, because it may no longer be a default quota.
func (s *Store) update(ctx context.Context, known *v1alpha1.TenantQuota, hard corev1.ResourceList) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": known.ResourceVersion},
		{"op": "replace", "path": "/spec/hard", "value": hard},
	})
	if err != nil {
		return err
	}
	s.changes.Add(1) // the tenant is checked again even if no event arrives
	_, err = s.quotas.Patch(ctx, cache.NewObjectName("", known.Name), types.JSONPatchType, patch)
	if apierrors.IsConflict(err) {
		return quota.ErrConflict // the next pass tries again
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

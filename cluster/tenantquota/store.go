// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantquota reads and charges the TenantQuotas of a cluster. It also measures the usage
// of tenants and creates default quotas.
package tenantquota

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// byTenant is the name of the index that finds quotas by spec.tenant.
const byTenant = "tenant"

func tenantQuotas() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
}

// Store caches the TenantQuotas of a cluster, and charges usage to them. It implements
// [quota.Store].
//
// The informer contains a [typed.Invalid] for each quota that does not decode. If a quota of a
// tenant does not decode, [Store.States] fails, so that the tenant cannot increase its usage.
type Store struct {
	client   dynamic.Interface
	quotas   typed.Client[v1alpha1.TenantQuota, *v1alpha1.TenantQuota]
	informer cache.SharedIndexInformer
	defined  func(schema.GroupResource) (is, known bool)
	classes  *deviceClasses
	changes  atomic.Uint64 // the number of creations, deletions and changes of the spec

	mu sync.Mutex
	// latest has quotas that this process has written or read, and that may be newer than the
	// versions in the informer, keyed by name. They MUST NOT be changed.
	latest map[string]*v1alpha1.TenantQuota
}

// New returns a store that is empty until [Store.Run] is called. defined reports whether the
// server defines a kind of the project. If nil, the server defines TenantQuotas.
func New(client dynamic.Interface, defined func(schema.GroupResource) (is, known bool)) (*Store, error) {
	informer, err := typed.NewInformer[v1alpha1.TenantQuota](client, tenantQuotas(), nil)
	if err != nil {
		return nil, err
	}
	if err := informer.AddIndexers(cache.Indexers{byTenant: func(obj any) ([]string, error) {
		return []string{tenantOf(obj)}, nil
	}}); err != nil {
		return nil, err
	}
	s := &Store{
		client:   client,
		quotas:   typed.NewClient[v1alpha1.TenantQuota](client, tenantQuotas()),
		informer: informer,
		defined:  defined,
		classes:  newDeviceClasses(client),
		latest:   map[string]*v1alpha1.TenantQuota{},
	}
	_, err = informer.AddEventHandler(countChanges(&s.changes, sameSpec))
	return s, err
}

// sameSpec reports whether two versions of a quota have the same UID and spec, and whether both or
// neither are default quotas. It returns false if a version does not decode.
func sameSpec(before, after any) bool {
	was, errBefore := typed.FromInformer[v1alpha1.TenantQuota](before)
	now, errAfter := typed.FromInformer[v1alpha1.TenantQuota](after)
	return errBefore == nil && errAfter == nil && was.UID == now.UID && isDefault(was) == isDefault(now) &&
		equality.Semantic.DeepEqual(&was.Spec, &now.Spec)
}

// tenantOf returns spec.tenant of an object from the informer.
func tenantOf(obj any) string {
	switch obj := obj.(type) {
	case *v1alpha1.TenantQuota:
		return obj.Spec.Tenant
	case *typed.Invalid:
		return obj.Tenant
	}
	return ""
}

// Run watches the quotas until ctx ends. It must be called only once.
func (s *Store) Run(ctx context.Context) {
	go s.classes.run(ctx)
	s.informer.RunWithContext(ctx)
}

// HasSynced reports whether all quotas have been read once.
func (s *Store) HasSynced() bool { return s.informer.HasSynced() }

// BelongsTo reports whether the quota with the given name belongs to a tenant. If the quota does
// not exist, it reports whether the name is the object name of the tenant. It returns false if
// spec.tenant of the quota is invalid, or if the quotas have not been read.
func (s *Store) BelongsTo(name string, id tenant.ID) bool {
	obj, exists, err := s.informer.GetStore().GetByKey(name)
	switch {
	case err != nil || id.IsZero():
		return false
	case !exists:
		return name == id.ObjectName() && s.HasSynced()
	}
	of, err := tenant.Parse(tenantOf(obj))
	return err == nil && of == id
}

// newest returns the newer version of a quota. This is either the given object from the informer
// or the version in latest.
func (s *Store) newest(object metav1.Object) metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.latest[object.GetName()]
	if !ok {
		return object
	}
	newer, err := resourceversion.CompareResourceVersion(own.ResourceVersion, object.GetResourceVersion())
	if err != nil || newer <= 0 || own.UID != object.GetUID() {
		delete(s.latest, object.GetName())
		return object
	}
	return own
}

func (s *Store) remember(q *v1alpha1.TenantQuota) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest[q.Name] = q
}

// quotasOf returns the quotas of a tenant, sorted by name. It omits a default quota if the tenant
// has another quota.
func (s *Store) quotasOf(id string) ([]metav1.Object, error) {
	if !s.HasSynced() {
		return nil, quota.ErrUnknown
	}
	objects, err := s.informer.GetIndexer().ByIndex(byTenant, id)
	if err != nil {
		return nil, err
	}
	out := make([]metav1.Object, 0, len(objects))
	for _, obj := range objects {
		if object, ok := obj.(metav1.Object); ok {
			out = append(out, s.newest(object))
		}
	}
	if slices.ContainsFunc(out, isOwn) {
		out = slices.DeleteFunc(out, isDefault)
	}
	slices.SortFunc(out, func(a, b metav1.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// isDefault reports whether a quota has the label of a default quota, which [Store.EnsureDefaults]
// creates.
func isDefault(object metav1.Object) bool {
	return object.GetLabels()[v1alpha1.DefaultQuotaLabel] == "true"
}

func isOwn(object metav1.Object) bool { return !isDefault(object) }

// isUndefined reports whether the CustomResourceDefinition of TenantQuotas is known not to exist.
// The limits are then unknown, and usage cannot be written.
func (s *Store) isUndefined() bool {
	if s.defined == nil {
		return false
	}
	defined, known := s.defined(tenantQuotas().GroupResource())
	return known && !defined
}

// States implements [quota.Store]. While the definition is missing, it fails with
// [quota.ErrUnknown].
func (s *Store) States(_ context.Context, id tenant.ID) ([]*quota.State, error) {
	if s.isUndefined() {
		return nil, quota.ErrUnknown
	}
	objects, err := s.quotasOf(id.String())
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	out := make([]*quota.State, 0, len(objects))
	for _, object := range objects {
		q, err := typed.FromInformer[v1alpha1.TenantQuota](object)
		if err != nil {
			return nil, err
		}
		out = append(out, stateOf(q))
	}
	return out, nil
}

// HasQuota implements [quota.Store].
func (s *Store) HasQuota(_ context.Context, id tenant.ID) (bool, error) {
	objects, err := s.quotasOf(id.String())
	return slices.ContainsFunc(objects, isOwn), err
}

// stateOf returns the state of a quota. The state shares the limits and usages with the object.
func stateOf(q *v1alpha1.TenantQuota) *quota.State {
	state := &quota.State{
		Name:    q.Name,
		Version: q.ResourceVersion,
		Hard:    q.Spec.Hard,
		Used:    q.Status.Used,
	}
	if len(q.Status.Reserved) > 0 {
		state.Reserved = make([]quota.Reservation, 0, len(q.Status.Reserved))
	}
	for i := range q.Status.Reserved {
		r := &q.Status.Reserved[i]
		state.Reserved = append(state.Reserved, quota.Reservation{
			UID:     r.UID,
			Key:     r.Key,
			Expires: r.Expires.Time,
			Usage:   r.Used,
			After:   r.After,
		})
	}
	return state
}

// Charge implements [quota.Store].
func (s *Store) Charge(ctx context.Context, was, is *quota.State) error {
	return s.write(ctx, was, is, nil)
}

// write replaces the state was of a quota with the state is. It returns [quota.ErrConflict] if
// the quota has changed since it was read. If namespaces is nil, status.namespaces is not
// changed.
func (s *Store) write(ctx context.Context, was, is *quota.State, namespaces []v1alpha1.NamespaceUsage) error {
	obj, _, err := s.informer.GetStore().GetByKey(was.Name)
	object, ok := obj.(metav1.Object)
	if err != nil || !ok {
		return quota.ErrConflict
	}
	stored, err := typed.FromInformer[v1alpha1.TenantQuota](s.newest(object))
	if err != nil {
		return err
	}
	if stored.ResourceVersion != was.Version {
		return quota.ErrConflict
	}
	next := *stored // a shallow copy, in which the fields below are replaced
	next.Status.Used = is.Used
	next.Status.Reserved = make([]v1alpha1.QuotaReservation, 0, len(is.Reserved))
	if namespaces != nil {
		next.Status.Namespaces = namespaces
	}
	for _, r := range is.Reserved {
		next.Status.Reserved = append(next.Status.Reserved, v1alpha1.QuotaReservation{
			UID:     r.UID,
			Key:     r.Key,
			Expires: metav1.NewTime(r.Expires),
			Used:    r.Usage,
			After:   r.After,
		})
	}
	written, err := s.quotas.UpdateStatus(ctx, &next)
	if apierrors.IsConflict(err) {
		if written, err = s.quotas.Get(ctx, cache.NewObjectName("", was.Name)); err == nil {
			s.remember(written)
			return quota.ErrConflict
		}
	}
	if err != nil {
		return err
	}
	s.remember(written)
	return nil
}

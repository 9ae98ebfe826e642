package kubetenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var tenantQuotas = schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "tenantquotas"}

// byTenant is the index of quotas by their tenant.
const byTenant = "tenant"

// QuotaStore holds the quotas of a cluster, as [Quotas] does.
type QuotaStore interface {
	quota.Store
	// Ensure makes the quota of a tenant that has none, and brings one that was made so up to date.
	Ensure(ctx context.Context, id tenant.ID, hard corev1.ResourceList) error
	// DropDefaults takes away the quotas that Ensure made.
	DropDefaults(ctx context.Context) error
	// TenantOf returns the tenant that a quota is about, the zero ID for one that is not known.
	TenantOf(name string) tenant.ID
}

// mandatory is the store of a configuration that limits tenants without a quota too.
type mandatory struct {
	QuotaStore
	hard corev1.ResourceList
}

// Of implements [quota.Store].
func (m mandatory) Of(ctx context.Context, id tenant.ID) ([]*quota.State, error) {
	states, err := m.QuotaStore.Of(ctx, id)
	if err == nil && len(states) == 0 {
		states = []*quota.State{{Name: defaultQuotaName(id), Hard: m.hard}} // it is being made; nothing is known of what is used
	}
	return states, err
}

// unlimited is the store where there are no quotas.
type unlimited struct{}

// Of implements [quota.Store].
func (unlimited) Of(context.Context, tenant.ID) ([]*quota.State, error) { return nil, nil }

// Charge implements [quota.Store].
func (unlimited) Charge(context.Context, *quota.State, *quota.State) error { return nil }

// Taken implements [quota.Store].
func (unlimited) Taken(context.Context, tenant.ID) (bool, error) { return false, nil }

// quotaStore returns the store that a configuration asks for.
func (b *builder) quotaStore(c *v1alpha1.Quota) quota.Store {
	switch {
	case b.Quotas == nil || !*c.Enabled:
		return unlimited{}
	case len(c.Default) > 0:
		return mandatory{b.Quotas, c.Default}
	}
	return b.Quotas
}

// about returns the tenant that an object of our own kinds is about.
func (b *builder) about(resource schema.GroupResource, name string) tenant.ID {
	if b.Quotas == nil || resource != tenantQuotas.GroupResource() {
		return tenant.ID{}
	}
	return b.Quotas.TenantOf(name)
}

// Quotas are the TenantQuotas of a cluster.
type Quotas struct {
	client   dynamic.Interface
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// latest are the quotas that were written or read here and that the informer may not know yet.
	latest map[string]*unstructured.Unstructured
}

// NewQuotas returns the quotas that client sees while [Quotas.Run] runs.
func NewQuotas(client dynamic.Interface) (*Quotas, error) {
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(tenantQuotas).Informer()
	return &Quotas{client: client, informer: informer, latest: map[string]*unstructured.Unstructured{}},
		informer.AddIndexers(cache.Indexers{byTenant: func(obj any) ([]string, error) {
			u, is := obj.(*unstructured.Unstructured)
			if !is {
				return nil, nil
			}
			return []string{tenantOfQuota(u)}, nil
		}})
}

func tenantOfQuota(u *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(u.Object, "spec", "tenant")
	return name
}

// Run follows the quotas until ctx ends. Once per Quotas.
func (q *Quotas) Run(ctx context.Context) { q.informer.RunWithContext(ctx) }

// HasSynced reports whether the quotas of the start are known.
func (q *Quotas) HasSynced() bool { return q.informer.HasSynced() }

// TenantOf returns the tenant that a quota is about, the zero ID for one that is not known.
func (q *Quotas) TenantOf(name string) tenant.ID {
	obj, found, err := q.informer.GetStore().GetByKey(name)
	u, is := obj.(*unstructured.Unstructured)
	if err != nil || !found || !is {
		return tenant.ID{}
	}
	id, err := tenant.Parse(tenantOfQuota(u))
	if err != nil {
		return tenant.ID{}
	}
	return id
}

// newest returns the newer of what the informer knows and what was written here.
func (q *Quotas) newest(u *unstructured.Unstructured) *unstructured.Unstructured {
	q.mu.Lock()
	defer q.mu.Unlock()
	own, has := q.latest[u.GetName()]
	if !has {
		return u
	}
	if newer, err := resourceversion.CompareResourceVersion(own.GetResourceVersion(), u.GetResourceVersion()); err != nil || newer <= 0 || own.GetUID() != u.GetUID() {
		delete(q.latest, u.GetName())
		return u
	}
	return own
}

func (q *Quotas) remember(u *unstructured.Unstructured) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latest[u.GetName()] = u
}

// of returns the objects of a tenant.
func (q *Quotas) of(id string) ([]*unstructured.Unstructured, error) {
	if !q.HasSynced() {
		return nil, quota.ErrUnknown
	}
	objects, err := q.informer.GetIndexer().ByIndex(byTenant, id)
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, 0, len(objects))
	for _, obj := range objects {
		if u, is := obj.(*unstructured.Unstructured); is {
			out = append(out, q.newest(u))
		}
	}
	if slices.ContainsFunc(out, func(u *unstructured.Unstructured) bool { return !isDefault(u) }) {
		out = slices.DeleteFunc(out, isDefault) // it is over
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// isDefault reports whether a quota follows the configuration.
func isDefault(u *unstructured.Unstructured) bool {
	return u.GetLabels()[v1alpha1.DefaultQuotaLabel] == "true"
}

// Of implements [quota.Store].
func (q *Quotas) Of(_ context.Context, id tenant.ID) ([]*quota.State, error) {
	objects, err := q.of(id.String())
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	out := make([]*quota.State, 0, len(objects))
	for _, u := range objects {
		state, _, err := stateOf(u)
		if err != nil {
			return nil, err
		}
		out = append(out, state)
	}
	return out, nil
}

// Taken implements [quota.Store].
func (q *Quotas) Taken(_ context.Context, id tenant.ID) (bool, error) {
	objects, err := q.of(id.String())
	return slices.ContainsFunc(objects, func(u *unstructured.Unstructured) bool { return !isDefault(u) }), err
}

func stateOf(u *unstructured.Unstructured) (*quota.State, *v1alpha1.TenantQuota, error) {
	object := &v1alpha1.TenantQuota{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		return nil, nil, fmt.Errorf("quota %s: %w", u.GetName(), err)
	}
	state := &quota.State{Name: object.Name, Version: object.ResourceVersion, Hard: object.Spec.Hard, Used: object.Status.Used}
	for _, r := range object.Status.Reserved {
		state.Reserved = append(state.Reserved, quota.Reservation{UID: r.UID, Key: r.Key, Expires: r.Expires.Time, Usage: r.Used, After: r.After})
	}
	return state, object, nil
}

// Charge implements [quota.Store].
func (q *Quotas) Charge(ctx context.Context, was, is *quota.State) error {
	return q.write(ctx, was, is, nil)
}

// write stores a state in place of another. namespaces is nil where it was not counted.
func (q *Quotas) write(ctx context.Context, was, is *quota.State, namespaces []v1alpha1.NamespaceUsage) error {
	obj, found, err := q.informer.GetStore().GetByKey(was.Name)
	known, isObject := obj.(*unstructured.Unstructured)
	if err != nil || !found || !isObject {
		return quota.ErrConflict
	}
	u := q.newest(known)
	if u.GetResourceVersion() != was.Version {
		return quota.ErrConflict
	}
	_, object, err := stateOf(u)
	if err != nil {
		return err
	}
	object.Status.Used, object.Status.Reserved = is.Used, nil
	if namespaces != nil {
		object.Status.Namespaces = namespaces
	}
	for _, r := range is.Reserved {
		object.Status.Reserved = append(object.Status.Reserved, v1alpha1.QuotaReservation{UID: r.UID, Key: r.Key, Expires: metav1.NewTime(r.Expires), Used: r.Usage, After: r.After})
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object.Status)
	if err != nil {
		return err
	}
	next := u.DeepCopy()
	next.Object["status"] = status
	written, err := q.client.Resource(tenantQuotas).UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) {
		if written, err = q.client.Resource(tenantQuotas).Get(ctx, was.Name, metav1.GetOptions{}); err == nil {
			q.remember(written)
			return quota.ErrConflict
		}
	}
	if err != nil {
		return err
	}
	q.remember(written)
	return nil
}

// ensureEvery is how often it is looked whether every tenant has a quota.
const ensureEvery = time.Second

// EnsureQuotas makes the quotas of tenants that have none, where the configuration limits them too, and
// takes them away where it does not any more, until ctx ends. A tenant's writes wait for its quota.
func (s *Stack) EnsureQuotas(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		hard := s.current.Load().defaultQuota
		if s.quotas == nil {
			return
		}
		if len(hard) == 0 {
			if err := s.quotas.DropDefaults(ctx); err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "A default quota that is not wanted any more still limits its tenant")
			}
			return
		}
		all, err := s.namespaces.List(labels.Everything())
		seen := map[tenant.ID]bool{}
		for _, ns := range all {
			id, parseErr := tenant.Parse(ns.Labels[tenant.Label])
			if parseErr != nil || id.IsSystem() || seen[id] {
				continue
			}
			seen[id] = true
			err = errors.Join(err, s.quotas.Ensure(ctx, id, hard))
		}
		if err != nil && !errors.Is(err, quota.ErrUnknown) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Not every tenant has a quota: those without may create nothing that is limited")
		}
	}, ensureEvery)
}

// Ensure implements [QuotaStore].
func (q *Quotas) Ensure(ctx context.Context, id tenant.ID, hard corev1.ResourceList) error {
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
		name := defaultQuotaName(id)
		if _, taken, err := q.informer.GetStore().GetByKey(name); err != nil || taken {
			name = distinctQuotaName(id) // by a quota of another tenant
		}
		return q.apply(ctx, name, id, hard)
	}
	return nil
}

// DropDefaults implements [QuotaStore].
func (q *Quotas) DropDefaults(ctx context.Context) error {
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
func (q *Quotas) drop(ctx context.Context, u *unstructured.Unstructured) error {
	uid := u.GetUID()
	err := q.client.Resource(tenantQuotas).Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// apply writes a quota as the configuration has it.
func (q *Quotas) apply(ctx context.Context, name string, id tenant.ID, hard corev1.ResourceList) error {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.TenantQuotaSpec{Tenant: id.String(), Hard: hard})
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(tenantQuotas.GroupVersion().WithKind(v1alpha1.KindTenantQuota))
	u.SetName(name)
	u.SetLabels(map[string]string{v1alpha1.DefaultQuotaLabel: "true"})
	_, err = q.client.Resource(tenantQuotas).Apply(ctx, name, u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// defaultQuotaName is the tenant's name where that can be an object's, and else one that no other
// tenant's can be.
func defaultQuotaName(id tenant.ID) string {
	name := strings.ToLower(id.String())
	if name == id.String() && len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return distinctQuotaName(id)
}

func distinctQuotaName(id tenant.ID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(id.String())) + "." + hex.EncodeToString(sum[:4])
}

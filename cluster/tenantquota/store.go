// Package tenantquota holds the TenantQuotas of a cluster: what they allow, what is used and
// reserved of them, and the counting of what there is.
package tenantquota

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/listinformer"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// byTenant is the index of quotas by their tenant.
const byTenant = "tenant"

func tenantQuotas() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
}

// Store holds the TenantQuotas that a client sees. It implements [quota.Store].
type Store struct {
	client   dynamic.Interface
	informer cache.SharedIndexInformer
	changes  atomic.Uint64 // how often a quota has come, gone or got another spec

	mu sync.Mutex
	// latest are the quotas that were written or read here and that the informer may not know yet.
	latest map[string]*unstructured.Unstructured
}

// New returns the store of the quotas that client sees while [Store.Run] runs.
func New(client dynamic.Interface) (*Store, error) {
	informer := listinformer.New(client, tenantQuotas())
	q := &Store{client: client, informer: informer, latest: map[string]*unstructured.Unstructured{}}
	if err := informer.AddIndexers(cache.Indexers{byTenant: func(obj any) ([]string, error) {
		u, is := obj.(*unstructured.Unstructured)
		if !is {
			return nil, nil
		}
		return []string{tenantIn(u)}, nil
	}}); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(counted(&q.changes, sameSpec))
	return q, err
}

// sameSpec reports whether two states of a quota differ in no more than what is used.
func sameSpec(was, is any) bool {
	before, known := was.(*unstructured.Unstructured)
	now, knownNow := is.(*unstructured.Unstructured)
	return known && knownNow && before.GetUID() == now.GetUID() && isDefault(before) == isDefault(now) &&
		equality.Semantic.DeepEqual(before.Object["spec"], now.Object["spec"])
}

func tenantIn(u *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(u.Object, "spec", "tenant")
	return name
}

// Run follows the quotas until ctx ends. Once per Store.
func (q *Store) Run(ctx context.Context) { q.informer.RunWithContext(ctx) }

// HasSynced reports whether the quotas of the start are known.
func (q *Store) HasSynced() bool { return q.informer.HasSynced() }

// TenantOf returns the tenant that a quota is about, the zero ID for one that is not known.
func (q *Store) TenantOf(name string) tenant.ID {
	obj, found, err := q.informer.GetStore().GetByKey(name)
	u, is := obj.(*unstructured.Unstructured)
	if err != nil || !found || !is {
		return tenant.ID{}
	}
	id, err := tenant.Parse(tenantIn(u))
	if err != nil {
		return tenant.ID{}
	}
	return id
}

// NameOf returns the name of the one quota about a tenant, empty where there is none; false where
// there are several, and before they are known.
func (q *Store) NameOf(id tenant.ID) (string, bool) {
	objects, err := q.of(id.String())
	switch {
	case err != nil || len(objects) > 1:
		return "", false
	case len(objects) == 0:
		return "", true
	}
	return objects[0].GetName(), true
}

// newest returns the newer of what the informer knows and what was written here.
func (q *Store) newest(u *unstructured.Unstructured) *unstructured.Unstructured {
	q.mu.Lock()
	defer q.mu.Unlock()
	own, has := q.latest[u.GetName()]
	if !has {
		return u
	}
	newer, err := resourceversion.CompareResourceVersion(own.GetResourceVersion(), u.GetResourceVersion())
	if err != nil || newer <= 0 || own.GetUID() != u.GetUID() {
		delete(q.latest, u.GetName())
		return u
	}
	return own
}

func (q *Store) remember(u *unstructured.Unstructured) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latest[u.GetName()] = u
}

// of returns the objects of a tenant.
func (q *Store) of(id string) ([]*unstructured.Unstructured, error) {
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
func (q *Store) Of(_ context.Context, id tenant.ID) ([]*quota.State, error) {
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
func (q *Store) Taken(_ context.Context, id tenant.ID) (bool, error) {
	objects, err := q.of(id.String())
	return slices.ContainsFunc(objects, func(u *unstructured.Unstructured) bool { return !isDefault(u) }), err
}

func stateOf(u *unstructured.Unstructured) (*quota.State, *v1alpha1.TenantQuota, error) {
	object := &v1alpha1.TenantQuota{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		return nil, nil, fmt.Errorf("quota %s: %w", u.GetName(), err)
	}
	state := &quota.State{
		Name:    object.Name,
		Version: object.ResourceVersion,
		Hard:    object.Spec.Hard,
		Used:    object.Status.Used,
	}
	for _, r := range object.Status.Reserved {
		state.Reserved = append(state.Reserved, quota.Reservation{
			UID:     r.UID,
			Key:     r.Key,
			Expires: r.Expires.Time,
			Usage:   r.Used,
			After:   r.After,
		})
	}
	return state, object, nil
}

// Charge implements [quota.Store].
func (q *Store) Charge(ctx context.Context, was, is *quota.State) error {
	return q.write(ctx, was, is, nil)
}

// write stores a state in place of another. namespaces is nil where it was not counted.
func (q *Store) write(ctx context.Context, was, is *quota.State, namespaces []v1alpha1.NamespaceUsage) error {
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
		object.Status.Reserved = append(object.Status.Reserved, v1alpha1.QuotaReservation{
			UID:     r.UID,
			Key:     r.Key,
			Expires: metav1.NewTime(r.Expires),
			Used:    r.Usage,
			After:   r.After,
		})
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object.Status)
	if err != nil {
		return err
	}
	next := u.DeepCopy()
	next.Object["status"] = status
	written, err := q.client.Resource(tenantQuotas()).UpdateStatus(ctx, next,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if apierrors.IsConflict(err) {
		if written, err = q.client.Resource(tenantQuotas()).Get(ctx, was.Name, metav1.GetOptions{}); err == nil {
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

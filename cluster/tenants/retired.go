// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// retired stores the RetiredTenants.
type retired struct {
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
	changed      func(tenant.ID)

	isEmpty atomic.Bool // there are no RetiredTenants

	mu        sync.RWMutex
	ids       map[string]tenant.ID                   // keyed by the name of the RetiredTenant
	named     map[tenant.ID]map[string]retiredRecord // keyed by tenant ID and name of the RetiredTenant
	byID      map[tenant.ID][]tenant.Retired         // the deleted tenants, sorted by the end of their deletion
	takenBack map[tenant.ID]authz.Access             // the access after canceled deletions, omits [authz.AccessOpen]
}

// retiredRecord is the content of a RetiredTenant.
type retiredRecord struct {
	tenant.Retired
	takenBack bool         // the deletion was canceled
	access    authz.Access // the access of the tenant's callers after a canceled deletion
}

// newRetired returns a store of RetiredTenants. The store is empty until its informer runs. It
// calls changed with the tenant of each new RetiredTenant, and gone with the name of each deleted
// RetiredTenant. A deleted RetiredTenant applies until [retired.forget] is called.
func newRetired(client dynamic.Interface, changed func(tenant.ID), gone func(name string)) (*retired, error) {
	r := &retired{
		changed:   changed,
		ids:       map[string]tenant.ID{},
		named:     map[tenant.ID]map[string]retiredRecord{},
		byID:      map[tenant.ID][]tenant.Retired{},
		takenBack: map[tenant.ID]authz.Access{},
	}
	r.isEmpty.Store(true)
	var err error
	r.informer, err = typed.NewInformer(client, retiredResource(),
		func(one *v1alpha1.RetiredTenant) { one.Spec.References = nil })
	if err != nil {
		return nil, err
	}
	r.registration, err = r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.set,
		UpdateFunc: func(_, is any) { r.set(is) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				gone(name.Name)
			}
		},
	})
	return r, err
}

// set stores a RetiredTenant. If the RetiredTenant does not decode, an earlier version remains
// stored.
func (r *retired) set(obj any) {
	stored, err := typed.FromInformer[v1alpha1.RetiredTenant](obj)
	record := retiredRecord{}
	if err == nil {
		record.access, record.takenBack = TakenBackAccess(stored)
	}
	var id tenant.ID
	id, record.Retired, err = ReadRetired(stored, err)
	object, ok := obj.(metav1.Object)
	if err != nil || !ok {
		return
	}
	if invalid, ok := obj.(*typed.Invalid); ok {
		klog.Background().Error(invalid.Err, "Failed to decode a RetiredTenant", "name", invalid.Name)
		r.mu.RLock()
		_, known := r.ids[invalid.Name]
		r.mu.RUnlock()
		if known {
			return
		}
	}
	r.put(object.GetName(), id, record)
}

// put stores the record of the RetiredTenant with the given name. If the ID is zero, it removes the
// record.
func (r *retired) put(name string, id tenant.ID, record retiredRecord) {
	r.mu.Lock()
	was := r.ids[name]
	r.remove(name)
	if !id.IsZero() {
		if r.named[id] == nil {
			r.named[id] = map[string]retiredRecord{}
		}
		r.ids[name], r.named[id][name] = id, record
		r.rebuild(id)
	}
	r.isEmpty.Store(len(r.ids) == 0)
	r.mu.Unlock()
	if !id.IsZero() && was.IsZero() {
		r.changed(id)
	}
}

// remove removes the record of the RetiredTenant with the given name. The caller MUST hold mu.
func (r *retired) remove(name string) {
	if was, ok := r.ids[name]; ok {
		delete(r.named[was], name)
		delete(r.ids, name)
		r.rebuild(was)
	}
}

// rebuild updates byID and takenBack for a tenant. If several deletions were canceled, the newest
// record applies. If several records are equally new, the strictest record applies.
func (r *retired) rebuild(id tenant.ID) {
	if len(r.named[id]) == 0 {
		delete(r.named, id)
	}
	var ended []tenant.Retired
	var last retiredRecord
	for _, record := range r.named[id] {
		switch {
		case !record.takenBack:
			ended = append(ended, record.Retired)
		case !last.takenBack,
			record.DeletionBegan.After(last.DeletionBegan),
			record.DeletionBegan.Equal(last.DeletionBegan) && record.access < last.access:
			last = record
		}
	}
	delete(r.byID, id)
	if len(ended) > 0 {
		r.byID[id] = tenant.SortByDeletionEnd(ended)
	}
	delete(r.takenBack, id)
	if last.takenBack && last.access != authz.AccessOpen {
		r.takenBack[id] = last.access
	}
}

// limit returns the access to which a canceled deletion restricts callers of a tenant, or
// [authz.AccessOpen] if no canceled deletion restricts them.
func (r *retired) limit(id tenant.ID) authz.Access {
	if r.isEmpty.Load() {
		return authz.AccessOpen
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if access, limited := r.takenBack[id]; limited {
		return access
	}
	return authz.AccessOpen
}

// earlier returns the deleted tenants with the given ID.
func (r *retired) earlier(id tenant.ID) []tenant.Retired {
	if r.isEmpty.Load() {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byID[id]
}

// forget removes the record of a deleted RetiredTenant. It retains the record if the RetiredTenant
// is older than the definition, because the RetiredTenant was then deleted with an earlier
// definition. It also retains the record if the RetiredTenant was created again.
func (r *retired) forget(name string, definitionCreated metav1.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found, err := r.informer.GetStore().GetByKey(name)
	if err != nil || found || r.named[r.ids[name]][name].DeletionBegan.Before(definitionCreated.Time) {
		return
	}
	r.remove(name)
	r.isEmpty.Store(len(r.ids) == 0)
}

// since calls yield with the UID of each deleted tenant whose deletion began after at.
func (r *retired) since(at time.Time, yield func(uid string)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, all := range r.byID {
		for _, one := range all {
			if one.DeletionBegan.After(at) {
				yield(one.UID)
			}
		}
	}
}

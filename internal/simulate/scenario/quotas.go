// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// quotas contains the quotas of a scenario. It does not add new objects to the usage.
type quotas struct {
	held       objects
	namespaces corelisters.NamespaceLister
	states     map[string][]*quota.State // keyed by tenant
	tenants    map[string]tenant.ID      // keyed by the name of the quota
}

// quotasOf returns the quotas of a scenario with the usage of its objects.
func quotasOf(objs objects, namespaces corelisters.NamespaceLister, byDefault corev1.ResourceList) (*quotas, error) {
	q := &quotas{
		held:       objs,
		namespaces: namespaces,
		states:     map[string][]*quota.State{},
		tenants:    map[string]tenant.ID{},
	}
	for key, raw := range objs {
		if key[0] != v1alpha1.KindTenantQuota {
			continue
		}
		object := &v1alpha1.TenantQuota{}
		if err := json.Unmarshal(raw, object); err != nil {
			return nil, err
		}
		id, err := tenant.Parse(object.Spec.Tenant)
		if err != nil {
			return nil, err
		}
		q.tenants[object.Name] = id
		if err := q.add(id, object.Name, object.Spec.Hard); err != nil {
			return nil, err
		}
	}
	all, err := namespaces.List(labels.Everything())
	for _, ns := range all {
		id, parseErr := tenant.Parse(ns.Labels[tenant.Label])
		if parseErr == nil && !id.IsSystem() && len(byDefault) > 0 {
			err = errors.Join(err, q.ensure(id, byDefault))
		}
	}
	return q, err
}

func (q *quotas) add(id tenant.ID, name string, hard corev1.ResourceList) error {
	classes, err := q.Classes()
	if err != nil {
		return err
	}
	var counted []quota.CountedObject
	for _, raw := range q.held {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(raw, &u.Object); err != nil {
			return err
		}
		ns, err := q.namespaces.Get(u.GetNamespace())
		if err != nil || ns.Labels[tenant.Label] != id.String() {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		usage, err := quota.Usage(resource.GroupResource(), u, nil, time.Now())
		if err != nil {
			return err
		}
		counted = append(counted, quota.CountedObject{
			UID:       uuid.NewUUID(),
			Namespace: u.GetNamespace(),
			Usage:     classes.Extend(usage),
		})
	}
	var names []corev1.ResourceName
	for resource := range hard {
		names = append(names, resource)
	}
	state, _ := (&quota.State{Name: name, Hard: hard}).Recount(counted, func(types.UID) bool { return false },
		names, time.Now())
	q.states[id.String()] = append(q.states[id.String()], state)
	return nil
}

// Classes returns the DeviceClasses of the scenario, in the order of their names.
func (q *quotas) Classes() (quota.Classes, error) {
	var classes quota.Classes
	for key, raw := range q.held {
		if key[0] != "DeviceClass" {
			continue
		}
		class := &resourcev1.DeviceClass{}
		if err := json.Unmarshal(raw, class); err != nil {
			return nil, err
		}
		known := quota.Class{Name: class.Name}
		if class.Spec.ExtendedResourceName != nil {
			known.Extended = corev1.ResourceName(*class.Spec.ExtendedResourceName)
		}
		classes = append(classes, known)
	}
	slices.SortFunc(classes, func(a, b quota.Class) int { return strings.Compare(a.Name, b.Name) })
	return classes, nil
}

// States returns the quotas of a tenant. It implements [quota.Store].
func (q *quotas) States(_ context.Context, id tenant.ID) ([]*quota.State, error) {
	return q.states[id.String()], nil
}

// HasQuota implements quota.Store.
func (q *quotas) HasQuota(_ context.Context, id tenant.ID) (bool, error) {
	return slices.ContainsFunc(slices.Collect(maps.Values(q.tenants)), func(has tenant.ID) bool { return has == id }), nil
}

// Charge implements quota.Store.
func (q *quotas) Charge(context.Context, *quota.State, *quota.State) error { return nil }

// ensure adds the default quota for a tenant that has no quota.
func (q *quotas) ensure(id tenant.ID, hard corev1.ResourceList) error {
	if len(q.states[id.String()]) > 0 {
		return nil
	}
	return q.add(id, id.String(), hard)
}

// BelongsTo implements [lookup.Quotas].
func (q *quotas) BelongsTo(name string, id tenant.ID) bool {
	owner, exists := q.tenants[name]
	if !exists {
		return name == id.ObjectName()
	}
	return owner == id && !id.IsZero()
}

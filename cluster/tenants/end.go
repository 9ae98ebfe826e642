// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// retiredPrefix distinguishes the names of RetiredTenants from those of Tenants in the queue. The
// name of a Tenant contains no slash.
const retiredPrefix = "retired/"

// processDeletion handles the deletion of a Tenant or RetiredTenant. name is an item of the
// queue. If the object was deleted with its CustomResourceDefinition, the store retains it.
// Otherwise, the tenant ends or the store forgets the RetiredTenant.
func (s *Store) processDeletion(ctx context.Context, name string) error {
	retiredName, isRetired := strings.CutPrefix(name, retiredPrefix)
	of := resource()
	if isRetired {
		of = retiredResource()
	}
	definition, err := s.client.Resource(Definitions()).Get(ctx, of.GroupResource().String(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var defined *metav1.Time // nil if the kind is not defined, or its definition is being deleted
	if err == nil && definition.GetDeletionTimestamp() == nil {
		created := definition.GetCreationTimestamp()
		defined = &created
	}
	if isRetired {
		if defined != nil {
			s.retired.forget(retiredName, *defined)
		}
		return nil
	}
	id, was, now, err := s.endTenant(name, defined)
	if err == nil && was != now {
		s.stateChanged(id, was, now)
	}
	return err
}

// endTenant records that the Tenant with the given name is being deleted, or was deleted. It
// returns the states of the Tenant before and after the call. It retains the state if the Tenant
// was created again, or was deleted with its definition. defined is the creation time of the
// definition, or nil if the definition does not exist or is being deleted.
func (s *Store) endTenant(name string, defined *metav1.Time) (id tenant.ID, was, now *tenantState, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, was = s.entry(name)
	obj, found, err := s.informer.GetStore().GetByKey(name)
	if err != nil || was == nil {
		return id, was, was, err
	}
	if !found {
		if defined == nil || was.created.Before(defined) {
			return id, was, was, nil // the Tenant was deleted with its definition
		}
		s.put(name, id, nil)
		return id, was, nil, nil
	}
	object, _ := obj.(metav1.Object)
	if object == nil || object.GetDeletionTimestamp() == nil || object.GetUID() != was.uid {
		return id, was, was, nil // the Tenant was created again
	}
	changed := *was
	changed.ending = defined != nil && !was.created.Before(defined) // otherwise, the Tenant is deleted with its definition
	s.put(name, id, &changed)
	return id, was, &changed, nil
}

// hasBegunSince reports whether the deletion of a Tenant began after the given time.
func hasBegunSince(t *v1alpha1.Tenant, since time.Time) bool {
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionDeleting)
	return c != nil && c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(since)
}

// DeletionsSince returns the UIDs of the Tenants whose deletion began after the given time,
// including Tenants that no longer exist. It also returns the number of existing Tenants.
func (s *Store) DeletionsSince(since time.Time) (begun map[string]bool, total int) {
	begun = map[string]bool{}
	all := s.informer.GetStore().List()
	for _, obj := range all {
		if t, ok := obj.(*v1alpha1.Tenant); ok && t.DeletionTimestamp != nil && hasBegunSince(t, since) {
			begun[string(t.UID)] = true
		}
	}
	s.retired.since(since, func(uid string) { begun[uid] = true })
	return begun, len(all)
}

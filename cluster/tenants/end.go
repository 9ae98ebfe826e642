package tenants

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// look finds out why a Tenant goes, or is gone: not for its definition's sake it ends.
func (s *Store) look(ctx context.Context, name string) error {
	definition, err := s.client.Resource(Definitions()).Get(ctx, resource().GroupResource().String(), metav1.GetOptions{})
	isDefined := err == nil && definition.GetDeletionTimestamp() == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	created := metav1.Time{}
	if isDefined {
		created = definition.GetCreationTimestamp()
	}
	id, was, now, err := s.end(name, isDefined, created)
	if err == nil && was != now {
		s.changedTo(id, was, now)
	}
	return err
}

// end takes over that the Tenant of a name goes, or is gone, and returns what counted of it and what does now. One that was made anew
// meanwhile is another: nobody takes over anything between the look and that.
func (s *Store) end(name string, isDefined bool, created metav1.Time) (id tenant.ID, was, now *live, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, found, err := s.informer.GetStore().GetByKey(name)
	id, counted := s.named[name]
	was = s.live[id]
	if err != nil || !counted || was == nil {
		return id, was, was, err
	}
	switch u, _ := obj.(*unstructured.Unstructured); {
	case found && u != nil && u.GetDeletionTimestamp() != nil && u.GetUID() == was.uid:
		changed := *was
		changed.ending = isDefined
		s.live[id] = &changed
		return id, was, &changed, nil
	case found, !isDefined: // made anew, or gone with its definition
	case was.made.Before(&created): // it went with the definition before this one
	default:
		delete(s.live, id)
		delete(s.named, name)
		return id, was, nil, nil
	}
	return id, was, was, nil
}

// Ended returns which deletions of Tenants, by their UIDs, have begun, as far as they are not over or were since a time; and how
// many Tenants there are.
func (s *Store) Ended(since time.Time) (begun map[string]bool, total int) {
	begun = map[string]bool{}
	all := s.informer.GetStore().List()
	for _, obj := range all {
		u, is := obj.(*unstructured.Unstructured)
		if !is || u.GetDeletionTimestamp() == nil {
			continue
		}
		if t, err := v1alpha1.TenantOf(u); err == nil && meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionDeleting) {
			begun[string(u.GetUID())] = true
		}
	}
	s.retired.since(since, func(uid string) { begun[uid] = true })
	return begun, len(all)
}

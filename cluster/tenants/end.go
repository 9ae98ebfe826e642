package tenants

import (
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// retiredPrefix begins, in the queue, the names of RetiredTenants: those of Tenants hold no slash.
const retiredPrefix = "retired/"

// look finds out why a Tenant goes, or is gone: not for its definition's sake it ends.
func (s *Store) look(ctx context.Context, name string) error {
	retiredName, isRetired := strings.CutPrefix(name, retiredPrefix)
	of := resource()
	if isRetired {
		of = retiredResource()
	}
	definition, err := s.client.Resource(Definitions()).Get(ctx, of.GroupResource().String(), metav1.GetOptions{})
	isDefined := err == nil && definition.GetDeletionTimestamp() == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	created := metav1.Time{}
	if isDefined {
		created = definition.GetCreationTimestamp()
	}
	if isRetired {
		if isDefined {
			s.retired.forget(retiredName, created)
		}
		return nil
	}
	id, was, now, err := s.end(name, isDefined, created)
	if err == nil && was != now {
		s.changedTo(id, was, now)
	}
	return err
}

// end takes over that the Tenant of a name goes, or is gone, and returns what counted of it and
// what does now. One that was made anew meanwhile is another: nobody takes over anything
// between the look and that.
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
		changed.ending = isDefined && !was.made.Before(&created) // else it goes with the definition before this one
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

// hasBegunSince reports whether the condition Deleting of a Tenant is true since a time. There may
// be many: nothing is converted.
func hasBegunSince(u *unstructured.Unstructured, since time.Time) bool {
	conditions, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	list, _ := conditions.([]any)
	return slices.ContainsFunc(list, func(c any) bool {
		is, _ := c.(map[string]any)
		text, _ := is["lastTransitionTime"].(string)
		at, err := time.Parse(time.RFC3339, text)
		return err == nil && is["type"] == v1alpha1.ConditionDeleting && is["status"] == string(metav1.ConditionTrue) &&
			at.After(since)
	})
}

// Ended returns which deletions of Tenants, by their UIDs, have begun since a time; and
// how many Tenants there are.
func (s *Store) Ended(since time.Time) (begun map[string]bool, total int) {
	begun = map[string]bool{}
	all := s.informer.GetStore().List()
	for _, obj := range all {
		if u, is := obj.(*unstructured.Unstructured); is && u.GetDeletionTimestamp() != nil && hasBegunSince(u, since) {
			begun[string(u.GetUID())] = true
		}
	}
	s.retired.since(since, func(uid string) { begun[uid] = true })
	return begun, len(all)
}

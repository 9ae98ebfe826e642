// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// readInvalid returns the state of a Publication that does not decode or is invalid. It returns
// nil if the Publication is valid or does not exist. With this state, the Publication selects no
// namespace, and its copies remain unchanged.
func (p *publisher) readInvalid(name string) *published {
	of, why := p.engine.Tenants.InvalidPublication(name)
	if of == nil {
		return nil
	}
	return &published{
		publication: &publication.Publication{
			Name:       of.GetName(),
			UID:        of.GetUID(),
			Generation: of.GetGeneration(),
			Created:    of.GetCreationTimestamp().Time,
			Deleting:   of.GetDeletionTimestamp() != nil,
			Retained:   slices.Contains(of.GetFinalizers(), tenant.PublicationFinalizer),
		},
		invalid: true,
		reason:  v1alpha1.ReasonInvalid,
		message: why.Error() + ": its copies remain as they are. Fix the Publication, or delete it and its copies",
	}
}

// writeInvalid writes the condition of an invalid Publication. If the condition has changed, it
// also records an event. It does not decode the Publication.
func (p *publisher) writeInvalid(ctx context.Context, is *published) error {
	p.engine.Published.forget(is.publication.Name) // the numbers of copies are not known
	stored, err := p.getStored(ctx, is.publication)
	if stored == nil || err != nil || stored.GetGeneration() != is.publication.Generation {
		return err // the newer version of the Publication causes an event
	}
	c := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionFalse,
		Reason:             is.reason,
		Message:            tenants.ConditionMessage(is.message),
		ObservedGeneration: is.publication.Generation,
		LastTransitionTime: metav1.Now(),
	}
	if hasCondition(stored, &c) {
		return nil
	}
	klog.FromContext(ctx).Info("A Publication is invalid: its copies remain as they are until it is fixed or deleted",
		"publication", is.publication.Name, "err", is.message)
	p.engine.events.Event(v1alpha1.KindPublication, stored, corev1.EventTypeWarning, &c)
	err = p.patchStored(ctx, stored, map[string]any{"status": map[string]any{
		"observedGeneration": is.publication.Generation,
		"conditions":         []metav1.Condition{c},
	}}, "status")
	if apierrors.IsInvalid(err) {
		return nil // the event and the log contain the reason
	}
	return err
}

// hasCondition reports whether the status of a Publication already contains the given condition.
func hasCondition(stored *unstructured.Unstructured, c *metav1.Condition) bool {
	all, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
	return slices.ContainsFunc(all, func(of any) bool {
		is, _ := of.(map[string]any)
		return is["type"] == c.Type && is["reason"] == c.Reason && is["message"] == c.Message &&
			is["observedGeneration"] == c.ObservedGeneration
	})
}

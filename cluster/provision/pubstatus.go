package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// maxExamples is the number of namespaces that the status of a Publication names at most.
const maxExamples = 20

// PublicationMetrics are the metrics of Publications. Only the process that runs the engine sets
// them. The methods of nil do nothing.
type PublicationMetrics struct{ desired, current, failed, changed *metrics.GaugeVec }

// NewPublicationMetrics returns the metrics of Publications.
func NewPublicationMetrics() *PublicationMetrics {
	gauge := func(name, help string) *metrics.GaugeVec {
		return metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace:      "kubetenant",
			Subsystem:      "publication",
			Name:           name,
			Help:           help,
			StabilityLevel: metrics.ALPHA,
		}, []string{"publication"})
	}
	return &PublicationMetrics{
		desired: gauge("desired_copies", "Number of namespaces that a Publication selects."),
		current: gauge("current_copies", "Number of namespaces that have the current copy of a Publication."),
		failed: gauge("failed_copies",
			"Number of namespaces that lack the current copy of a Publication because of an error or a conflict."),
		changed: gauge("oldest_change_timestamp_seconds",
			"Time of the oldest change of a Publication or its source that not every namespace has, in seconds since the "+
				"Unix epoch, or 0 if there is none."),
	}
}

// Metrics returns the metrics to register.
func (m *PublicationMetrics) Metrics() []metrics.Registerable {
	return []metrics.Registerable{m.desired, m.current, m.failed, m.changed}
}

func (m *PublicationMetrics) set(name string, status *v1alpha1.PublicationStatus, since float64) {
	if m == nil {
		return
	}
	m.desired.WithLabelValues(name).Set(float64(status.Desired))
	m.current.WithLabelValues(name).Set(float64(status.Current))
	m.failed.WithLabelValues(name).Set(float64(status.Failed + status.Conflicts))
	m.changed.WithLabelValues(name).Set(since)
}

func (m *PublicationMetrics) forget(name string) {
	if m == nil {
		return
	}
	for _, gauge := range []*metrics.GaugeVec{m.desired, m.current, m.failed, m.changed} {
		gauge.DeleteLabelValues(name)
	}
}

// writeStatus writes the status of a Publication if it has changed.
func (p *publisher) writeStatus(ctx context.Context, name string) error {
	is := p.get(name)
	if is == nil || is.of.Deleting {
		return nil
	}
	stored, err := p.publications.Get(ctx, cache.ObjectName{Name: name})
	if apierrors.IsNotFound(err) || err == nil && (stored.UID != is.of.UID || stored.Generation != is.of.Generation) {
		return nil // the next event brings the other one
	}
	if err != nil {
		return err
	}
	status := p.statusOf(is, stored)
	pending := 0.0
	if status.Current < status.Desired {
		pending = float64(is.since.UnixNano()) / 1e9
	}
	p.e.Published.set(name, status, pending)
	if equality.Semantic.DeepEqual(status, &stored.Status) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return err
	}
	if len(status.Examples) == 0 {
		content["examples"] = nil // otherwise the merge patch keeps the old ones
	}
	if err := p.e.writes.wait(ctx, tenant.ID{}, adds); err != nil {
		return err
	}
	if _, err := p.publications.PatchRead(ctx, stored, map[string]any{"status": content}, "status"); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	p.record(stored, status)
	return nil
}

// statusOf returns the status that a Publication should have.
func (p *publisher) statusOf(is *published, stored *v1alpha1.Publication) *v1alpha1.PublicationStatus {
	status := &v1alpha1.PublicationStatus{
		ObservedGeneration: stored.Generation,
		Conditions:         slices.Clone(stored.Status.Conditions),
	}
	p.mu.RLock()
	refused := maps.Clone(p.refused[is.of.Name])
	p.mu.RUnlock()
	var failed []v1alpha1.PublicationExample
	p.each(is.of, func(ns *corev1.Namespace, gives *given) {
		status.Desired++
		switch err := refused[ns.Name]; {
		case is.content == nil:
		case err != nil:
			if errors.Is(err, errConflict) || errors.Is(err, errTaken) {
				status.Conflicts++
			} else {
				status.Failed++
			}
			failed = append(failed, v1alpha1.PublicationExample{
				Namespace: ns.Name,
				Message:   tenants.ConditionMessage(err.Error()),
			})
		case gives != nil && gives.isPrepared(ns):
			status.Current++
		}
	})
	slices.SortFunc(failed, func(a, b v1alpha1.PublicationExample) int { return cmp.Compare(a.Namespace, b.Namespace) })
	status.Examples = failed[:min(len(failed), maxExamples)]
	c := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: stored.Generation,
	}
	switch {
	case is.content == nil:
		c.Reason, c.Message = is.reason, is.message
	case status.Failed > 0:
		c.Reason, c.Message = v1alpha1.ReasonFailed,
			fmt.Sprintf("%d namespaces lack the copy: see status.examples", status.Failed)
	case status.Conflicts > 0:
		c.Reason, c.Message = v1alpha1.ReasonConflict, fmt.Sprintf("%d namespaces have another object of this kind and "+
			"name: delete it, or set spec.onConflict to Replace", status.Conflicts)
	case status.Current < status.Desired:
		c.Reason, c.Message = v1alpha1.ReasonPublishing,
			fmt.Sprintf("%d of %d namespaces have the current copy", status.Current, status.Desired)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonPublished,
			"every selected namespace has the current copy"
	}
	c.Message = tenants.ConditionMessage(c.Message)
	meta.SetStatusCondition(&status.Conditions, c)
	return status
}

// record records an event if the condition Ready has another reason than before.
func (p *publisher) record(stored *v1alpha1.Publication, status *v1alpha1.PublicationStatus) {
	was := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if was != nil && was.Reason == is.Reason || is.Reason == v1alpha1.ReasonPublishing {
		return
	}
	kind := corev1.EventTypeWarning
	if is.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	p.e.events.Say(v1alpha1.KindPublication, stored, kind, is)
}

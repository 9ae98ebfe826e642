// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// maxExamples is the maximum number of namespaces that the status of a Publication names.
const maxExamples = 20

// PublicationMetrics are the metrics about Publications. Only the process that runs the engine
// sets them. Updates of a nil PublicationMetrics have no effect.
type PublicationMetrics struct{ desired, current, failed, changed *metrics.GaugeVec }

// NewPublicationMetrics returns the metrics about Publications.
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

// markDirty records that the status of a Publication may be outdated, so that
// [publisher.writeStatuses] writes it.
func (p *publisher) markDirty(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty[name] = true
}

// writeStatuses writes the statuses of Publications that may be outdated. It iterates over the
// namespaces only once for all these Publications, because it is expensive to compute the state
// of a namespace.
func (p *publisher) writeStatuses(ctx context.Context) {
	p.mu.Lock()
	var all, invalid []*published
	for name := range p.dirty {
		is := p.known[name]
		if is == nil || is.publication.Deleting {
			continue
		}
		if is.invalid {
			invalid = append(invalid, is)
			continue
		}
		all = append(all, is)
	}
	p.dirty = map[string]bool{}
	p.mu.Unlock()
	for _, is := range invalid {
		p.handleWriteError(ctx, is, p.writeInvalid(ctx, is))
	}
	if len(all) == 0 {
		return
	}
	counts := p.count(all)
	for i, is := range all {
		p.handleWriteError(ctx, is, p.writeStatus(ctx, is, &counts[i]))
	}
}

// handleWriteError logs an error from writing a status, and marks the status for a retry. It does
// nothing if err is nil.
func (p *publisher) handleWriteError(ctx context.Context, is *published, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).Info("Failed to write the status of a Publication, will retry",
		"publication", is.publication.Name, "err", err)
	p.markDirty(is.publication.Name)
}

// count returns statuses that contain only the numbers of namespaces and the examples for the
// given Publications.
func (p *publisher) count(all []*published) []v1alpha1.PublicationStatus {
	type ofTenant struct {
		gives     *desiredState // nil if the content is not known
		selecting []int         // indexes of the Publications that select the tenant
	}
	out := make([]v1alpha1.PublicationStatus, len(all))
	refused, applied := make([]map[string]error, len(all)), make([]map[string]string, len(all))
	p.mu.RLock()
	for i, is := range all {
		refused[i], applied[i] = maps.Clone(p.refused[is.publication.Name]), maps.Clone(p.applied[is.publication.Name])
	}
	p.mu.RUnlock()
	namespaces, err := p.engine.lister.List(labels.Everything())
	if err != nil {
		return out
	}
	byTenant := map[tenant.ID]*ofTenant{}
	for _, ns := range namespaces {
		id := p.engine.OwnerOf(ns)
		if ns.DeletionTimestamp != nil || id.IsZero() || id.IsSystem() {
			continue
		}
		of := byTenant[id]
		if of == nil {
			of = &ofTenant{}
			for i, is := range all {
				if p.engine.Tenants.Selects(is.publication, id) {
					of.selecting = append(of.selecting, i)
				}
			}
			if len(of.selecting) > 0 {
				of.gives, _ = p.engine.desiredFor(context.Background(), id)
			}
			byTenant[id] = of
		}
		isPrepared := sync.OnceValue(func() bool { return of.gives != nil && of.gives.isPrepared(ns) })
		for _, i := range of.selecting {
			if of.gives == nil || all[i].publication.SelectsNamespace(ns.Name, of.gives.namespaceLabels) {
				isCurrent := func() bool {
					return all[i].content != nil && applied[i][ns.Name] == all[i].content.Hash || isPrepared()
				}
				countNamespace(&out[i], all[i], ns.Name, refused[i][ns.Name], isCurrent)
			}
		}
	}
	for i := range out {
		examples := out[i].Examples
		slices.SortFunc(examples, func(a, b v1alpha1.PublicationExample) int { return cmp.Compare(a.Namespace, b.Namespace) })
		out[i].Examples = examples[:min(len(examples), maxExamples)]
	}
	return out
}

// countNamespace adds a selected namespace to the numbers in the status of a Publication. refused
// is the error from the last attempt to write the copy, or nil.
func countNamespace(
	to *v1alpha1.PublicationStatus, is *published, namespace string, refused error, isCurrent func() bool,
) {
	to.Desired++
	switch {
	case is.content == nil:
		return
	case refused == nil:
		if isCurrent() {
			to.Current++
		}
		return
	case errors.Is(refused, errConflict), errors.Is(refused, errNameTaken):
		to.Conflicts++
	default:
		to.Failed++
	}
	to.Examples = append(to.Examples, v1alpha1.PublicationExample{
		Namespace: namespace,
		Message:   tenants.ConditionMessage(refused.Error()),
	})
}

// writeStatus writes the status of a Publication if it has changed.
func (p *publisher) writeStatus(ctx context.Context, is *published, status *v1alpha1.PublicationStatus) error {
	name := is.publication.Name
	stored, err := p.publications.Get(ctx, cache.ObjectName{Name: name})
	if apierrors.IsNotFound(err) ||
		err == nil && (stored.UID != is.publication.UID || stored.Generation != is.publication.Generation) {
		return nil // the newer version of the Publication causes an event
	}
	if err != nil {
		return err
	}
	status.ObservedGeneration = stored.Generation
	status.Conditions = slices.Clone(stored.Status.Conditions)
	meta.SetStatusCondition(&status.Conditions, conditionOf(is, status))
	pending := 0.0
	if status.Current < status.Desired {
		pending = float64(is.since.UnixNano()) / 1e9
	}
	p.engine.Published.set(name, status, pending)
	if equality.Semantic.DeepEqual(status, &stored.Status) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return err
	}
	if len(status.Examples) == 0 {
		content["examples"] = nil // otherwise, the merge patch would keep the old examples
	}
	if err := p.engine.writes.wait(ctx, tenant.ID{}, adds); err != nil {
		return err
	}
	if _, err := p.publications.PatchRead(ctx, stored, map[string]any{"status": content}, "status"); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	p.recordEvent(stored, status)
	return nil
}

// conditionOf returns the condition Ready of a Publication, based on the numbers in its status.
func conditionOf(is *published, status *v1alpha1.PublicationStatus) metav1.Condition {
	c := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: status.ObservedGeneration,
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
		c.Status = metav1.ConditionTrue
		c.Reason = v1alpha1.ReasonPublished
		c.Message = "every selected namespace has the current copy"
	}
	c.Message = tenants.ConditionMessage(c.Message)
	return c
}

// recordEvent records an event if the reason of the condition Ready has changed. It records no
// event while copies are being written.
func (p *publisher) recordEvent(stored *v1alpha1.Publication, status *v1alpha1.PublicationStatus) {
	was := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if was != nil && was.Reason == is.Reason || is.Reason == v1alpha1.ReasonPublishing {
		return
	}
	kind := corev1.EventTypeWarning
	if is.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	p.engine.events.Event(v1alpha1.KindPublication, stored, kind, is)
}

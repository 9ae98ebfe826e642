// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
)

// levelWithoutRecord is the Pod Security level that a Namespace gets when its Tenant no longer
// specifies a level and its earlier level is unknown. It is the default of
// admission.namespace.podSecurity.
const levelWithoutRecord = "baseline"

// label sets the labels that a Tenant specifies on a Namespace. It restores the earlier values of
// labels that the Tenant no longer specifies. [tenant.GivenLabelsAnnotation] records these labels
// and values. It is used instead of the field managers of the Namespace, because a tenant may
// write those. If the tenant has no Tenant, all labels remain.
//
// label reads the Namespace from the server before each attempt. A tenant that writes its Namespace
// continuously therefore cannot delay a label that restricts the tenant.
func (e *Engine) label(ctx context.Context, ns *corev1.Namespace, desired *desiredState) error {
	if labelsPatch(ns, desired) == nil {
		return nil
	}
	return retry.RetryOnConflict(conflictBackoff, func() error {
		if err := e.writes.wait(ctx, tenantOf(ns), revokes); err != nil {
			return err
		}
		live, err := e.Client.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
		if err != nil || live.UID != ns.UID || tenantOf(live) != tenantOf(ns) {
			return err // if the Namespace or its owner changed, an event queues the Namespace again
		}
		patch := labelsPatch(live, desired)
		if patch == nil {
			return nil
		}
		return e.sendPatch(ctx, live, patch)
	})
}

// conflictBackoff specifies how a write is retried after a conflict. The delays are short,
// because the object is read again right before each attempt.
var conflictBackoff = wait.Backoff{Steps: 20, Duration: time.Millisecond, Jitter: 1}

// labelsPatch returns a patch of metadata that sets the labels of a Namespace and
// [tenant.GivenLabelsAnnotation], or nil if no patch is needed. The patch fails with a conflict if
// the Namespace has changed since it was read.
func labelsPatch(ns *corev1.Namespace, desired *desiredState) map[string]any {
	if desired.isLabeled(ns) {
		return nil
	}
	recorded, _ := namespace.AddedLabelsOf(ns)
	next := namespace.AddedLabels{}
	labels := map[string]any{}
	for key, value := range desired.labels {
		before, ok := recorded[key]
		if !ok {
			before = valueBefore(ns, key, value)
		}
		next[key] = before
		isLevel := key == namespace.EnforceLabel
		if isLevel {
			next.SetLevel(value)
		}
		if ns.Labels[key] != value && (!isLevel || !recorded.HasStricterLevel(ns, value)) {
			labels[key] = value
		}
	}
	for key, before := range recorded.Labels() {
		_, ok := desired.labels[key]
		isKept := key == namespace.EnforceLabel && before != nil && recorded.HasStricterLevel(ns, *before)
		if !ok && !isKept {
			labels[key] = before
		}
	}
	if len(recorded)+len(next) == 0 {
		return nil // only the annotation is missing, and [Engine.markPrepared] writes it
	}
	annotations := map[string]any{tenant.GivenLabelsAnnotation: next.String()}
	if desired.hash(ns) == "" {
		annotations[tenant.GivenLabelsAnnotation] = nil
	}
	return map[string]any{
		"uid":             ns.UID,
		"resourceVersion": ns.ResourceVersion,
		"labels":          labels,
		"annotations":     annotations,
	}
}

// valueBefore returns the value that a label gets when the Tenant no longer specifies it, or nil
// if the label is then removed. If it is unknown which program set the present value, valueBefore
// assumes that the Tenant specified it.
func valueBefore(ns *corev1.Namespace, key, desired string) *string {
	value, exists := ns.Labels[key]
	_, recorded := namespace.AddedLabelsOf(ns)
	isOwn := recorded || value != desired && ns.Annotations[tenant.PreparedAnnotation] == ""
	switch {
	case !exists:
		return nil
	case isOwn:
		return &value
	case key == namespace.EnforceLabel:
		return new(levelWithoutRecord)
	}
	return nil
}

// isUnrecorded reports whether a Namespace that should have content lacks
// [tenant.GivenLabelsAnnotation], for example because an earlier release prepared it.
func (g *desiredState) isUnrecorded(ns *corev1.Namespace) bool {
	_, recorded := namespace.AddedLabelsOf(ns)
	return !recorded && g.hash(ns) != ""
}

// isLabeled reports whether a Namespace has the labels that its Tenant specifies, and whether its
// annotation records exactly these labels. The Pod Security level may be a stricter level that the
// tenant chose.
func (g *desiredState) isLabeled(ns *corev1.Namespace) bool {
	if g.uid == "" { // the labels of a former Tenant remain
		return true
	}
	recorded, _ := namespace.AddedLabelsOf(ns)
	if g.isUnrecorded(ns) || len(recorded.Labels()) != len(g.labels) {
		return false
	}
	for key, value := range g.labels {
		_, ok := recorded[key]
		isKept := key == namespace.EnforceLabel && recorded.HasStricterLevel(ns, value) && recorded.Level() == value
		if !ok || ns.Labels[key] != value && !isKept {
			return false
		}
	}
	return true
}

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

// levelWithoutRecord is the Pod Security level to which a Namespace returns if its level before the
// Tenant is unknown. It is the default of admission.namespace.podSecurity.
const levelWithoutRecord = "baseline"

// label sets the labels that a Tenant specifies. It returns those that the Tenant no longer
// specifies to the values that they had before. Both follow from [tenant.GivenLabelsAnnotation],
// not from the owners of fields, which a tenant may write. Without a Tenant, everything remains.
//
// It reads the live Namespace for each attempt: a tenant that writes its Namespace all the time
// must not delay a label that restricts it.
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
			return err // an event of the other Namespace, or of its owner, follows
		}
		patch := labelsPatch(live, desired)
		if patch == nil {
			return nil
		}
		return e.sendPatch(ctx, live, patch)
	})
}

// conflictBackoff retries a write that conflicts. The object is read again right before each attempt.
var conflictBackoff = wait.Backoff{Steps: 20, Duration: time.Millisecond, Jitter: 1}

// labelsPatch returns the metadata that gives a Namespace its labels and their record, or nil if
// the Namespace has both. The patch conflicts with any other change of the Namespace.
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
		return nil // only the record is missing, and mark writes it
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

// valueBefore returns the value to which a label returns when the Tenant no longer specifies it, or
// nil if the label is then removed. If the origin of the present value is unknown, the Tenant set
// it.
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

// isUnrecorded reports whether a Namespace with content of a Tenant has no record of its labels,
// for example because an earlier release prepared it.
func (g *desiredState) isUnrecorded(ns *corev1.Namespace) bool {
	_, recorded := namespace.AddedLabelsOf(ns)
	return !recorded && g.hash(ns) != ""
}

// isLabeled reports whether a Namespace has exactly the labels of its Tenant, and records them.
// The level may be a stricter one that the tenant chose.
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

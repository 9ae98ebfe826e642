// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Recorder records events about objects of the project's kinds and about
// CustomResourceDefinitions.
type Recorder struct{ recorder record.EventRecorder }

// NewRecorder returns a Recorder that writes events with client until stop is called.
func NewRecorder(ctx context.Context, client kubernetes.Interface) (r *Recorder, stop func()) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{
		Interface: client.CoreV1().Events(metav1.NamespaceDefault),
	})
	recorder := broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: v1alpha1.FieldManager})
	return &Recorder{recorder}, broadcaster.Shutdown
}

// DefinitionEvent records an event about the CustomResourceDefinition with the given name, which
// may be missing. kind is [corev1.EventTypeNormal] or [corev1.EventTypeWarning].
func (r *Recorder) DefinitionEvent(name, kind string, c *metav1.Condition) {
	r.recorder.Event(&corev1.ObjectReference{
		APIVersion: "apiextensions.k8s.io/v1",
		Kind:       "CustomResourceDefinition",
		Name:       name,
	}, kind, c.Reason, c.Message)
}

// Event records the reason and the message of a condition as an event about an object. kind is
// the kind of the object, which must be a kind of the project. level is [corev1.EventTypeNormal]
// or [corev1.EventTypeWarning].
func (r *Recorder) Event(kind string, object metav1.Object, level string, c *metav1.Condition) {
	r.recorder.Event(&corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion,
		Kind:       kind,
		Name:       object.GetName(),
		UID:        object.GetUID(),
	}, level, c.Reason, c.Message)
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package podsecurity runs the PodSecurity admission plugin of kube-apiserver in process, with the
// plugin's own library. It reads only the labels of namespaces. A server's AdmissionConfiguration
// may set other defaults and exemptions.
package podsecurity

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
	psadmission "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

const (
	// Name is the name of the plugin.
	Name = "PodSecurity"
	// LabelPrefix is the prefix of the labels that set the levels of a namespace.
	LabelPrefix = "pod-security.kubernetes.io/"
)

// Plugin is the PodSecurity admission plugin. Create it with [New]. It is safe for concurrent use.
type Plugin struct {
	*admission.Handler
	delegate *psadmission.Admission
}

// New returns the plugin with the default configuration of kube-apiserver. namespace returns a
// namespace with its labels, or an error if the namespace does not exist.
func New(namespace func(name string) (*corev1.Namespace, error)) (*Plugin, error) {
	config, err := load.LoadFromData(nil)
	if err != nil {
		return nil, err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	delegate := &psadmission.Admission{
		Configuration:    config,
		Evaluator:        evaluator,
		Metrics:          discard{},
		PodSpecExtractor: psadmission.DefaultPodSpecExtractor{},
		NamespaceGetter:  namespaces(namespace),
		PodLister:        noPods{},
	}
	if err := delegate.CompleteConfiguration(); err != nil {
		return nil, err
	}
	return &Plugin{admission.NewHandler(admission.Create, admission.Update), delegate}, delegate.ValidateConfiguration()
}

// Governs reports whether the plugin checks objects of a resource.
func (p *Plugin) Governs(r schema.GroupResource) bool {
	return r == corev1.Resource("namespaces") || p.delegate.PodSpecExtractor.HasPodSpec(r)
}

// Validate implements [admission.ValidationInterface]. Its error has the same message as the error
// of the server.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !p.Governs(a.GetResource().GroupResource()) {
		return nil
	}
	response := p.delegate.Validate(ctx, attributes{a})
	switch {
	case response.Allowed:
		return nil
	case response.Result != nil:
		return &apierrors.StatusError{ErrStatus: *response.Result}
	}
	return admission.NewForbidden(a, errors.New("not allowed by PodSecurity"))
}

// TemplateViolation returns why the Pods of a workload's template would be rejected, or "". The
// server accepts the workload itself. The server returns a warning only if the labels of the
// namespace request warnings.
func (p *Plugin) TemplateViolation(ctx context.Context, a admission.Attributes) string {
	resource := a.GetResource().GroupResource()
	isWorkload := p.Governs(resource) && resource != corev1.Resource("pods") && resource != corev1.Resource("namespaces")
	if !isWorkload || a.GetSubresource() != "" {
		return ""
	}
	namespace, err := p.delegate.NamespaceGetter.GetNamespace(ctx, a.GetNamespace())
	if err != nil {
		return ""
	}
	object, err := typed(a.GetObject())
	if err != nil {
		return ""
	}
	meta, spec, err := p.delegate.PodSpecExtractor.ExtractPodSpec(object)
	if err != nil || spec == nil {
		return ""
	}
	pod := withDefaults(&corev1.Pod{ObjectMeta: *meta, Spec: *spec})
	levels, _ := p.delegate.PolicyToEvaluate(namespace.Labels) // invalid labels mean restricted
	result := policy.AggregateCheckResults(p.delegate.Evaluator.EvaluatePod(levels.Enforce, &pod.ObjectMeta, &pod.Spec))
	if result.Allowed {
		return ""
	}
	return fmt.Sprintf("violates PodSecurity %q: %s", levels.Enforce, result.ForbiddenDetail())
}

// withDefaults returns a Pod with the only default that affects the checks. In a Pod with
// hostNetwork, the port of a container is a host port (k8s.io/kubernetes pkg/apis/core/v1,
// SetDefaults_Pod, v1.37.1).
func withDefaults(pod *corev1.Pod) *corev1.Pod {
	if !pod.Spec.HostNetwork {
		return pod
	}
	out := pod.DeepCopy()
	for _, containers := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if port := &containers[i].Ports[j]; port.HostPort == 0 {
					port.HostPort = port.ContainerPort
				}
			}
		}
	}
	return out
}

// typed converts an object to the type that the plugin's library expects.
func typed(object runtime.Object) (runtime.Object, error) {
	if u, untyped := object.(runtime.Unstructured); untyped {
		kind := u.GetObjectKind().GroupVersionKind()
		out, err := scheme.Scheme.New(kind)
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), out); err != nil {
			return nil, err
		}
		object = out
	}
	if pod, ok := object.(*corev1.Pod); ok {
		return withDefaults(pod), nil
	}
	return object, nil
}

// attributes converts the attributes of a write to the interface of the plugin's library.
type attributes struct{ admission.Attributes }

// GetOperation implements [api.Attributes].
func (a attributes) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(a.Attributes.GetOperation())
}

// GetObject implements [api.Attributes].
func (a attributes) GetObject() (runtime.Object, error) { return typed(a.Attributes.GetObject()) }

// GetOldObject implements [api.Attributes].
func (a attributes) GetOldObject() (runtime.Object, error) { return typed(a.Attributes.GetOldObject()) }

// GetUserName implements [api.Attributes].
func (a attributes) GetUserName() string { return a.GetUserInfo().GetName() }

type namespaces func(name string) (*corev1.Namespace, error)

// GetNamespace implements [psadmission.NamespaceGetter].
func (get namespaces) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	return get(name)
}

// noPods lists no Pods. The plugin lists the Pods of a namespace only for warnings.
type noPods struct{}

// ListPods implements [psadmission.PodLister].
func (noPods) ListPods(context.Context, string) ([]*corev1.Pod, error) { return nil, nil }

// discard records no metrics.
type discard struct{}

// RecordEvaluation implements [metrics.Recorder].
func (discard) RecordEvaluation(metrics.Decision, api.LevelVersion, metrics.Mode, api.Attributes) {}

// RecordExemption implements [metrics.Recorder].
func (discard) RecordExemption(api.Attributes) {}

// RecordError implements [metrics.Recorder].
func (discard) RecordError(bool, api.Attributes) {}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package status denies writes of the status of built-in objects by tenants' callers. Such a
// status belongs to a controller, and other components trust it. A Pod with a finished phase is
// not counted in a quota. The address of a Service receives traffic of other tenants
// (CVE-2020-8554). The scheduler reserves room on a nominated node. A StatefulSet creates Pods
// from the revision in its status.
package status

import (
	"context"
	"errors"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name is the name of the plugin.
const Name = "TenantStatus"

var errStatus = errors.New("tenants may not write the status of this resource: only its controller may")

// Resources returns the resources with a status that belongs to a controller (k8s.io/kubernetes,
// v1.37.1), in every version. A Job is included unless another controller manages it. Ingresses and
// custom resources are not included, because a tenant's own controllers may write their status.
func Resources() []schema.GroupResource {
	return []schema.GroupResource{
		pods,
		{Resource: "services"},
		{Resource: "persistentvolumeclaims"},
		{Resource: "replicationcontrollers"},
		{Resource: "resourcequotas"},
		{Group: "apps", Resource: "deployments"},
		{Group: "apps", Resource: "replicasets"},
		{Group: "apps", Resource: "statefulsets"},
		{Group: "apps", Resource: "daemonsets"},
		{Group: "batch", Resource: "cronjobs"},
		jobs,
		{Group: "autoscaling", Resource: "horizontalpodautoscalers"},
		{Group: "policy", Resource: "poddisruptionbudgets"},
		{Group: "resource.k8s.io", Resource: "resourceclaims"},
		{Group: "scheduling.k8s.io", Resource: "podgroups"},
		{Group: "scheduling.k8s.io", Resource: "compositepodgroups"},
	}
}

var (
	pods = schema.GroupResource{Resource: "pods"}
	jobs = schema.GroupResource{Group: "batch", Resource: "jobs"}
)

// Options configure the plugin. Subject is required.
type Options struct {
	Subject plugins.SubjectFunc
	// Allowed reports whether a tenant may write the status of a resource in spite of this rule. If
	// nil, no tenant may write it.
	Allowed func(tenant.ID, schema.GroupResource) bool
}

// New returns the plugin. It denies writes of the status of [Resources] by callers outside the
// system tenant. It allows changes of Pod conditions whose type has a domain, because these
// conditions belong to readiness gates.
func New(o Options) admission.ValidationInterface {
	return &plugin{admission.NewHandler(admission.Update), o, Resources()}
}

type plugin struct {
	*admission.Handler
	Options
	resources []schema.GroupResource
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if a.GetSubresource() != "status" || !slices.Contains(p.resources, resource) {
		return nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if caller.IsSystem() || p.Allowed != nil && p.Allowed(caller, resource) {
		return nil
	}
	allowed := false
	switch resource {
	case pods:
		allowed, err = changesOnlyGates(a, o)
	case jobs:
		allowed, err = isManagedElsewhere(a, o)
	}
	if err == nil && !allowed {
		err = errStatus
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// changesOnlyGates reports whether a write changes only Pod conditions whose type has a domain.
func changesOnlyGates(a admission.Attributes, o admission.ObjectInterfaces) (bool, error) {
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	old, err := plugins.Versioned[corev1.Pod](a.GetOldObject(), kind, o)
	if err != nil {
		return false, err
	}
	obj, err := plugins.Versioned[corev1.Pod](a.GetObject(), kind, o)
	if err != nil {
		return false, err
	}
	return equality.Semantic.DeepEqual(withoutGates(old), withoutGates(obj)), nil
}

func withoutGates(pod *corev1.Pod) *corev1.PodStatus {
	status := pod.Status
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c corev1.PodCondition) bool {
		return strings.Contains(string(c.Type), "/")
	})
	return &status
}

// isManagedElsewhere reports whether a controller other than the built-in one manages a Job
// (KEP-4368).
func isManagedElsewhere(a admission.Attributes, o admission.ObjectInterfaces) (bool, error) {
	old, err := plugins.Versioned[batchv1.Job](a.GetOldObject(), batchv1.SchemeGroupVersion.WithKind("Job"), o)
	if err != nil {
		return false, err
	}
	managedBy := old.Spec.ManagedBy
	return managedBy != nil && *managedBy != batchv1.JobControllerName, nil
}

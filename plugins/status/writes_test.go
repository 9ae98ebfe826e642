// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/status"
	"github.com/kubetenant/kubetenant/tenant"
)

// podWithStatus returns a Pod with a phase, and with conditions of the given types that are true.
func podWithStatus(phase corev1.PodPhase, types ...corev1.PodConditionType) *corev1.Pod {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
	for _, kind := range types {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	return pod
}

func jobManagedBy(by *string) *batchv1.Job { return &batchv1.Job{Spec: batchv1.JobSpec{ManagedBy: by}} }

// TestPodsAndJobs checks that a tenant may write the conditions for readiness gates of a Pod, and
// the status of a Job if the stored Job has another controller.
func TestPodsAndJobs(t *testing.T) {
	const gate = "example.com/gate"
	foreign := jobManagedBy(new("example.com/controller"))
	for name, c := range map[string]struct {
		resource string
		was, is  runtime.Object
		ok       bool
	}{
		"a gate": {"pods", podWithStatus("Running"), podWithStatus("Running", gate), true},
		"a removed gate": {
			"pods",
			podWithStatus("Running", "Ready", gate),
			podWithStatus("Running", "Ready"),
			true,
		},
		"a gate with other conditions": {
			"pods",
			podWithStatus("Running", "Ready"),
			podWithStatus("Running", gate, "Ready"),
			true,
		},
		"no change":                   {"pods", podWithStatus("Running", "Ready"), podWithStatus("Running", "Ready"), true},
		"a condition":                 {"pods", podWithStatus("Running"), podWithStatus("Running", "Ready"), false},
		"a removed condition":         {"pods", podWithStatus("Running", "Ready"), podWithStatus("Running"), false},
		"a gate and the phase":        {"pods", podWithStatus("Running"), podWithStatus("Succeeded", gate), false},
		"no old pod":                  {"pods", nil, podWithStatus("Running"), false},
		"no pod":                      {"pods", podWithStatus("Running"), nil, false},
		"a job":                       {"jobs.batch", jobManagedBy(nil), jobManagedBy(nil), false},
		"a job, built-in name":        {"jobs.batch", jobManagedBy(new(batchv1.JobControllerName)), foreign, false},
		"a job of another controller": {"jobs.batch", foreign, jobManagedBy(nil), true},
		"a job, reassigned":           {"jobs.batch", jobManagedBy(nil), foreign, false},
		"no old job":                  {"jobs.batch", nil, foreign, false},
		"another group's jobs":        {"jobs.example.com", jobManagedBy(nil), jobManagedBy(nil), true},
		"a node":                      {"nodes", &corev1.Node{}, &corev1.Node{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for caller, ok := range map[string]bool{"a": c.ok, "system": true} {
				if err := update(t, nil, caller, c.resource, c.was, c.is); (err == nil) != ok {
					t.Errorf("%s, by %s: %v", name, caller, err)
				}
			}
		})
	}
}

func update(
	t *testing.T, allowed func(tenant.ID, schema.GroupResource) bool, caller, resource string, old, obj runtime.Object,
) error {
	t.Helper()
	p := status.New(status.Options{
		Allowed: allowed,
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Parse(u.GetName()) },
	})
	if p.Handles(admission.Create) || !p.Handles(admission.Update) {
		t.Error("the plugin must handle only updates")
	}
	return p.Validate(t.Context(),
		admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{}, "a--web", "x",
			schema.ParseGroupResource(resource).WithVersion("v1"), "status",
			admission.Update, nil, false, &user.DefaultInfo{Name: caller}), nil)
}

// TestAllowed checks that Allowed decides for each tenant and each resource.
func TestAllowed(t *testing.T) {
	allowed := func(id tenant.ID, of schema.GroupResource) bool {
		return id.String() == "a" && of.Resource == "services"
	}
	for name, c := range map[string]struct {
		caller, resource string
		ok               bool
	}{
		"an allowed write":        {"a", "services", true},
		"another tenant":          {"b", "services", false},
		"another resource":        {"a", "pods", false},
		"a user without a tenant": {"A B", "services", false},
	} {
		t.Run(name, func(t *testing.T) {
			was := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
			if err := update(t, allowed, c.caller, c.resource, was, podWithStatus("Failed")); (err == nil) != c.ok {
				t.Errorf("%v, want allowed: %t", err, c.ok)
			}
		})
	}
}

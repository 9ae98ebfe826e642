// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/placement"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

func plugin(space *placement.TenantRules) plugins.Interface {
	return placement.New(placement.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner: func(_ context.Context, namespace string) (tenant.ID, error) {
			if namespace == "away" {
				id, _ := tenant.Parse("a")
				return id, errors.New("away")
			}
			return tenant.Parse("a")
		},
		Kinds:       workload.New(nil),
		TenantRules: func(tenant.ID) *placement.TenantRules { return space },
	})
}

func caller(id string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: "x", Groups: groups, Extra: map[string][]string{tenant.ExtraKey: {id}}}
}

func creating(obj runtime.Object, namespace string, u user.Info) admission.Attributes {
	return admission.NewAttributesRecord(obj, nil, corev1.SchemeGroupVersion.WithKind("Pod"), namespace, "p",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, u)
}

func on(node string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }

// TestOnlyKubeletsSetTheNode checks that only kubelets may set the node of a tenant's Pod.
// Membership in the group system:nodes does not suffice for callers outside the system tenant.
func TestOnlyKubeletsSetTheNode(t *testing.T) {
	p := plugin(&placement.TenantRules{})
	for name, c := range map[string]struct {
		by   user.Info
		held bool
	}{
		"a kubelet":                       {caller("system", user.NodesGroup), false},
		"the system tenant":               {caller("system"), true},
		"a tenant in the kubelets' group": {caller("a", user.NodesGroup), true},
		"no tenant, kubelets' group":      {&user.DefaultInfo{Name: "x", Groups: []string{user.NodesGroup}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Validate(t.Context(), creating(on("n"), "a--web", c.by), nil); (err != nil) != c.held {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestUnknownOwnersAreDenied checks that a write in a namespace with an unknown owner or of an
// invalid object is denied.
func TestUnknownOwnersAreDenied(t *testing.T) {
	p := plugin(&placement.TenantRules{Defaults: placement.Defaults{NodeSelector: map[string]string{"pool": "a"}}})
	for name, a := range map[string]admission.Attributes{
		"failed owner lookup": creating(on(""), "away", caller("a")),
		"no object":           creating(nil, "a--web", caller("a")),
		"another object": creating(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}},
			"a--web", caller("a")),
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Admit(t.Context(), a, nil); err == nil {
				t.Error("admitted")
			}
			if err := p.Validate(t.Context(), a, nil); err == nil {
				t.Error("valid")
			}
		})
	}
}

// TestDefaultsAreRequired checks that a Pod without the default node selector is denied, for
// example after a webhook removed it.
func TestDefaultsAreRequired(t *testing.T) {
	p := plugin(&placement.TenantRules{Defaults: placement.Defaults{
		NodeSelector: map[string]string{"pool": "a"},
		Tolerations:  []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}},
	}})
	pod := on("")
	a := creating(pod, "a--web", caller("a"))
	for range 2 { // the second call adds nothing
		if err := p.Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(pod.Spec.NodeSelector) != 1 || len(pod.Spec.Tolerations) != 1 {
		t.Errorf("%+v", pod.Spec)
	}
	if err := p.Validate(t.Context(), a, nil); err != nil {
		t.Error(err)
	}
	two := plugin(&placement.TenantRules{
		Defaults: placement.Defaults{NodeSelector: map[string]string{"zone": "z", "pool": "a"}},
	})
	if err := two.Validate(t.Context(), creating(on(""), "a--web", caller("a")), nil); err == nil ||
		!strings.Contains(err.Error(), "[spec.nodeSelector[pool]: must have") ||
		!strings.Contains(err.Error(), ", spec.nodeSelector[zone]: must have") {
		t.Errorf("two pools: %v", err)
	}
	delete(pod.Spec.NodeSelector, "pool")
	if err := p.Validate(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "spec.nodeSelector[pool]") {
		t.Error(err)
	}
}

// TestErrorsNameAllFields checks that an error names all denied fields in a fixed order.
func TestErrorsNameAllFields(t *testing.T) {
	term := []corev1.PodAffinityTerm{{Namespaces: []string{"b--web"}}}
	affinity := &corev1.Affinity{
		PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term},
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: affinity, NodeSelector: map[string]string{}}}
	for _, key := range []string{"d", "b", "e", "a", "c"} {
		pod.Spec.NodeSelector[key] = "x"
	}
	p := plugin(&placement.TenantRules{})
	for range 20 {
		err := p.Validate(t.Context(), creating(pod, "a--web", caller("a")), nil)
		if err == nil {
			t.Fatal("admitted")
		}
		rest := err.Error()
		for _, path := range []string{
			".podAffinity.", ".podAntiAffinity.", "Selector[a]", "Selector[b]", "Selector[c]", "Selector[d]", "Selector[e]",
		} {
			_, after, found := strings.Cut(rest, path)
			if !found {
				t.Fatalf("%s is not named, or not in order: %v", path, err)
			}
			rest = after
		}
	}
}

// TestErrorsContainTheAllowedValues checks that an error contains the values that the tenant's
// rules allow.
func TestErrorsContainTheAllowedValues(t *testing.T) {
	listed := plugins.Rule{Policy: plugins.AllowListed, Allowed: []string{"zone", "disk=ssd"}}
	anywhere := []corev1.PodAffinityTerm{{NamespaceSelector: &metav1.LabelSelector{}}}
	const affinity = "the pods of other namespaces: admission.placement.podAffinity allows none: " +
		"name own namespaces, or require the label kubetenant.dev/tenant: a"
	for name, c := range map[string]struct {
		rules plugins.Rules
		spec  corev1.PodSpec
		want  string
	}{
		"nothing is allowed": {
			nil,
			corev1.PodSpec{NodeName: "n"},
			"spec.nodeName: tenants may not choose the node of a pod: admission.placement.nodeName allows none",
		},
		"another key": {
			plugins.Rules{"nodeSelector": listed},
			corev1.PodSpec{NodeSelector: map[string]string{"disk": "hdd"}},
			"spec.nodeSelector[disk]: tenants may not choose the nodes of a pod: " +
				"admission.placement.nodeSelector allows zone, disk=ssd",
		},
		"a toleration without a key": {
			plugins.Rules{"tolerations": listed},
			tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}),
			"spec.tolerations[0]: tenants may not choose the taints that a pod tolerates: " +
				"no list allows a toleration without a key",
		},
		"all pods": {
			nil,
			corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: anywhere,
			}}},
			affinity,
		},
		"away from all pods": {
			nil,
			corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: anywhere,
			}}},
			affinity,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plugin(&placement.TenantRules{Rules: c.rules})
			err := p.Validate(t.Context(), creating(&corev1.Pod{Spec: c.spec}, "a--web", caller("a")), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestZeroRulesAllowNothing checks that a Pod with a node is denied if there are no rules.
func TestZeroRulesAllowNothing(t *testing.T) {
	p := plugin(&placement.TenantRules{})
	if err := p.Validate(t.Context(), creating(on("n"), "a--web", caller("a")), nil); err == nil {
		t.Error("valid")
	}
	if err := p.Validate(t.Context(), creating(on(""), "a--web", caller("a")), nil); err != nil {
		t.Error(err)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/placement"
	"github.com/kubetenant/kubetenant/tenant"
)

func onNodes(required, preferred []corev1.NodeSelectorTerm) corev1.PodSpec {
	a := &corev1.NodeAffinity{}
	if required != nil {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: required}
	}
	for _, term := range preferred {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Preference: term})
	}
	return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: a}}
}

func inZone(operator corev1.NodeSelectorOperator, values ...string) []corev1.NodeSelectorTerm {
	return []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: operator, Values: values}}},
	}
}

func fielded(key string, values ...string) []corev1.NodeSelectorTerm {
	return []corev1.NodeSelectorTerm{
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}},
	}
}

func tolerating(all ...corev1.Toleration) corev1.PodSpec { return corev1.PodSpec{Tolerations: all} }

func spread(keys ...string) (s corev1.PodSpec) {
	for _, key := range keys {
		s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, corev1.TopologySpreadConstraint{TopologyKey: key})
	}
	return s
}

// TestPodTopology checks that the topology keys of affinity and anti-affinity are checked by the
// rule for topologySpreadConstraints. An update that does not change the keys is allowed.
func TestPodTopology(t *testing.T) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution[0]",
		"preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm"
	for path, by := range map[string]func(key string) *corev1.Affinity{
		"podAffinity." + required: func(key string) *corev1.Affinity {
			return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}},
			}}
		},
		"podAffinity." + preferred: func(key string) *corev1.Affinity {
			return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key}},
				},
			}}
		},
		"podAntiAffinity." + required: func(key string) *corev1.Affinity {
			return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}},
			}}
		},
		"podAntiAffinity." + preferred: func(key string) *corev1.Affinity {
			return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key}},
				},
			}}
		},
	} {
		t.Run(path, func(t *testing.T) {
			zoned := func(key string) *appsv1.Deployment {
				d := deployment("")
				d.Spec.Template.Spec.Affinity = by(key)
				d.Spec.Template.Spec.TopologySpreadConstraints = spread("zone").TopologySpreadConstraints
				return d
			}
			p := plugin(&placement.TenantRules{
				Rules: plugins.Rules{"topologySpread": {Policy: plugins.AllowListed, Allowed: []string{"zone"}}},
			})
			for name, c := range map[string]struct {
				was, is *appsv1.Deployment
				refused bool
			}{
				"a listed key":                             {nil, zoned("zone"), false},
				"a key that is not listed":                 {nil, zoned("node-role.kubernetes.io/control-plane"), true},
				"an empty key":                             {nil, zoned(""), true},
				"a listed key replaced by another":         {zoned("zone"), zoned("rack"), true},
				"a retained key that is not listed":        {zoned("rack"), zoned("rack"), false},
				"an unlisted key replaced by a listed one": {zoned("rack"), zoned("zone"), false},
			} {
				t.Run(name, func(t *testing.T) {
					w := write{kind: "Deployment", obj: c.is}
					if c.was != nil {
						w.old = c.was
					}
					got := fmt.Sprint(p.Validate(t.Context(), w.attributes(), nil))
					want := "spec.template.spec.affinity." + path + ".topologyKey: "
					if c.refused && !strings.Contains(got, want) || !c.refused && got != "<nil>" {
						t.Error(got)
					}
				})
			}
		})
	}
}

// TestCheckedFields checks each field without a list and with a list. The error must contain the
// path of the field.
func TestCheckedFields(t *testing.T) {
	const in = corev1.NodeSelectorOpIn
	const required, preferred = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution." +
		"nodeSelectorTerms", "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
	for _, c := range []struct {
		name    string
		field   string
		spec    corev1.PodSpec
		refused string // the path in the error if nothing is allowed, or empty if the value is always allowed
		by, not string // entries of a list that allow the value, and entries that do not, separated by spaces
	}{
		{"a node's name", "nodeName", corev1.PodSpec{NodeName: "n"}, "spec.nodeName", "n", "m"},
		{
			"a node selector",
			"nodeSelector",
			corev1.PodSpec{NodeSelector: map[string]string{"zone": "x"}},
			"spec.nodeSelector[zone]",
			"zone zone=x",
			"zone=y x",
		},
		{
			"required node affinity",
			"nodeAffinity", onNodes(inZone(in, "x"), nil), required + "[0].matchExpressions[0]", "zone zone=x", "zone=y x",
		},
		{
			"preferred node affinity",
			"nodeAffinity",
			onNodes(nil, inZone(in, "x")),
			preferred + "[0].preference.matchExpressions[0]",
			"zone zone=x",
			"zone=y",
		},
		{
			"node affinity by a field",
			"nodeAffinity",
			onNodes(fielded("metadata.name", "n"), nil),
			required + "[0].matchFields[0]",
			"metadata.name metadata.name=n",
			"n",
		},
		{
			"node affinity to two values",
			"nodeAffinity", onNodes(inZone(in, "x", "y"), nil), required + "[0].matchExpressions[0]", "zone", "zone=x",
		},
		{
			"node affinity that excludes a value",
			"nodeAffinity",
			onNodes(inZone(corev1.NodeSelectorOpNotIn, "x"), nil),
			required + "[0].matchExpressions[0]",
			"zone",
			"zone=x",
		},
		{
			"node affinity without a value",
			"nodeAffinity", onNodes(inZone(in), nil), required + "[0].matchExpressions[0]", "zone", "zone=",
		},
		{
			"node affinity to any value",
			"nodeAffinity",
			onNodes(inZone(corev1.NodeSelectorOpExists), nil),
			required + "[0].matchExpressions[0]",
			"zone",
			"zone=",
		},
		{"empty node affinity", "nodeAffinity", onNodes(nil, nil), "", "", ""},
		{"empty affinity", "nodeAffinity", corev1.PodSpec{Affinity: &corev1.Affinity{}}, "", "", ""},
		{
			"a toleration of a value",
			"tolerations",
			tolerating(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "a"}),
			"spec.tolerations[0]",
			"gpu gpu=a",
			"gpu=b",
		},
		{
			"a toleration without an operator",
			"tolerations", tolerating(corev1.Toleration{Key: "gpu", Value: "a"}), "spec.tolerations[0]", "gpu gpu=a", "gpu=b",
		},
		{
			"a toleration of any value",
			"tolerations",
			tolerating(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}),
			"spec.tolerations[0]",
			"gpu",
			"gpu= gpu=a",
		},
		{
			"a toleration of all taints",
			"tolerations",
			tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}),
			"spec.tolerations[0]",
			"",
			"gpu",
		},
		{
			"the default toleration of nodes that are not ready",
			"tolerations",
			tolerating(corev1.Toleration{
				Key:      corev1.TaintNodeNotReady,
				Operator: corev1.TolerationOpExists,
				Effect:   corev1.TaintEffectNoExecute,
			}),
			"",
			"",
			"",
		},
		{
			"the default toleration of unreachable nodes",
			"tolerations",
			tolerating(corev1.Toleration{
				Key:      corev1.TaintNodeUnreachable,
				Operator: corev1.TolerationOpExists,
				Effect:   corev1.TaintEffectNoExecute,
			}),
			"",
			"",
			"",
		},
		{
			"a toleration of unreachable nodes with another effect",
			"tolerations",
			tolerating(corev1.Toleration{
				Key:      corev1.TaintNodeUnreachable,
				Operator: corev1.TolerationOpExists,
				Effect:   corev1.TaintEffectNoSchedule,
			}),
			"spec.tolerations[0]",
			corev1.TaintNodeUnreachable,
			"gpu",
		},
		{
			"a toleration of nodes that are not ready with another operator",
			"tolerations",
			tolerating(corev1.Toleration{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}),
			"spec.tolerations[0]",
			corev1.TaintNodeNotReady,
			"gpu",
		},
		{
			"a toleration of one effect",
			"tolerations",
			tolerating(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}),
			"spec.tolerations[0]",
			"gpu",
			"x",
		},
		{
			"a topology key",
			"topologySpread", spread("zone"), "spec.topologySpreadConstraints[0].topologyKey", "zone", "host",
		},
		{
			"two topology keys",
			"topologySpread", spread("zone", "zone"), "spec.topologySpreadConstraints[1].topologyKey", "zone", "host",
		},
		{
			"a runtime class",
			"runtimeClassName",
			corev1.PodSpec{RuntimeClassName: new("kata")},
			"spec.runtimeClassName", "kata", "runc",
		},
		{"an empty runtime class", "runtimeClassName", corev1.PodSpec{RuntimeClassName: new("")}, "", "", ""},
		{
			"a priority class",
			"priorityClassName",
			corev1.PodSpec{PriorityClassName: "high"},
			"spec.priorityClassName", "high", "low",
		},
		{
			"a scheduler",
			"schedulerName",
			corev1.PodSpec{SchedulerName: "own"},
			"spec.schedulerName", "own", "default-scheduler",
		},
		{"the default scheduler", "schedulerName", corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName}, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: c.spec}
			says := func(rule plugins.Rule) string {
				err := plugin(&placement.TenantRules{Rules: plugins.Rules{c.field: rule}}).Validate(t.Context(),
					creating(pod, "a--web", caller("a")), nil)
				return fmt.Sprint(err)
			}
			if got := says(plugins.Rule{}); (got == "<nil>") != (c.refused == "") ||
				!strings.Contains(got, c.refused+": tenants may not choose ") && c.refused != "" {
				t.Errorf("%s, want %s", got, c.refused)
			}
			if got := says(plugins.Rule{Policy: plugins.Ignore}); got != "<nil>" {
				t.Errorf("ignored: %s", got)
			}
			for _, entry := range strings.Fields(c.by) {
				if got := says(plugins.Rule{Policy: plugins.AllowListed, Allowed: []string{"else", entry}}); got != "<nil>" {
					t.Errorf("by %s: %s", entry, got)
				}
			}
			if got := says(plugins.Rule{
				Policy:  plugins.AllowListed,
				Allowed: append([]string{""}, strings.Fields(c.not)...),
			}); (got == "<nil>") != (c.refused == "") {
				t.Errorf("by %s: %s", c.not, got)
			}
		})
	}
}

// TestAffinityNamespaces checks that affinity may refer only to the tenant's own namespaces, by
// name or by a selector for the tenant's label.
func TestAffinityNamespaces(t *testing.T) {
	anyTopology := &placement.TenantRules{Rules: plugins.Rules{"topologySpread": {Policy: plugins.Ignore}}}
	type terms = []corev1.PodAffinityTerm
	by := func(id string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{tenant.Label: id, "x": "y"}}
	}
	one := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "x", Operator: metav1.LabelSelectorOpExists}, {Key: key, Operator: operator, Values: values},
			},
		}
	}
	for name, c := range map[string]struct {
		term    corev1.PodAffinityTerm
		refused string // the end of the path
	}{
		"no namespace":                        {corev1.PodAffinityTerm{}, ""},
		"the pod's own namespace":             {corev1.PodAffinityTerm{Namespaces: []string{"a--web"}}, ""},
		"another own namespace":               {corev1.PodAffinityTerm{Namespaces: []string{"a--web", "a--db"}}, ""},
		"a missing namespace":                 {corev1.PodAffinityTerm{Namespaces: []string{"a--gone"}}, ".namespaces[0]"},
		"a failed lookup":                     {corev1.PodAffinityTerm{Namespaces: []string{"a--away"}}, ".namespaces[0]"},
		"an own namespace without the prefix": {corev1.PodAffinityTerm{Namespaces: []string{"free"}}, ".namespaces[0]"},
		"another tenant's with the prefix":    {corev1.PodAffinityTerm{Namespaces: []string{"a--lent"}}, ".namespaces[0]"},
		"another tenant's": {
			corev1.PodAffinityTerm{Namespaces: []string{"a--web", "b--web"}}, ".namespaces[1]",
		},
		"all namespaces":     {corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}, ".namespaceSelector"},
		"the tenant's label": {corev1.PodAffinityTerm{NamespaceSelector: by("a")}, ""},
		"another's label":    {corev1.PodAffinityTerm{NamespaceSelector: by("b")}, ".namespaceSelector"},
		"In with the tenant": {
			corev1.PodAffinityTerm{NamespaceSelector: one(tenant.Label, metav1.LabelSelectorOpIn, "a")}, "",
		},
		"In with another tenant": {
			corev1.PodAffinityTerm{NamespaceSelector: one(tenant.Label, metav1.LabelSelectorOpIn, "b")}, ".namespaceSelector",
		},
		"In with both tenants": {
			corev1.PodAffinityTerm{NamespaceSelector: one(tenant.Label, metav1.LabelSelectorOpIn, "a", "b")},
			".namespaceSelector",
		},
		"NotIn with the tenant": {
			corev1.PodAffinityTerm{NamespaceSelector: one(tenant.Label, metav1.LabelSelectorOpNotIn, "a")}, ".namespaceSelector",
		},
		"In on another label": {
			corev1.PodAffinityTerm{NamespaceSelector: one("team", metav1.LabelSelectorOpIn, "a")}, ".namespaceSelector",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for path, a := range map[string]*corev1.Affinity{
				"podAffinity.required": {
					PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms{c.term}},
				},
				"podAffinity.preferred": {
					PodAffinity: &corev1.PodAffinity{
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: c.term}},
					},
				},
				"podAntiAffinity.required": {
					PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms{c.term}},
				},
				"podAntiAffinity.preferred": {
					PodAntiAffinity: &corev1.PodAntiAffinity{
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: c.term}},
					},
				},
			} {
				t.Run(path, func(t *testing.T) {
					pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: a}}
					got := fmt.Sprint(newPlugin(anyTopology).Validate(t.Context(), creating(pod, "a--web", caller("a")), nil))
					if want := c.refused; (got == "<nil>") != (want == "") ||
						want != "" && (!strings.Contains(got, "spec.affinity."+path) || !strings.Contains(got, want+":")) {
						t.Error(got)
					}
				})
			}
			pod := &corev1.Pod{
				Spec: corev1.PodSpec{
					Affinity: &corev1.Affinity{
						PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms{c.term}},
					},
				},
			}
			if err := plugin(anyTopology).Validate(t.Context(),
				creating(pod, "a--web", caller("a")), nil); (err == nil) != (c.refused == "" && name != "another own namespace") {
				t.Errorf("without ReferencedOwner: %v", err)
			}
		})
	}
}

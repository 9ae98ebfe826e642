// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/placement"
)

// choices contains functions that set a checked field of a Pod to a value that no list allows. The
// name of the node is not included.
var choices = map[string]func(*corev1.PodSpec){
	"nodeSelector": func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"pool": "b"} },
	"affinity.nodeAffinity": func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key:      "pool",
						Operator: corev1.NodeSelectorOpIn,
						Values:   []string{"b"},
					}},
				}},
			},
		}}
	},
	"tolerations": func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	},
	"topologySpreadConstraints": func(s *corev1.PodSpec) {
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "rack"}}
	},
	"runtimeClassName":  func(s *corev1.PodSpec) { s.RuntimeClassName = new("gvisor") },
	"priorityClassName": func(s *corev1.PodSpec) { s.PriorityClassName = "high" },
	"schedulerName":     func(s *corev1.PodSpec) { s.SchedulerName = "mine" },
	"affinity.podAntiAffinity": func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "kubernetes.io/hostname",
				Namespaces:  []string{"b--web"},
			}},
		}}
	},
}

// requestedWrite is a write. old is the stored object, obj is the object that the client sent, and
// final is the object after the cluster's changes.
type requestedWrite struct {
	kind            string
	old, obj, final runtime.Object
	// records is how often the server records the object. The second record contains the cluster's
	// changes.
	records int
}

// refusal returns the error of a write, or "" if the write is admitted.
func (s requestedWrite) refusal(t *testing.T) string {
	t.Helper()
	p := newPlugin(&placement.TenantRules{Rules: plugins.Rules{
		"nodeSelector": {Policy: plugins.AllowListed, Allowed: []string{"zone"}},
		"tolerations":  {Policy: plugins.AllowListed, Allowed: []string{"spot"}},
	}})
	ctx := plugins.WithRequested(t.Context())
	final := write{kind: s.kind, obj: s.final, old: s.old}.attributes()
	if s.records > 0 {
		plugins.RecordRequested(ctx, write{kind: s.kind, obj: s.obj, old: s.old}.attributes(), runtime.Object.DeepCopyObject)
	}
	if s.records > 1 {
		plugins.RecordRequested(ctx, final, runtime.Object.DeepCopyObject)
	}
	if err := p.Validate(ctx, final, nil); err != nil {
		return err.Error()
	}
	return ""
}

func podOf(changes ...func(*corev1.PodSpec)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	for _, change := range changes {
		change(&pod.Spec)
	}
	return pod
}

func deploymentOf(changes ...func(*corev1.PodSpec)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	for _, change := range changes {
		change(&d.Spec.Template.Spec)
	}
	return d
}

// TestOnlyClientValuesAreDenied checks, for each field, that a value that the cluster added is
// allowed. A value that the client sent is denied, even if the cluster replaced it afterwards.
func TestOnlyClientValuesAreDenied(t *testing.T) {
	rewrite := func(s *corev1.PodSpec) { // sets each field to another value that no list allows
		for _, set := range choices {
			set(s)
		}
		s.NodeSelector = map[string]string{"pool": "c"}
		s.Tolerations = []corev1.Toleration{{Key: "other"}}
		s.RuntimeClassName, s.PriorityClassName, s.SchedulerName = new("kata"), "low", "yours"
	}
	for field, set := range choices {
		for name, c := range map[string]struct {
			kind           string
			was, is, final runtime.Object
			refused        bool
		}{
			"a pod, added by the cluster":      {"Pod", nil, podOf(), podOf(set), false},
			"a pod, sent":                      {"Pod", nil, podOf(set), podOf(set), true},
			"a pod, sent and rewritten":        {"Pod", nil, podOf(set), podOf(set, rewrite), true},
			"a pod, sent and removed":          {"Pod", nil, podOf(set), podOf(), false},
			"a pod, updated by the cluster":    {"Pod", podOf(), podOf(), podOf(set), false},
			"a pod, updated":                   {"Pod", podOf(), podOf(set), podOf(set), true},
			"a pod, unchanged":                 {"Pod", podOf(set), podOf(set), podOf(set), false},
			"a pod, omitted and restored":      {"Pod", podOf(set), podOf(), podOf(set), false},
			"a template, added by the cluster": {"Deployment", nil, deploymentOf(), deploymentOf(set), false},
			"a template, sent":                 {"Deployment", nil, deploymentOf(set), deploymentOf(set), true},
			"a template, updated": {
				"Deployment", deploymentOf(), deploymentOf(set), deploymentOf(set), true,
			},
			"a template, unchanged and rewritten": {
				"Deployment", deploymentOf(set), deploymentOf(set), deploymentOf(rewrite), false,
			},
		} {
			t.Run(name, func(t *testing.T) {
				got := requestedWrite{c.kind, c.was, c.is, c.final, 1}.refusal(t)
				if (got != "") != c.refused || c.refused && !strings.Contains(got, "spec."+field) {
					t.Errorf("%s, %s: %q", field, name, got)
				}
			})
		}
	}
}

// TestUpdatesMayRetainClusterValues checks updates of a field whose values the cluster set. An
// unchanged element is allowed, and a new element is denied.
func TestUpdatesMayRetainClusterValues(t *testing.T) {
	toleration := func(of ...corev1.Toleration) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Tolerations = of }
	}
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	spot := corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists}
	everywhere, forever := gpu, gpu
	everywhere.Effect, forever.Effect = "", corev1.TaintEffectNoExecute
	selector := func(of map[string]string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.NodeSelector = of }
	}
	term := func(values ...string) corev1.NodeSelectorTerm {
		var t corev1.NodeSelectorTerm
		for _, value := range values {
			key, value, _ := strings.Cut(value, "=")
			t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{
				Key:      key,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{value},
			})
		}
		return t
	}
	affinity := func(of ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: of},
			}}
		}
	}
	spread := func(of ...corev1.TopologySpreadConstraint) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.TopologySpreadConstraints = of }
	}
	rack := corev1.TopologySpreadConstraint{TopologyKey: "rack", MaxSkew: 1}
	type labels = map[string]string
	for name, c := range map[string]struct {
		was, is func(*corev1.PodSpec)
		refused string
	}{
		"an allowed toleration added": {toleration(gpu), toleration(spot, gpu), ""},
		"removed":                     {toleration(spot, gpu), toleration(spot), ""},
		"another effect":              {toleration(gpu), toleration(gpu, forever), "tolerations[1]"},
		"all effects":                 {toleration(gpu), toleration(everywhere), "tolerations[0]"},
		"a denied toleration added":   {toleration(gpu), toleration(gpu, corev1.Toleration{Key: "x"}), "tolerations[1]"},
		"an allowed label added":      {selector(labels{"pool": "b"}), selector(labels{"pool": "b", "zone": "x"}), ""},
		"another value": {
			selector(labels{"pool": "b"}), selector(labels{"pool": "c", "zone": "x"}), "nodeSelector[pool]",
		},
		"denied label": {selector(labels{"pool": "b"}), selector(labels{"pool": "b", "tier": "b"}), "nodeSelector[tier]"},
		"the same terms in another order": {
			affinity(term("pool=b"), term("pool=c")), affinity(term("pool=c"), term("pool=b")), "",
		},
		"one of two terms": {affinity(term("pool=b"), term("pool=c")), affinity(term("pool=c")), ""},
		"a shorter term": {
			affinity(term("pool=b", "tier=x")), affinity(term("tier=x")), "nodeSelectorTerms[0].matchExpressions[0]",
		},
		"a term added": {
			affinity(term("pool=b")), affinity(term("pool=b"), term("pool=c")), "nodeSelectorTerms[1]",
		},
		"a constraint repeated": {spread(rack), spread(rack, rack), ""},
		"a constraint changed": {
			spread(rack), spread(rack, corev1.TopologySpreadConstraint{TopologyKey: "rack", MaxSkew: 2}),
			"topologySpreadConstraints[1]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, records := range []int{0, 1} {
				is := deploymentOf(c.is)
				got := requestedWrite{"Deployment", deploymentOf(c.was), is, is, records}.refusal(t)
				if (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) {
					t.Errorf("%s, %d records: %q, want %q", name, records, got, c.refused)
				}
			}
		})
	}
}

// TestFinalValuesAreChecked checks values that are denied even if the client did not send them.
func TestFinalValuesAreChecked(t *testing.T) {
	selected := choices["nodeSelector"]
	node := func(s *corev1.PodSpec) { s.NodeName = "m" }
	got := (requestedWrite{"Pod", nil, podOf(), podOf(node, selected), 1}).refusal(t)
	if !strings.Contains(got, "spec.nodeName") || strings.Contains(got, "nodeSelector") {
		t.Errorf("the name of a node: %q", got)
	}
	if got := (requestedWrite{"Pod", nil, podOf(), podOf(selected), 2}).refusal(t); got == "" {
		t.Error("a later object does not replace the record")
	}
	other := func(selector map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1",
			"kind":       "Notebook",
			"metadata":   map[string]any{"name": "x"},
			"spec": map[string]any{
				"pool":     "b",
				"template": map[string]any{"spec": map[string]any{"nodeSelector": selector}},
			},
		}}
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Notebook"}
	of := func(is runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(is, nil, kind, "a--web", "x", kind.GroupVersion().WithResource("notebooks"), "",
			admission.Create, nil, false, caller("a"))
	}
	ctx := plugins.WithRequested(t.Context())
	plugins.RecordRequested(ctx, of(other(nil)), runtime.Object.DeepCopyObject)
	p := newPluginWithKinds(&placement.TenantRules{}, map[schema.GroupKind][]string{kind.GroupKind(): {"spec.template"}})
	if got := fmt.Sprint(p.Validate(ctx, of(other(map[string]any{"pool": "b"})), nil)); !strings.Contains(got,
		"nodeSelector") {
		t.Errorf("a template that a webhook filled in from other fields: %s", got)
	}
}

// TestClusterCannotChangeTheNodeSelector checks that a Pod with another value than the default node
// selector is denied, even if the cluster set that value.
func TestClusterCannotChangeTheNodeSelector(t *testing.T) {
	p := newPlugin(&placement.TenantRules{Defaults: placement.Defaults{NodeSelector: map[string]string{"pool": "a"}}})
	ctx := plugins.WithRequested(t.Context())
	pinned := podOf(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"pool": "a"} })
	plugins.RecordRequested(ctx, write{kind: "Pod", obj: pinned}.attributes(), runtime.Object.DeepCopyObject)
	moved := podOf(choices["nodeSelector"])
	if got := fmt.Sprint(p.Validate(ctx, write{kind: "Pod", obj: moved}.attributes(), nil)); !strings.Contains(got,
		"nodeSelector[pool]") {
		t.Errorf("a pod of another pool: %s", got)
	}
}

// TestClusterValuesAreAllowed checks that only the configured values of the cluster are allowed,
// and that the plugin does not add or require them.
func TestClusterValuesAreAllowed(t *testing.T) {
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	p := newPlugin(&placement.TenantRules{Cluster: placement.Cluster{
		Defaults: placement.Defaults{
			NodeSelector:  map[string]string{"pool": "shared"},
			Tolerations:   []corev1.Toleration{gpu, {Key: "all", Value: "x"}},
			SchedulerName: "bins",
		},
		RuntimeClassName:  "gvisor",
		PriorityClassName: "standard-tenants",
	}})
	changed := func(t corev1.Toleration, change func(*corev1.Toleration)) corev1.PodSpec {
		change(&t)
		return tolerating(t)
	}
	for name, c := range map[string]struct {
		spec    corev1.PodSpec
		refused string
	}{
		"no values":               {corev1.PodSpec{}, ""},
		"the nodes":               {corev1.PodSpec{NodeSelector: map[string]string{"pool": "shared"}}, ""},
		"other nodes":             {corev1.PodSpec{NodeSelector: map[string]string{"pool": "b"}}, "nodeSelector[pool]"},
		"another label":           {corev1.PodSpec{NodeSelector: map[string]string{"zone": "shared"}}, "nodeSelector[zone]"},
		"the toleration":          {tolerating(gpu), ""},
		"the toleration, shorter": {changed(gpu, func(t *corev1.Toleration) { t.TolerationSeconds = new(int64(9)) }), ""},
		"another effect": {
			changed(gpu, func(t *corev1.Toleration) { t.Effect = corev1.TaintEffectNoExecute }), "tolerations[0]",
		},
		"every effect":            {changed(gpu, func(t *corev1.Toleration) { t.Effect = "" }), "tolerations[0]"},
		"another taint":           {changed(gpu, func(t *corev1.Toleration) { t.Key = "gpus" }), "tolerations[0]"},
		"every taint":             {changed(gpu, func(t *corev1.Toleration) { t.Key = "" }), "tolerations[0]"},
		"a value of every effect": {tolerating(corev1.Toleration{Key: "all", Value: "x", Effect: "NoExecute"}), ""},
		"another value":           {tolerating(corev1.Toleration{Key: "all", Value: "y"}), "tolerations[0]"},
		"the scheduler":           {corev1.PodSpec{SchedulerName: "bins"}, ""},
		"another scheduler":       {corev1.PodSpec{SchedulerName: "gvisor"}, "schedulerName"},
		"the runtime class":       {corev1.PodSpec{RuntimeClassName: new("gvisor")}, ""},
		"another runtime class":   {corev1.PodSpec{RuntimeClassName: new("bins")}, "runtimeClassName"},
		"the priority class":      {corev1.PodSpec{PriorityClassName: "standard-tenants"}, ""},
		"another priority class":  {corev1.PodSpec{PriorityClassName: "gvisor"}, "priorityClassName"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: c.spec}
			a := creating(pod, "a--web", caller("a"))
			if err := p.Admit(t.Context(), a, nil); err != nil || !equality.Semantic.DeepEqual(pod.Spec, c.spec) {
				t.Errorf("%v, changed to %+v", err, pod.Spec)
			}
			got := fmt.Sprint(p.Validate(t.Context(), a, nil))
			if (got == "<nil>") != (c.refused == "") || c.refused != "" &&
				(!strings.Contains(got, "spec."+c.refused) || !strings.Contains(got, "admission.placement.cluster can allow")) {
				t.Errorf("%s, want %q", got, c.refused)
			}
		})
	}
	var none placement.Cluster
	empty := newPlugin(&placement.TenantRules{Cluster: none})
	for name, pod := range map[string]*corev1.Pod{
		"a runtime class": podOf(func(s *corev1.PodSpec) { s.RuntimeClassName = new("x") }),
		"a label":         podOf(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"": ""} }),
	} {
		t.Run(name, func(t *testing.T) {
			if empty.Validate(t.Context(), creating(pod, "a--web", caller("a")), nil) == nil {
				t.Errorf("%s without a setting: admitted", name)
			}
		})
	}
}

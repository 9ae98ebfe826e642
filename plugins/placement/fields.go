// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
)

// item is one value of a field. It is a key, a key with a value, or a name.
type item struct {
	path  string
	key   string
	value *string // nil if the item is the key alone, with any value or none
	// element is the part of the Pod that contains the item. The item is allowed if an update does
	// not change the element. An item without an element is new in every update that changes its
	// field.
	element any
}

// isUnchanged reports whether old has the same element as i.
func (i item) isUnchanged(old item) bool {
	return i.element != nil && equality.Semantic.DeepEqual(i.element, old.element)
}

func anyField(podField) bool { return true }

func isNodeName(f podField) bool { return f.name == "nodeName" }

func notNodeName(f podField) bool { return !isNodeName(f) }

// podField is a field of a PodSpec that the plugin checks.
type podField struct {
	name string
	// value returns the value that is compared in an update.
	value func(*corev1.PodSpec) any
	items func(*corev1.PodSpec) []item
}

// fieldDescriptions describes what each field selects.
var fieldDescriptions = map[string]string{
	"nodeName":          "the node of a pod",
	"nodeSelector":      "the nodes of a pod",
	"nodeAffinity":      "the nodes of a pod",
	"tolerations":       "the taints that a pod tolerates",
	topologyKeys:        "the topology of a pod",
	"runtimeClassName":  "the runtime class of a pod",
	"priorityClassName": "the priority of a pod",
	"schedulerName":     "the scheduler of a pod",
	podAffinity:         "the pods of other namespaces",
}

// podAffinity is the name of the rule for the namespaces in which Pod affinity selects Pods. With
// anti-affinity, a tenant could keep Pods of other tenants away from nodes. With affinity, it could
// find out where they run.
const podAffinity = "podAffinity"

// topologyKeys is the name of the rule for every topology key, in constraints, in affinity and in
// groups of Pods.
const topologyKeys = "topologySpread"

var fields = []podField{
	{podAffinity, func(s *corev1.PodSpec) any { return podTerms(s) }, podNamespaces},
	{
		"nodeName",
		func(s *corev1.PodSpec) any { return s.NodeName },
		func(s *corev1.PodSpec) []item { return nameItem("nodeName", s.NodeName) },
	},
	{"nodeSelector", func(s *corev1.PodSpec) any { return s.NodeSelector }, nodeSelector},
	{"nodeAffinity", func(s *corev1.PodSpec) any { return affinity(s) }, nodeAffinity},
	{"tolerations", func(s *corev1.PodSpec) any { return s.Tolerations }, tolerations},
	{topologyKeys, func(s *corev1.PodSpec) any { return s.TopologySpreadConstraints }, topologySpread},
	{topologyKeys, func(s *corev1.PodSpec) any { return keysOf(podTopology(s)) }, podTopology},
	{
		"runtimeClassName",
		func(s *corev1.PodSpec) any { return valueOrEmpty(s.RuntimeClassName) },
		func(s *corev1.PodSpec) []item {
			return nameItem("runtimeClassName", valueOrEmpty(s.RuntimeClassName))
		},
	},
	{"priorityClassName", func(s *corev1.PodSpec) any { return s.PriorityClassName }, func(s *corev1.PodSpec) []item {
		return nameItem("priorityClassName", s.PriorityClassName)
	}},
	{"schedulerName", func(s *corev1.PodSpec) any { return s.SchedulerName }, func(s *corev1.PodSpec) []item {
		if s.SchedulerName == corev1.DefaultSchedulerName { // the server's default
			return nil
		}
		return nameItem("schedulerName", s.SchedulerName)
	}},
}

// podTerm is a Pod affinity or anti-affinity term and its field path. Its fields are exported
// because equality.Semantic.DeepEqual panics on unexported fields.
type podTerm struct {
	Path string
	corev1.PodAffinityTerm
}

// podTerms returns all terms of affinity and anti-affinity to other Pods, in the order of the
// fields.
func podTerms(s *corev1.PodSpec) []podTerm {
	if s.Affinity == nil {
		return nil
	}
	var terms []podTerm
	add := func(path string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i, t := range required {
			terms = append(terms, podTerm{fmt.Sprintf("%s.requiredDuringSchedulingIgnoredDuringExecution[%d]", path, i), t})
		}
		for i, t := range preferred {
			at := fmt.Sprintf("%s.preferredDuringSchedulingIgnoredDuringExecution[%d].podAffinityTerm", path, i)
			terms = append(terms, podTerm{at, t.PodAffinityTerm})
		}
	}
	if a := s.Affinity.PodAffinity; a != nil {
		add("affinity.podAffinity", a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := s.Affinity.PodAntiAffinity; a != nil {
		add("affinity.podAntiAffinity", a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return terms
}

func podNamespaces(s *corev1.PodSpec) []item {
	var items []item
	for _, t := range podTerms(s) {
		if t.NamespaceSelector != nil {
			items = append(items, namespaceItem(t.Path+".namespaceSelector", t.NamespaceSelector))
		}
		for i, namespace := range t.Namespaces {
			items = append(items, item{path: fmt.Sprintf("%s.namespaces[%d]", t.Path, i), key: namespace})
		}
	}
	return items
}

// podTopology returns the topology keys of affinity and anti-affinity. A Pod that matches its own
// term runs only on nodes that have the label (k8s.io/kubernetes
// pkg/scheduler/framework/plugins/interpodaffinity, v1.37.1).
func podTopology(s *corev1.PodSpec) []item {
	var items []item
	for _, t := range podTerms(s) {
		items = append(items, item{path: t.Path + ".topologyKey", key: t.TopologyKey})
	}
	return items
}

func keysOf(items []item) []string {
	var keys []string
	for _, i := range items {
		keys = append(keys, i.key)
	}
	return keys
}

// namespaceItem returns the item for a selector of namespaces. If the selector requires the label
// of exactly one tenant, the item has that label. Otherwise, no list allows the item.
func namespaceItem(path string, s *metav1.LabelSelector) item {
	if id, ok := s.MatchLabels[tenant.Label]; ok {
		return item{path: path, key: tenant.Label, value: &id}
	}
	for _, r := range s.MatchExpressions {
		if r.Key == tenant.Label && r.Operator == metav1.LabelSelectorOpIn && len(r.Values) == 1 {
			return item{path: path, key: tenant.Label, value: &r.Values[0]}
		}
	}
	return item{path: path}
}

func valueOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nameItem(path, value string) []item {
	if value == "" {
		return nil
	}
	return []item{{path: path, key: value}}
}

func nodeSelector(s *corev1.PodSpec) []item {
	if len(s.NodeSelector) == 0 {
		return nil // most Pods have none, and sorting allocates
	}
	items := make([]item, 0, len(s.NodeSelector))
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		value := s.NodeSelector[key]
		items = append(items, item{fmt.Sprintf("nodeSelector[%s]", key), key, &value, key + "=" + value})
	}
	return items
}

func affinity(s *corev1.PodSpec) *corev1.NodeAffinity {
	if s.Affinity == nil {
		return nil
	}
	return s.Affinity.NodeAffinity
}

func nodeAffinity(s *corev1.PodSpec) []item {
	a := affinity(s)
	if a == nil {
		return nil
	}
	var items []item
	term := func(path string, t corev1.NodeSelectorTerm, element any) {
		items = append(items, requirements(path+".matchExpressions", t.MatchExpressions, element)...)
		items = append(items, requirements(path+".matchFields", t.MatchFields, element)...)
	}
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i, t := range required.NodeSelectorTerms {
			term(fmt.Sprintf("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[%d]", i),
				t, t)
		}
	}
	for i, t := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		term(fmt.Sprintf("affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[%d].preference", i),
			t.Preference, t)
	}
	return items
}

// requirements returns one item for each key and value. An operator other than In can select almost
// all nodes, so its item has only the key.
func requirements(path string, all []corev1.NodeSelectorRequirement, element any) []item {
	var items []item
	for i, r := range all {
		at := fmt.Sprintf("%s[%d]", path, i)
		if r.Operator != corev1.NodeSelectorOpIn || len(r.Values) == 0 {
			items = append(items, item{at, r.Key, nil, element})
			continue
		}
		for _, value := range r.Values {
			items = append(items, item{at, r.Key, &value, element})
		}
	}
	return items
}

func tolerations(s *corev1.PodSpec) []item {
	var items []item
	for i, t := range s.Tolerations {
		if isServerDefault(t) {
			continue
		}
		one := item{path: fmt.Sprintf("tolerations[%d]", i), key: t.Key, element: t} // no list allows an empty key
		if t.Operator == corev1.TolerationOpEqual || t.Operator == "" {
			one.value = &t.Value
		}
		items = append(items, one)
	}
	return items
}

// isServerDefault reports whether DefaultTolerationSeconds adds the toleration to every Pod. The
// toleration limits how long the Pod stays on an unavailable node (k8s.io/kubernetes
// plugin/pkg/admission/defaulttolerationseconds, v1.37.1).
func isServerDefault(t corev1.Toleration) bool {
	return (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable) &&
		t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoExecute
}

func topologySpread(s *corev1.PodSpec) []item {
	var items []item
	for i, c := range s.TopologySpreadConstraints {
		items = append(items, item{
			path:    fmt.Sprintf("topologySpreadConstraints[%d].topologyKey", i),
			key:     c.TopologyKey,
			element: c,
		})
	}
	return items
}

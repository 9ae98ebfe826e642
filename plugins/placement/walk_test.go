// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/placement"
)

// schedules matches the paths of fields that may select nodes, classes, priorities or topologies.
var schedules = regexp.MustCompile(
	`(?i)node|topolog|class|priorit|preempt|schedul|tolerat|zone|selector|affinity|domain`)

// leaf is a field without further fields. steps lead to the leaf from the type that is walked.
type leaf struct {
	path  string
	steps []int // indexes of struct fields, or element for an element of a list or a map
	of    reflect.Type
}

const element = -1

// walk returns every leaf of a type. A type in ends is one leaf. A recursive type is walked once.
func walk(of reflect.Type, ends ...reflect.Type) []leaf {
	var leaves []leaf
	var into func(l leaf, within []reflect.Type)
	into = func(l leaf, within []reflect.Type) {
		if slices.Contains(ends, l.of) {
			leaves = append(leaves, l)
			return
		}
		switch l.of.Kind() {
		case reflect.Pointer:
			into(leaf{l.path, l.steps, l.of.Elem()}, within)
		case reflect.Slice:
			into(leaf{l.path + "[]", append(slices.Clone(l.steps), element), l.of.Elem()}, within)
		case reflect.Map:
			into(leaf{l.path + "{}", append(slices.Clone(l.steps), element), l.of.Elem()}, within)
		case reflect.Struct:
			if slices.Contains(within, l.of) {
				return
			}
			within = append(slices.Clone(within), l.of)
			for i := range l.of.NumField() {
				f := l.of.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				path := strings.TrimPrefix(l.path+"."+name, ".")
				if name == "" {
					path = l.path
				}
				into(leaf{path, append(slices.Clone(l.steps), i), f.Type}, within)
			}
		default:
			leaves = append(leaves, l)
		}
	}
	into(leaf{of: of}, nil)
	return leaves
}

// ends returns types that walk treats as leaves, because their fields select nothing by
// themselves.
func ends() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[metav1.LabelSelector](), reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.Time](),
		reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](),
	}
}

// set sets the leaf of a value to something that no list allows.
func (l leaf) set(v reflect.Value) {
	for _, step := range l.steps {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if step != element {
			v = v.Field(step)
			continue
		}
		if v.Kind() == reflect.Map {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("x"), reflect.ValueOf("x").Convert(v.Type().Elem()))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		v = v.Index(0)
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// fieldRule is the rule of TenantPlacement for a field, or the reason why the field has no rule.
type fieldRule struct{ rule, reason string }

func rule(name string) fieldRule { return fieldRule{rule: name} }
func because(s string) fieldRule { return fieldRule{reason: s} }

// podSpecFields are all fields of a PodSpec.
var podSpecFields = map[string]fieldRule{
	"affinity":                  because("its leaves are known"),
	"nodeName":                  rule("nodeName"),
	"nodeSelector":              rule("nodeSelector"),
	"priorityClassName":         rule("priorityClassName"),
	"runtimeClassName":          rule("runtimeClassName"),
	"schedulerName":             rule("schedulerName"),
	"tolerations":               rule("tolerations"),
	"topologySpreadConstraints": because("its leaves are known"),

	"priority":         because("the server's Priority plugin computes it from priorityClassName"),
	"preemptionPolicy": because("the server's Priority plugin computes it from priorityClassName"),
	"overhead":         because("the server's RuntimeClass plugin computes it from runtimeClassName"),

	"resourceClaims":     because("TenantQuota limits the devices, and a DeviceClass offers them"),
	"schedulingGroup":    because("names a PodGroup of the same namespace, which TenantPlacement checks"),
	"schedulingGates":    because("only delays the Pod itself"),
	"evictionResponders": because("orders the eviction of the Pod itself"),

	"hostIPC":         because("PodSecurity restricts it"),
	"hostNetwork":     because("PodSecurity restricts it"),
	"hostPID":         because("PodSecurity restricts it"),
	"hostUsers":       because("PodSecurity restricts it"),
	"securityContext": because("PodSecurity restricts it"),

	"containers":          because("TenantPolicy checks the images"),
	"initContainers":      because("TenantPolicy checks the images"),
	"ephemeralContainers": because("TenantPolicy checks the images"),
	"volumes":             because("its leaves are known"),

	"activeDeadlineSeconds":         because("concerns the Pod itself"),
	"automountServiceAccountToken":  because("concerns the Pod itself"),
	"dnsConfig":                     because("concerns the Pod itself"),
	"dnsPolicy":                     because("concerns the Pod itself"),
	"enableServiceLinks":            because("concerns the Pod itself"),
	"hostAliases":                   because("concerns the Pod itself"),
	"hostname":                      because("concerns the Pod itself"),
	"hostnameOverride":              because("concerns the Pod itself"),
	"imagePullSecrets":              because("names Secrets of the same namespace"),
	"os":                            because("concerns the Pod itself"),
	"readinessGates":                because("concerns the Pod itself"),
	"resources":                     because("TenantQuota limits them"),
	"restartPolicy":                 because("concerns the Pod itself"),
	"serviceAccount":                because("names a ServiceAccount of the same namespace"),
	"serviceAccountName":            because("names a ServiceAccount of the same namespace"),
	"setHostnameAsFQDN":             because("concerns the Pod itself"),
	"shareProcessNamespace":         because("concerns the Pod itself"),
	"subdomain":                     because("concerns the Pod itself"),
	"terminationGracePeriodSeconds": because("concerns the Pod itself"),
}

// podSpecLeaves contains the leaves of a PodSpec that [schedules] matches. short defines the names
// in capitals.
var podSpecLeaves = map[string]fieldRule{
	"nodeName":          rule("nodeName"),
	"nodeSelector{}":    rule("nodeSelector"),
	"priorityClassName": rule("priorityClassName"),
	"runtimeClassName":  rule("runtimeClassName"),
	"schedulerName":     rule("schedulerName"),

	"affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[].MATCH[].key":      rule("nodeAffinity"),
	"affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[].MATCH[].operator": rule("nodeAffinity"),
	"affinity.nodeAffinity.REQUIRED.nodeSelectorTerms[].MATCH[].values[]": rule("nodeAffinity"),
	"affinity.nodeAffinity.PREFERRED[].preference.MATCH[].key":            rule("nodeAffinity"),
	"affinity.nodeAffinity.PREFERRED[].preference.MATCH[].operator":       rule("nodeAffinity"),
	"affinity.nodeAffinity.PREFERRED[].preference.MATCH[].values[]":       rule("nodeAffinity"),
	"affinity.nodeAffinity.PREFERRED[].weight":                            because("ranks terms that are checked"),

	"affinity.OTHERS.TERM.topologyKey":         rule("topologySpread"),
	"affinity.OTHERS.TERM.namespaces[]":        rule("podAffinity"),
	"affinity.OTHERS.TERM.namespaceSelector":   rule("podAffinity"),
	"affinity.OTHERS.TERM.labelSelector":       because("selects Pods in namespaces that are checked"),
	"affinity.OTHERS.TERM.matchLabelKeys[]":    because("selects Pods in namespaces that are checked"),
	"affinity.OTHERS.TERM.mismatchLabelKeys[]": because("selects Pods in namespaces that are checked"),
	"affinity.OTHERS.PREFERRED[].weight":       because("ranks terms that are checked"),

	"tolerations[].key":               rule("tolerations"),
	"tolerations[].operator":          rule("tolerations"),
	"tolerations[].value":             rule("tolerations"),
	"tolerations[].effect":            rule("tolerations"),
	"tolerations[].tolerationSeconds": rule("tolerations"),

	"topologySpreadConstraints[].topologyKey":        rule("topologySpread"),
	"topologySpreadConstraints[].labelSelector":      because("selects Pods of the same namespace"),
	"topologySpreadConstraints[].matchLabelKeys[]":   because("selects Pods of the same namespace"),
	"topologySpreadConstraints[].maxSkew":            because("counts Pods of the same namespace"),
	"topologySpreadConstraints[].minDomains":         because("counts the domains of a key that is checked"),
	"topologySpreadConstraints[].nodeAffinityPolicy": because("counts the domains of a key that is checked"),
	"topologySpreadConstraints[].nodeTaintsPolicy":   because("counts the domains of a key that is checked"),
	"topologySpreadConstraints[].whenUnsatisfiable":  because("counts the domains of a key that is checked"),

	"priority":                      because("the server's Priority plugin computes it from priorityClassName"),
	"preemptionPolicy":              because("the server's Priority plugin computes it from priorityClassName"),
	"evictionResponders[].priority": because("orders the eviction of the Pod itself"),
	"schedulingGates[].name":        because("only delays the Pod itself"),
	"schedulingGroup.podGroupName":  because("names a PodGroup of the same namespace, which TenantPlacement checks"),
	"subdomain":                     because("a name in DNS"),

	"volumes[].ephemeral.volumeClaimTemplate.spec.selector":                  because("selects volumes, not nodes"),
	"volumes[].ephemeral.volumeClaimTemplate.spec.storageClassName":          because("TenantPolicy checks it"),
	"volumes[].ephemeral.volumeClaimTemplate.spec.volumeAttributesClassName": because("changes the volume alone"),
	"volumes[].scaleIO.protectionDomain":                                     because("no kubelet of v1.37 reads it"),
	"volumes[].csi.nodePublishSecretRef.name":                                because("names a Secret of the namespace"),
	"volumes[].projected.sources[].clusterTrustBundle.labelSelector":         because("selects public certificates"),
}

// short abbreviates names that occur in the paths of several fields.
func short(path string) string {
	for _, r := range [][2]string{
		{"requiredDuringSchedulingIgnoredDuringExecution", "REQUIRED"},
		{"preferredDuringSchedulingIgnoredDuringExecution", "PREFERRED"},
		{"podAffinity.", "OTHERS."},
		{"podAntiAffinity.", "OTHERS."},
		{"matchExpressions", "MATCH"},
		{"matchFields", "MATCH"},
		{"OTHERS.REQUIRED[]", "OTHERS.TERM"},
		{"OTHERS.PREFERRED[].podAffinityTerm", "OTHERS.TERM"},
	} {
		path = strings.ReplaceAll(path, r[0], r[1])
	}
	return path
}

// ignoreAllBut returns rules that allow every value for all fields except one.
func ignoreAllBut(but string) *placement.TenantRules {
	rules := plugins.Rules{}
	for _, name := range []string{
		"nodeName", "nodeSelector", "nodeAffinity", "tolerations", "topologySpread", "runtimeClassName",
		"priorityClassName", "schedulerName", "podAffinity",
	} {
		if name != but {
			rules[name] = plugins.Rule{Policy: plugins.Ignore}
		}
	}
	return &placement.TenantRules{Rules: rules}
}

// TestPodSpecFieldsAreCovered checks that each field of a PodSpec has a rule or a reason in the
// tables, and that a leaf with a rule is denied. The test fails if a later version of Kubernetes
// adds a field.
func TestPodSpecFieldsAreCovered(t *testing.T) {
	spec := reflect.TypeFor[corev1.PodSpec]()
	unseen := maps.Clone(podSpecFields)
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		if podSpecFields[name] == (fieldRule{}) {
			t.Errorf("spec.%s is not in podSpecFields", name)
		}
		delete(unseen, name)
	}
	if len(unseen) > 0 {
		t.Errorf("no such fields: %q", slices.Sorted(maps.Keys(unseen)))
	}
	unseenLeaves := maps.Clone(podSpecLeaves)
	for _, l := range walk(spec, ends()...) {
		if !schedules.MatchString(l.path) {
			continue
		}
		k := podSpecLeaves[short(l.path)]
		delete(unseenLeaves, short(l.path))
		if k == (fieldRule{}) {
			t.Errorf("spec.%s is not in podSpecLeaves", l.path)
		}
		if k.rule == "" {
			continue
		}
		pod := &corev1.Pod{}
		l.set(reflect.ValueOf(&pod.Spec).Elem())
		if err := plugin(ignoreAllBut("")).Validate(t.Context(), creating(pod, "a--web", caller("a")), nil); err != nil {
			t.Errorf("spec.%s, with every value allowed: %v", l.path, err)
		}
		got := fmt.Sprint(plugin(ignoreAllBut(k.rule)).Validate(t.Context(), creating(pod, "a--web", caller("a")), nil))
		field, _, _ := strings.Cut(strings.NewReplacer("[]", "[", "{}", "[").Replace(l.path), "[")
		if !strings.Contains(got, "spec."+field) || !strings.Contains(got, "tenants may not choose") {
			t.Errorf("spec.%s by %s: %s", l.path, k.rule, got)
		}
	}
	if len(unseenLeaves) > 0 {
		t.Errorf("no such fields: %q", slices.Sorted(maps.Keys(unseenLeaves)))
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/placement"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// newPlugin returns the plugin with the given rules. The namespace kube-system belongs to the
// system tenant, and all others to tenant a.
func newPlugin(space *placement.TenantRules) plugins.Interface { return newPluginWithKinds(space, nil) }

// newPluginWithKinds is [newPlugin] with additional kinds and the paths of their templates.
func newPluginWithKinds(space *placement.TenantRules, others map[schema.GroupKind][]string) plugins.Interface {
	return placement.New(placement.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner: func(_ context.Context, namespace string) (tenant.ID, error) {
			if namespace == "kube-system" {
				return tenant.System(), nil
			}
			return tenant.Parse("a")
		},
		Kinds:       workload.New(others),
		TenantRules: func(tenant.ID) *placement.TenantRules { return space },
		ReferencedOwner: func(_ context.Context, by tenant.ID, namespace string) (tenant.ID, error) {
			switch namespace {
			case "a--gone":
				return tenant.ID{}, nil
			case "a--away":
				return by, errors.New("away")
			case "a--lent":
				return tenant.Parse("b")
			}
			return by, nil
		},
		DefaultPriority: func(name string) bool { return name == "standard" },
	})
}

// write is a write. By default, a caller of tenant a sends it in the namespace a--web. If old is
// set, the write is an update.
type write struct {
	kind, subresource string
	obj, old          runtime.Object
	by                user.Info
	namespace         string
}

func (w write) attributes() admission.Attributes {
	gv := corev1.SchemeGroupVersion
	if w.kind == "Deployment" || w.kind == "StatefulSet" {
		gv = appsv1.SchemeGroupVersion
	}
	if w.by == nil {
		w.by = caller("a")
	}
	if w.namespace == "" {
		w.namespace = "a--web"
	}
	op := admission.Create
	if w.old != nil {
		op = admission.Update
	}
	return admission.NewAttributesRecord(
		w.obj,
		w.old,
		gv.WithKind(w.kind),
		w.namespace,
		"x",
		schema.GroupVersionResource{},
		w.subresource,
		op,
		nil,
		false,
		w.by,
	)
}

func deployment(node string) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.NodeName = node
	return d
}

func nominated(node string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{NodeName: "any"}, Status: corev1.PodStatus{NominatedNodeName: node}}
}

func claimed(node string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	if node != "" {
		c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": node}
	}
	return c
}

func stateful(nodes map[string]string) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{}
	for _, name := range []string{"one", "two"} {
		if node, ok := nodes[name]; ok {
			template := claimed(node)
			template.Name = name
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, *template)
		}
	}
	return s
}

// claiming returns a StatefulSet with any value as its volumeClaimTemplates.
func claiming(templates any) runtime.Object {
	return &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "apps/v1",
			"kind":       "StatefulSet",
			"spec":       map[string]any{"volumeClaimTemplates": templates, "template": map[string]any{}},
		},
	}
}

// TestCheckedWrites checks writes of each kind and subresource by several callers. Unchanged values
// are allowed. The list allows node n.
func TestCheckedWrites(t *testing.T) {
	leaving := func(data string) runtime.Object {
		return &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(time.Unix(1, 0)))},
			Data:       map[string]string{"x": data},
		}
	}
	binding := func(node string) runtime.Object {
		return &corev1.Binding{Target: corev1.ObjectReference{Name: node}}
	}
	system, controller := caller("system"), &user.DefaultInfo{
		Name:  "system:serviceaccount:kube-system:statefulset-controller",
		Extra: map[string][]string{tenant.ExtraKey: {"system"}},
	}
	type nodes = map[string]string
	for name, c := range map[string]struct {
		write
		refused string
	}{
		"a template":              {write{kind: "Deployment", obj: deployment("m")}, "spec.template.spec.nodeName"},
		"a template, on the list": {write{kind: "Deployment", obj: deployment("n")}, ""},
		"a template, by system": {
			write{kind: "Deployment", obj: deployment("m"), by: system}, "spec.template.spec.nodeName",
		},
		"a system namespace":    {write{kind: "Deployment", obj: deployment("m"), namespace: "kube-system"}, ""},
		"an unchanged template": {write{kind: "Deployment", obj: deployment("m"), old: deployment("m")}, ""},
		"a changed template": {
			write{kind: "Deployment", obj: deployment("m"), old: deployment("o")}, "spec.template.spec.nodeName",
		},
		"an invalid old template": {
			write{
				kind: "Deployment",
				obj:  deployment(""),
				old:  &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}},
			},
			"old object",
		},
		"an invalid object being deleted": {
			write{kind: "Pod", obj: leaving("a"), old: leaving("a")}, "",
		},
		"a changed invalid object being deleted": {
			write{kind: "Pod", obj: leaving("a"), old: leaving("b")}, "cannot read",
		},
		"invalid claim templates": {write{kind: "StatefulSet", obj: claiming("x")}, "cannot read"},
		"invalid old claim templates": {
			write{kind: "StatefulSet", obj: stateful(nodes{"one": "n"}), old: claiming("x")}, "old object",
		},
		"another kind": {write{kind: "ConfigMap", obj: &corev1.ConfigMap{}}, ""},
		"the server's class": {
			write{kind: "Pod", obj: &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: "standard"}}}, "",
		},
		"the server's class, for a node": {write{kind: "Pod", obj: on("standard")}, "spec.nodeName"},
		"a binding":                      {write{kind: "Binding", obj: binding("m")}, "target.name"},
		"a binding, on the list":         {write{kind: "Binding", obj: binding("n")}, ""},
		"a binding, by system":           {write{kind: "Binding", obj: binding("m"), by: system}, ""},
		"no binding":                     {write{kind: "Binding"}, "no object"},
		"a nominated node": {
			write{
				kind:        "Pod",
				obj:         nominated("m"),
				old:         nominated(""),
				subresource: "status",
			},
			"status.nominatedNodeName",
		},
		"a nominated node on the list": {
			write{
				kind:        "Pod",
				obj:         nominated("n"),
				old:         nominated(""),
				subresource: "status",
			},
			"",
		},
		"an unchanged nominated node": {
			write{
				kind:        "Pod",
				obj:         nominated("m"),
				old:         nominated("m"),
				subresource: "status",
			},
			"",
		},
		"a removed nominated node": {
			write{
				kind:        "Pod",
				obj:         nominated(""),
				old:         nominated("m"),
				subresource: "status",
			},
			"",
		},
		"a node nominated by the system": {
			write{
				kind:        "Pod",
				obj:         nominated("m"),
				old:         nominated(""),
				subresource: "status",
				by:          system,
			},
			"",
		},
		"a status, no object":  {write{kind: "Pod", old: nominated(""), subresource: "status"}, "no object"},
		"a status, no old one": {write{kind: "Pod", obj: nominated("m"), subresource: "status"}, "old object"},
		"a claim": {
			write{kind: "PersistentVolumeClaim", obj: claimed("m")}, "metadata.annotations[volume.kubernetes.io/selected-node]",
		},
		"a claim, no node":     {write{kind: "PersistentVolumeClaim", obj: claimed("")}, ""},
		"a claim, on the list": {write{kind: "PersistentVolumeClaim", obj: claimed("n")}, ""},
		"a claim, by system":   {write{kind: "PersistentVolumeClaim", obj: claimed("m"), by: system}, ""},
		"a claim from a template": {
			write{kind: "PersistentVolumeClaim", obj: claimed("m"), by: controller}, "metadata.annotations",
		},
		"a claim that a controller changes": {
			write{
				kind: "PersistentVolumeClaim",
				obj:  claimed("m"),
				old:  claimed("o"),
				by:   controller,
			},
			"",
		},
		"an unchanged claim": {write{kind: "PersistentVolumeClaim", obj: claimed("m"), old: claimed("m")}, ""},
		"a changed claim": {
			write{kind: "PersistentVolumeClaim", obj: claimed("m"), old: claimed("o")}, "metadata.annotations",
		},
		"no claim": {write{kind: "PersistentVolumeClaim"}, "no object"},
		"a claim template": {
			write{kind: "StatefulSet", obj: stateful(nodes{"one": "", "two": "m"})},
			"spec.volumeClaimTemplates[1].metadata.annotations",
		},
		"two unchanged templates": {
			write{
				kind: "StatefulSet",
				obj:  stateful(nodes{"one": "m", "two": "o"}),
				old:  stateful(nodes{"one": "m", "two": "o"}),
			},
			"",
		},
		"one of two templates removed": {
			write{kind: "StatefulSet", obj: stateful(nodes{"two": "o"}), old: stateful(nodes{"one": "m", "two": "o"})}, "",
		},
		"another template's node": {
			write{kind: "StatefulSet", obj: stateful(nodes{"one": "m"}), old: stateful(nodes{"two": "m"})},
			"spec.volumeClaimTemplates[0].metadata.annotations",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(&placement.TenantRules{
				Rules: plugins.Rules{"nodeName": {Policy: plugins.AllowListed, Allowed: []string{"n"}}},
			})
			got := fmt.Sprint(p.Validate(t.Context(), c.attributes(), nil))
			if (got == "<nil>") != (c.refused == "") || !strings.Contains(got, c.refused) {
				t.Errorf("%s, want %q", got, c.refused)
			}
		})
	}
}

// TestDefaultsAreAdded checks that the defaults are added to a new Pod. Existing values are
// retained, except for the name of the default scheduler. Shared maps are not changed.
func TestDefaultsAreAdded(t *testing.T) {
	toleration := corev1.Toleration{
		Key:      "pool",
		Operator: corev1.TolerationOpEqual,
		Value:    "a",
		Effect:   corev1.TaintEffectNoSchedule,
	}
	pool := placement.Defaults{
		NodeSelector:  map[string]string{"pool": "a"},
		Tolerations:   []corev1.Toleration{toleration},
		SchedulerName: "own",
	}
	given := corev1.PodSpec{
		NodeSelector:  map[string]string{"pool": "a"},
		Tolerations:   []corev1.Toleration{toleration},
		SchedulerName: "own",
	}
	with := func(change func(*corev1.PodSpec)) corev1.PodSpec {
		s := given.DeepCopy()
		change(s)
		return *s
	}
	other := corev1.Toleration{Key: "pool", Operator: corev1.TolerationOpExists}
	for name, c := range map[string]struct {
		defaults placement.Defaults
		is, want corev1.PodSpec
	}{
		"no values":              {pool, corev1.PodSpec{}, given},
		"second call":            {pool, given, given},
		"the server's scheduler": {pool, corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName}, given},
		"another scheduler": {
			pool, corev1.PodSpec{SchedulerName: "mine"}, with(func(s *corev1.PodSpec) { s.SchedulerName = "mine" }),
		},
		"more labels": {
			pool,
			corev1.PodSpec{NodeSelector: map[string]string{"zone": "x"}},
			with(func(s *corev1.PodSpec) { s.NodeSelector["zone"] = "x" }),
		},
		"another pool": {
			pool,
			corev1.PodSpec{NodeSelector: map[string]string{"pool": "b"}},
			with(func(s *corev1.PodSpec) { s.NodeSelector["pool"] = "b" }),
		},
		"another toleration": {
			pool, tolerating(other), with(func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{other, toleration} }),
		},
		"only labels": {
			placement.Defaults{NodeSelector: pool.NodeSelector},
			corev1.PodSpec{},
			corev1.PodSpec{NodeSelector: pool.NodeSelector},
		},
		"only tolerations": {placement.Defaults{Tolerations: pool.Tolerations}, corev1.PodSpec{}, tolerating(toleration)},
		"only a scheduler": {
			placement.Defaults{SchedulerName: "own"}, corev1.PodSpec{}, corev1.PodSpec{SchedulerName: "own"},
		},
		"the server's scheduler, no default": {
			placement.Defaults{NodeSelector: pool.NodeSelector},
			corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName},
			corev1.PodSpec{NodeSelector: pool.NodeSelector, SchedulerName: corev1.DefaultSchedulerName},
		},
	} {
		t.Run(name, func(t *testing.T) {
			shared := maps.Clone(c.is.NodeSelector)
			before := c.is.NodeSelector
			pod := &corev1.Pod{Spec: c.is}
			if err := newPlugin(&placement.TenantRules{Defaults: c.defaults}).Admit(t.Context(),
				creating(pod, "a--web", caller("a")), nil); err != nil {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(c.want, pod.Spec); diff != "" || !maps.Equal(shared, before) {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
	if len(pool.NodeSelector) != 1 {
		t.Errorf("the defaults were changed to %v", pool)
	}
}

// TestDefaultsAreAllowed checks that the defaults, and no other values, are allowed without a list.
func TestDefaultsAreAllowed(t *testing.T) {
	pool := placement.Defaults{
		NodeSelector:  map[string]string{"pool": "a"},
		SchedulerName: "own",
		Tolerations:   []corev1.Toleration{{Key: "pool", Value: "a"}, {Key: "all", Operator: corev1.TolerationOpExists}},
	}
	pinned := func(s corev1.PodSpec) corev1.PodSpec {
		if s.NodeSelector == nil {
			s.NodeSelector = map[string]string{"pool": "a"}
		}
		return s
	}
	for name, c := range map[string]struct {
		spec    corev1.PodSpec
		refused string
	}{
		"the pool": {corev1.PodSpec{}, ""},
		"another label": {
			corev1.PodSpec{NodeSelector: map[string]string{"pool": "a", "zone": ""}}, "spec.nodeSelector[zone]",
		},
		"another value":  {corev1.PodSpec{NodeSelector: map[string]string{"pool": "b"}}, "spec.nodeSelector[pool]"},
		"the toleration": {tolerating(corev1.Toleration{Key: "pool", Value: "a"}), ""},
		"the toleration with its operator": {
			tolerating(corev1.Toleration{Key: "pool", Operator: corev1.TolerationOpEqual, Value: "a"}), "",
		},
		"the toleration's other value": {tolerating(corev1.Toleration{Key: "pool", Value: "b"}), "spec.tolerations[0]"},
		"the toleration's other key":   {tolerating(corev1.Toleration{Key: "pools", Value: "a"}), "spec.tolerations[0]"},
		"any value of the key": {
			tolerating(corev1.Toleration{Key: "pool", Operator: corev1.TolerationOpExists}), "spec.tolerations[0]",
		},
		"a default of any value":   {tolerating(corev1.Toleration{Key: "all", Operator: corev1.TolerationOpExists}), ""},
		"the key without operator": {tolerating(corev1.Toleration{Key: "all"}), "spec.tolerations[0]"},
		"the scheduler":            {corev1.PodSpec{SchedulerName: "own"}, ""},
		"another scheduler":        {corev1.PodSpec{SchedulerName: "mine"}, "spec.schedulerName"},
		"a node named as the pool": {corev1.PodSpec{NodeName: "own"}, "spec.nodeName"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: pinned(c.spec)}
			got := fmt.Sprint(
				newPlugin(&placement.TenantRules{Defaults: pool}).Validate(t.Context(), creating(pod, "a--web", caller("a")), nil),
			)
			if (got == "<nil>") != (c.refused == "") || !strings.Contains(got, c.refused) {
				t.Errorf("%s, want %q", got, c.refused)
			}
		})
	}
}

// TestOnlyNewTenantPodsGetDefaults checks that only new Pods in tenants' namespaces get the
// defaults. Templates, updates, mirror Pods and Pods in namespaces of the system tenant do not.
func TestOnlyNewTenantPodsGetDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		write
		given bool
	}{
		"a new pod":          {write{kind: "Pod"}, true},
		"by the system":      {write{kind: "Pod", by: caller("system")}, true},
		"a mirror":           {write{kind: "Pod", by: caller("system", user.NodesGroup)}, false},
		"a system namespace": {write{kind: "Pod", namespace: "kube-system"}, false},
		"an update":          {write{kind: "Pod", old: on("")}, false},
		"a subresource":      {write{kind: "Pod", subresource: "status"}, false},
		"another kind":       {write{kind: "PodTemplate"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := on("")
			c.obj = pod
			if err := newPlugin(&placement.TenantRules{Defaults: placement.Defaults{SchedulerName: "own"}}).Admit(t.Context(),
				c.attributes(), nil); err != nil || (pod.Spec.SchedulerName == "own") != c.given {
				t.Errorf("%v, %q", err, pod.Spec.SchedulerName)
			}
		})
	}
	d := deployment("")
	p := newPlugin(&placement.TenantRules{Defaults: placement.Defaults{NodeSelector: map[string]string{"pool": "a"}}})
	if err := p.Validate(t.Context(), write{kind: "Deployment", obj: d}.attributes(), nil); err != nil {
		t.Errorf("a template without the node selector: %v", err)
	}
	if err := p.Validate(t.Context(), write{kind: "Pod", obj: on(""), old: on("")}.attributes(), nil); err != nil {
		t.Errorf("an update without the node selector: %v", err)
	}
}

// TestSelectedNodes checks that annotations that name a node are denied on claims and on templates
// of claims, with every key that a provisioner may read. The error names all these annotations in
// order.
func TestSelectedNodes(t *testing.T) {
	spelled := map[string]bool{
		"volume.kubernetes.io/selected-node":       true,
		"volume.alpha.kubernetes.io/selected-node": true,
		"volume.beta.kubernetes.io/selected-node":  true,
		"kubernetes.io/selected-node":              true,
		"storage.k8s.io/selected-node":             true,
		"k8s.io/selected-node":                     true,
		"example.com/selected-node":                false,
		"notkubernetes.io/selected-node":           false,
		"selected-node":                            false,
		"volume.kubernetes.io/storage-provisioner": false,
	}
	p := newPlugin(&placement.TenantRules{})
	annotated := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for key, refused := range spelled {
		annotated.Annotations[key] = "n"
		t.Run(key, func(t *testing.T) {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "n"}}}
			if err := p.Validate(t.Context(), write{kind: "PersistentVolumeClaim", obj: c}.attributes(), nil); refused !=
				(err != nil && strings.Contains(err.Error(), "metadata.annotations["+key+"]: ")) {
				t.Error(err)
			}
		})
	}
	set := stateful(map[string]string{"one": "", "two": ""})
	set.Spec.VolumeClaimTemplates[0].Annotations = annotated.Annotations
	set.Spec.VolumeClaimTemplates[1].Annotations = annotated.Annotations
	for kind, obj := range map[string]runtime.Object{"PersistentVolumeClaim": annotated, "StatefulSet": set} {
		t.Run(kind, func(t *testing.T) {
			err := p.Validate(t.Context(), write{kind: kind, obj: obj}.attributes(), nil)
			got := regexp.MustCompile(`\w*annotations\[[^]]*]`).FindAllString(fmt.Sprint(err), -1)
			want := 6
			if kind == "StatefulSet" {
				want = 12
			}
			if len(got) != want || !slices.IsSorted(got[:6]) {
				t.Errorf("%d, %q: %v", len(got), got, err)
			}
		})
	}
}

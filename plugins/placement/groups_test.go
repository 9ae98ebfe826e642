// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/placement"
)

// spec returns an object of a kind with the given spec.
func spec(kind schema.GroupVersionKind, spec any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(kind)
	return u
}

type object = map[string]any

func keyed(keys ...any) object {
	var topology []any
	for _, key := range keys {
		topology = append(topology, object{"key": key})
	}
	return object{"schedulingConstraints": object{"topology": topology}}
}

// TestGroupsOfPods checks which groups of Pods a tenant's caller and a controller may write. The
// lists contain the class high and the key zone. The class standard is the default for Pods without
// a class.
func TestGroupsOfPods(t *testing.T) {
	v1beta1 := schedulingv1beta1.SchemeGroupVersion
	group, all := v1beta1.WithKind("PodGroup"), v1beta1.WithKind("Workload")
	job := batchv1.SchemeGroupVersion.WithKind("Job")
	composite := schedulingv1alpha3.SchemeGroupVersion.WithKind("CompositePodGroup")
	class := func(name any) object { return object{"priorityClassName": name} }
	in := func(template object) object { return object{"podGroupTemplates": []any{object{}, template}} }
	within := func(inner object) object {
		return object{"compositePodGroupTemplates": []any{object{"compositePodGroupTemplates": []any{inner}}}}
	}
	with := func(scheduling any) object { return object{"scheduling": scheduling} }
	const constraint = "schedulingConstraints.topology"
	const deep = "spec.compositePodGroupTemplates[0].compositePodGroupTemplates[0]"
	type nothing = struct{}
	for name, c := range map[string]struct {
		kind    schema.GroupVersionKind
		is, was any // the specs of the new and the old object
		refused string
	}{
		"a plain group":                   {group, object{"schedulingPolicy": object{"basic": object{}}}, nil, ""},
		"a class":                         {group, class("vip"), nil, "spec.priorityClassName: tenants may not choose"},
		"a class, on the list":            {group, class("high"), nil, ""},
		"the class of pods without one":   {group, class("standard"), nil, ""},
		"no class":                        {group, class(""), nil, ""},
		"a class that is not a string":    {group, class(int64(1)), nil, "no object"},
		"a priority of a group":           {group, object{"priority": int64(1000)}, nil, ""},
		"a key":                           {group, keyed("rack"), nil, "spec." + constraint + "[0].key"},
		"a key, on the list":              {group, keyed("zone"), nil, ""},
		"the second key":                  {group, keyed("zone", "rack"), nil, "spec." + constraint + "[1].key"},
		"a key that is not a string":      {group, keyed(object{}), nil, "no object"},
		"a key elsewhere":                 {group, object{"key": "rack"}, nil, ""},
		"no spec":                         {group, nil, nil, "no object"},
		"no object":                       {group, nothing{}, nil, "no object"},
		"unchanged":                       {group, class("vip"), class("vip"), ""},
		"another class":                   {group, class("vip"), class("old"), "spec.priorityClassName"},
		"a class after none":              {group, class("vip"), object{}, "spec.priorityClassName"},
		"an invalid old spec":             {group, class("high"), "x", "old object"},
		"a class that was a key":          {group, class("rack"), keyed("rack"), "spec.priorityClassName"},
		"a composite group":               {composite, class("vip"), nil, "spec.priorityClassName"},
		"a composite group, on the list":  {composite, class("high"), nil, ""},
		"a template":                      {all, in(class("vip")), nil, "spec.podGroupTemplates[1].priorityClassName"},
		"a template, on the list":         {all, in(class("high")), nil, ""},
		"a template's priority":           {all, in(object{"priority": int64(0)}), nil, "podGroupTemplates[1].priority: "},
		"a template's unchanged priority": {all, in(object{"priority": int64(7)}), in(object{"priority": int64(7)}), ""},
		"a changed priority": {
			all, in(object{"priority": int64(8)}), in(object{"priority": int64(7)}), "spec.podGroupTemplates[1].priority: ",
		},
		"a moved template":            {all, object{"podGroupTemplates": []any{class("vip")}}, in(class("vip")), ""},
		"a template within templates": {all, within(in(class("vip"))), nil, deep + ".podGroupTemplates[1]"},
		"a composite template":        {all, within(keyed("rack")), nil, deep + "." + constraint + "[0].key"},
		"a Job":                       {job, with(keyed("rack")), nil, "spec.scheduling." + constraint},
		"a Job, on the list":          {job, with(keyed("zone")), nil, ""},
		"an unchanged Job":            {job, with(keyed("rack")), with(keyed("rack")), ""},
		"an invalid Job":              {job, with("x"), nil, "cannot read"},
		"an invalid old Job":          {job, with(keyed("zone")), with("x"), "old object"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []user.Info{caller("a"), caller("system")} {
				var is, was runtime.Object
				if _, none := c.is.(nothing); !none {
					is = spec(c.kind, c.is)
				}
				op := admission.Create
				if c.was != nil {
					was, op = spec(c.kind, c.was), admission.Update
				}
				a := admission.NewAttributesRecord(is, was, c.kind, "a--web", "x", schema.GroupVersionResource{}, "", op, nil,
					false, by)
				p := newPlugin(&placement.TenantRules{Rules: plugins.Rules{
					"priorityClassName": {Policy: plugins.AllowListed, Allowed: []string{"high"}},
					"topologySpread":    {Policy: plugins.AllowListed, Allowed: []string{"zone"}},
				}})
				if got := fmt.Sprint(p.Validate(t.Context(), a, nil)); (got == "<nil>") != (c.refused == "") ||
					!strings.Contains(got, c.refused) {
					t.Errorf("%s, want %q", got, c.refused)
				}
			}
		})
	}
}

// TestUncheckedGroups checks that status updates of groups, groups in namespaces of the system
// tenant, and PriorityClasses are allowed.
func TestUncheckedGroups(t *testing.T) {
	p := newPlugin(&placement.TenantRules{})
	kind := schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")
	group := spec(kind, object{"priorityClassName": "vip"})
	for name, c := range map[string]struct {
		namespace, subresource string
		refused                bool
	}{
		"a group":             {"a--web", "", true},
		"another subresource": {"a--web", "scale", true},
		"a status":            {"a--web", "status", false},
		"a system namespace":  {"kube-system", "", false},
		"no namespace":        {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := admission.NewAttributesRecord(group, nil, kind, c.namespace, "x", schema.GroupVersionResource{}, c.subresource,
				admission.Create, nil, false, caller("a"))
			if err := p.Validate(t.Context(), a, nil); (err != nil) != c.refused {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestStorageCapacity checks that a caller outside the system tenant may specify on which nodes
// volumes fit only if the policy of nodeAffinity is Ignore.
func TestStorageCapacity(t *testing.T) {
	nodes := func(rule plugins.Rule) *placement.TenantRules {
		return &placement.TenantRules{Rules: plugins.Rules{"nodeAffinity": rule}}
	}
	capacity := func(class string, finalizers ...string) *storagev1.CSIStorageCapacity {
		return &storagev1.CSIStorageCapacity{
			ObjectMeta:       metav1.ObjectMeta{Finalizers: finalizers},
			StorageClassName: class,
		}
	}
	for name, c := range map[string]struct {
		space   *placement.TenantRules
		is, was runtime.Object
		by      user.Info
		refused bool
	}{
		"a tenant's caller": {nodes(plugins.Rule{}), capacity("a"), nil, caller("a"), true},
		"no tenant":         {nodes(plugins.Rule{}), capacity("a"), nil, &user.DefaultInfo{Name: "x"}, true},
		"no rules":          {&placement.TenantRules{}, capacity("a"), nil, caller("a"), true},
		"a list": {
			nodes(plugins.Rule{Policy: plugins.AllowListed, Allowed: []string{"", "zone"}}), capacity("a"), nil, caller("a"),
			true,
		},
		"the system tenant":      {nodes(plugins.Rule{}), capacity("a"), nil, caller("system"), false},
		"Ignore":                 {nodes(plugins.Rule{Policy: plugins.Ignore}), capacity("a"), nil, caller("a"), false},
		"a change":               {nodes(plugins.Rule{}), capacity("a"), capacity("b"), caller("a"), true},
		"a finalizer is removed": {nodes(plugins.Rule{}), capacity("a"), capacity("a", "example.com/x"), caller("a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			op := admission.Create
			if c.was != nil {
				op = admission.Update
			}
			kind := storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity")
			a := admission.NewAttributesRecord(c.is, c.was, kind, "a--web", "x", schema.GroupVersionResource{}, "", op, nil,
				false, c.by)
			if err := plugin(c.space).Validate(t.Context(), a, nil); (err != nil) != c.refused {
				t.Errorf("%v", err)
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

// isGroup reports whether namespaced objects of a kind are groups of Pods or contain templates of
// groups. The kinds are PodGroup, CompositePodGroup and Workload, in every version.
func isGroup(kind schema.GroupKind) bool { return kind.Group == schedulingv1.GroupName }

// choice is a value that a group of Pods specifies, with the rule that applies.
type choice struct {
	rule string
	item
}

// checkGroup checks a group of Pods.
func (p *plugin) checkGroup(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, ns *tenantNamespace,
) error {
	if a.GetSubresource() == "status" {
		return nil // no checked field is stored
	}
	choices, err := readGroup(a.GetObject(), a.GetKind(), o)
	if err != nil && workload.IsFinalizing(a) {
		return nil
	}
	if err != nil {
		return err
	}
	var old []choice
	if a.GetOperation() == admission.Update {
		if old, err = readGroup(a.GetOldObject(), a.GetKind(), o); err != nil {
			return errOld
		}
	}
	var errs plugins.Errors
	p.checkChoices(ctx, old, choices, ns, &errs)
	return errs.Err()
}

// checkScheduling checks the groups of Pods that the Job controller creates for a Job.
func (p *plugin) checkScheduling(
	ctx context.Context, old, obj *workload.Object, ns *tenantNamespace, errs *plugins.Errors,
) error {
	choices, err := scheduling(obj)
	if err != nil || len(choices) == 0 {
		return err
	}
	var before []choice
	if old != nil {
		if before, err = scheduling(old); err != nil {
			return errOld
		}
	}
	p.checkChoices(ctx, before, choices, ns, errs)
	return nil
}

// checkChoices denies choices that are not allowed, unless the old object had them.
func (p *plugin) checkChoices(ctx context.Context, old, choices []choice, ns *tenantNamespace, errs *plugins.Errors) {
	type said struct{ rule, key, value string }
	before := map[said]bool{}
	for _, c := range old {
		before[said{c.rule, c.key, valueOrEmpty(c.value)}] = true
	}
	for _, c := range choices {
		if !before[said{c.rule, c.key, valueOrEmpty(c.value)}] && !p.isAlwaysAllowed(ctx, c.rule, c.item, ns) {
			errs.Add(check(ns.Rules[c.rule], c.rule, c.item))
		}
	}
}

// readGroup returns the choices of a group. If it returns an error, the object MUST be denied.
func readGroup(obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) ([]choice, error) {
	if obj == nil {
		return nil, plugins.ErrObject
	}
	u, ok := obj.(runtime.Unstructured)
	var content map[string]any
	if ok {
		content = u.UnstructuredContent()
	} else {
		versioned, err := admission.ConvertToGVK(obj, kind, o)
		if err != nil {
			return nil, err
		}
		if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(versioned); err != nil {
			return nil, err
		}
	}
	spec, ok := content["spec"].(map[string]any)
	if !ok {
		return nil, plugins.ErrObject
	}
	r := choiceReader{isTemplate: kind.Kind == "Workload"}
	err := r.read("spec", spec, false)
	return r.choices, err
}

func scheduling(o *workload.Object) ([]choice, error) {
	path, content, err := o.Scheduling()
	if err != nil || content == nil {
		return nil, err
	}
	var r choiceReader
	err = r.read(path, content, false)
	return r.choices, err
}

// choiceReader collects choices at any depth, because templates of groups can contain other
// templates.
type choiceReader struct {
	// isTemplate reports whether a priority is a choice. This is so only in a Workload. In other
	// objects, the server's Priority plugin computes the priority from the class, and denies
	// another value.
	isTemplate bool
	choices    []choice
}

func (r *choiceReader) read(path string, from any, isConstraint bool) error {
	switch from := from.(type) {
	case []any:
		for i, element := range from {
			if err := r.read(fmt.Sprintf("%s[%d]", path, i), element, isConstraint); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(from)) {
			if err := r.readField(path+"."+name, name, from[name], isConstraint); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *choiceReader) readField(path, name string, value any, isConstraint bool) error {
	rule := "priorityClassName"
	switch {
	case value == nil:
		return nil
	case name == "priority" && r.isTemplate: // no list allows it
		number := fmt.Sprint(value)
		r.choices = append(r.choices, choice{rule, item{path: path, value: &number}})
		return nil
	case isConstraint && name == "key":
		rule = topologyKeys
	case name != "priorityClassName":
		return r.read(path, value, isConstraint || name == "schedulingConstraints")
	}
	key, ok := value.(string)
	if !ok {
		return plugins.ErrObject
	}
	for _, i := range nameItem(path, key) {
		r.choices = append(r.choices, choice{rule, i})
	}
	return nil
}

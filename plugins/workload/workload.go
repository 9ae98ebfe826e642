// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package workload finds the Pod templates of objects. It reads a Pod itself, the template of each
// built-in kind that creates Pods, and the templates of other kinds at configured paths.
package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
)

var errTemplate = errors.New("cannot read the pod template")

// anyElement in a path means every element of a list or a map.
const anyElement = "*"

// Kinds contains the kinds with Pod templates, and the paths to the templates. A path has names of
// fields, or "*" for every element of a list or a map.
type Kinds map[schema.GroupKind][][]string

// builtIn contains all built-in kinds of v1.37 with Pod templates. A Pod is its own template.
var builtIn = map[schema.GroupKind]string{
	{Kind: "Pod"}:                        "",
	{Kind: "PodTemplate"}:                "template",
	{Kind: "ReplicationController"}:      "spec.template",
	{Group: "apps", Kind: "DaemonSet"}:   "spec.template",
	{Group: "apps", Kind: "Deployment"}:  "spec.template",
	{Group: "apps", Kind: "ReplicaSet"}:  "spec.template",
	{Group: "apps", Kind: "StatefulSet"}: "spec.template",
	{Group: "batch", Kind: "CronJob"}:    "spec.jobTemplate.spec.template",
	{Group: "batch", Kind: "Job"}:        "spec.template",
}

// New returns the built-in kinds and the kinds in others. The field names in a path of others are
// separated by dots.
func New(others map[schema.GroupKind][]string) Kinds {
	k := Kinds{}
	for kind, path := range builtIn {
		k[kind] = [][]string{split(path)}
	}
	for kind, paths := range others {
		for _, path := range paths {
			k[kind] = append(k[kind], split(path))
		}
	}
	return k
}

// IsPod reports whether kind is Pod.
func IsPod(kind schema.GroupKind) bool { return kind == schema.GroupKind{Kind: "Pod"} }

// IsBuiltIn reports whether kind is a built-in kind with Pod templates.
func IsBuiltIn(kind schema.GroupKind) bool {
	_, ok := builtIn[kind]
	return ok
}

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// IsFinalizing reports whether an update changes only the finalizers of an object that is being
// deleted. A plugin that cannot read the object MUST NOT deny such an update for that reason.
// Otherwise, the object could never be deleted.
func IsFinalizing(a admission.Attributes) bool {
	old, err := meta.Accessor(a.GetOldObject())
	return err == nil && old.GetDeletionTimestamp() != nil && plugins.IsMaintenance(a)
}

// Template is a Pod template. After a change of a Template, [Object.Write] MUST be called.
type Template struct {
	// Path is the path of the template in the object, in the format of field errors. It is empty
	// for a Pod.
	Path string
	Meta *metav1.ObjectMeta
	Spec *corev1.PodSpec
}

// Field returns the path of a field of the template.
func (t *Template) Field(name string) string {
	if t.Path == "" {
		return name
	}
	return t.Path + "." + name
}

// Object is an object with Pod templates.
type Object struct {
	Templates []*Template

	stored  runtime.Object
	typed   runtime.Object             // the versioned object, or nil if stored is unstructured
	maps    []map[string]any           // the templates of an unstructured object
	convert admission.ObjectInterfaces // converts typed to stored if they differ
}

// Read returns the templates of obj, or nil if its kind has no templates. obj may be internal,
// versioned or unstructured. Read does not change obj, but the result may share memory with it. If
// Read returns an error, obj MUST be denied.
func (k Kinds) Read(obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) (*Object, error) {
	paths, hasTemplates := k[kind.GroupKind()]
	if !hasTemplates || obj == nil {
		return nil, nil
	}
	if u, ok := obj.(runtime.Unstructured); ok {
		return readUnstructured(u, paths)
	}
	out := &Object{stored: obj, typed: obj}
	out.Templates = typed(obj)
	if out.Templates != nil {
		return out, nil
	}
	versioned, err := admission.ConvertToGVK(obj, kind, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTemplate, err)
	}
	out.typed, out.convert = versioned, o
	if out.Templates = typed(versioned); out.Templates == nil {
		return nil, errTemplate
	}
	return out, nil
}

// typed returns the templates of a versioned object.
func typed(obj runtime.Object) []*Template {
	one := func(path string, t *corev1.PodTemplateSpec) []*Template {
		return []*Template{{path, &t.ObjectMeta, &t.Spec}}
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return []*Template{{"", &o.ObjectMeta, &o.Spec}}
	case *corev1.PodTemplate:
		return one("template", &o.Template)
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return []*Template{}
		}
		return one("spec.template", o.Spec.Template)
	case *appsv1.DaemonSet:
		return one("spec.template", &o.Spec.Template)
	case *appsv1.Deployment:
		return one("spec.template", &o.Spec.Template)
	case *appsv1.ReplicaSet:
		return one("spec.template", &o.Spec.Template)
	case *appsv1.StatefulSet:
		return one("spec.template", &o.Spec.Template)
	case *batchv1.CronJob:
		return one("spec.jobTemplate.spec.template", &o.Spec.JobTemplate.Spec.Template)
	case *batchv1.Job:
		return one("spec.template", &o.Spec.Template)
	}
	return nil
}

func readUnstructured(u runtime.Unstructured, paths [][]string) (*Object, error) {
	out := &Object{stored: u, Templates: []*Template{}}
	for _, path := range paths {
		err := walk(u.UnstructuredContent(), path, "", func(at string, m map[string]any) error {
			var t corev1.PodTemplateSpec
			// Only these fields are converted, because a Pod also has a status.
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{
				"metadata": m["metadata"],
				"spec":     m["spec"],
			}, &t)
			if err != nil {
				return fmt.Errorf("%w: %w", errTemplate, err)
			}
			out.maps = append(out.maps, m)
			out.Templates = append(out.Templates, &Template{at, &t.ObjectMeta, &t.Spec})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// walk calls found with each map at path. If a field is missing, there is no template. If a field
// has another type, walk returns an error.
func walk(from any, path []string, at string, found func(string, map[string]any) error) error {
	if from == nil {
		return nil
	}
	if len(path) == 0 {
		m, ok := from.(map[string]any)
		if !ok {
			return errTemplate
		}
		return found(strings.TrimPrefix(at, "."), m)
	}
	name := path[0]
	rest := path[1:]
	switch value := from.(type) {
	case map[string]any:
		if name != anyElement {
			return walk(value[name], rest, at+"."+name, found)
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err := walk(value[key], rest, at+"["+key+"]", found); err != nil {
				return err
			}
		}
		return nil
	case []any:
		if name != anyElement {
			return errTemplate
		}
		for i, element := range value {
			if err := walk(element, rest, at+"["+strconv.Itoa(i)+"]", found); err != nil {
				return err
			}
		}
		return nil
	}
	return errTemplate
}

// Write copies changes of the templates into the object that was read. In an unstructured object,
// it writes only the writable fields, and it does not remove any field.
func (o *Object) Write() error {
	if o.typed != nil {
		if o.convert == nil {
			return nil // the templates are part of the object
		}
		return o.convert.GetObjectConvertor().Convert(o.typed, o.stored, nil)
	}
	for i, t := range o.Templates {
		template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.PodTemplateSpec{
			ObjectMeta: *t.Meta,
			Spec:       *t.Spec,
		})
		if err != nil {
			return err
		}
		for _, f := range writable {
			value, ok, err := unstructured.NestedFieldNoCopy(template, f...)
			if err != nil || !ok {
				continue
			}
			if err := unstructured.SetNestedField(o.maps[i], value, f...); err != nil {
				return err
			}
		}
	}
	return nil
}

// writable are the fields that plugins can set.
var writable = [][]string{
	{"metadata", "annotations"},
	{"metadata", "labels"},
	{"spec", "nodeSelector"},
	{"spec", "tolerations"},
	{"spec", "schedulerName"},
}

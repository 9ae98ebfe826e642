// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package workload finds where an object describes pods: in a Pod itself, in the template of each
// built-in kind that makes pods, and in the templates of other kinds whose place is configured.
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

// each stands in a path for every element of a list or a map.
const each = "*"

// Kinds are the kinds that describe pods, with the paths to their templates: the names of fields,
// or "*" for every element of a list or a map.
type Kinds map[schema.GroupKind][][]string

// builtIn are all kinds of v1.37 that describe pods. A Pod is its own template.
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

// New returns the built-in kinds and others, whose paths are separated by dots.
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

// IsPod reports whether kind is the Pod.
func IsPod(kind schema.GroupKind) bool { return kind == schema.GroupKind{Kind: "Pod"} }

// IsBuiltIn reports whether kind is a kind of Kubernetes that describes pods.
func IsBuiltIn(kind schema.GroupKind) bool {
	_, is := builtIn[kind]
	return is
}

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// IsLeaving reports whether an update only changes the finalizers of an object that is being
// deleted. A plugin must not reject such an update because it cannot read the object: the object
// would remain forever.
func IsLeaving(a admission.Attributes) bool {
	old, err := meta.Accessor(a.GetOldObject())
	return err == nil && old.GetDeletionTimestamp() != nil && plugins.IsUpkeep(a)
}

// Template describes pods. What a plugin changes in it takes effect with [Object.Write].
type Template struct {
	// Path is where it stands in the object, as the fields of an error are written; empty for a Pod.
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

// Object is what describes pods.
type Object struct {
	Templates []*Template

	stored  runtime.Object
	typed   runtime.Object             // of a version, nil for an unstructured one
	maps    []map[string]any           // of an unstructured one's templates
	convert admission.ObjectInterfaces // from typed to stored, where they differ
}

// Read returns what obj describes, nil where its kind describes no pods. obj may be a server's
// internal object, one of a version, or unstructured; it is not changed, and may be shared with the
// result until that is changed. An error means that obj MUST be refused.
func (k Kinds) Read(obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) (*Object, error) {
	paths, describes := k[kind.GroupKind()]
	if !describes || obj == nil {
		return nil, nil
	}
	if u, is := obj.(runtime.Unstructured); is {
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

// typed returns the templates of an object of a version.
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
			// Not the whole object, of which a Pod has a status too.
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

// walk calls found with each map at path. What is not there describes no pods; what is there and is
// something else is an error.
func walk(from any, path []string, at string, found func(string, map[string]any) error) error {
	if from == nil {
		return nil
	}
	if len(path) == 0 {
		m, is := from.(map[string]any)
		if !is {
			return errTemplate
		}
		return found(strings.TrimPrefix(at, "."), m)
	}
	name, rest := path[0], path[1:]
	switch here := from.(type) {
	case map[string]any:
		if name != each {
			return walk(here[name], rest, at+"."+name, found)
		}
		for _, key := range slices.Sorted(maps.Keys(here)) {
			if err := walk(here[key], rest, at+"["+key+"]", found); err != nil {
				return err
			}
		}
		return nil
	case []any:
		if name != each {
			return errTemplate
		}
		for i, element := range here {
			if err := walk(element, rest, at+"["+strconv.Itoa(i)+"]", found); err != nil {
				return err
			}
		}
		return nil
	}
	return errTemplate
}

// Write puts what was set in the templates' annotations, labels and those fields of their specs
// that say where pods run into the object that was read. Nothing that was there is taken away.
func (o *Object) Write() error {
	if o.typed != nil {
		if o.convert == nil {
			return nil // the templates are the object's own
		}
		return o.convert.GetObjectConvertor().Convert(o.typed, o.stored, nil)
	}
	for i, t := range o.Templates {
		is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.PodTemplateSpec{
			ObjectMeta: *t.Meta,
			Spec:       *t.Spec,
		})
		if err != nil {
			return err
		}
		for _, f := range writable {
			value, has, err := unstructured.NestedFieldNoCopy(is, f...)
			if err != nil || !has {
				continue
			}
			if err := unstructured.SetNestedField(o.maps[i], value, f...); err != nil {
				return err
			}
		}
	}
	return nil
}

// writable are the fields that plugins set.
var writable = [][]string{
	{"metadata", "annotations"},
	{"metadata", "labels"},
	{"spec", "nodeSelector"},
	{"spec", "tolerations"},
	{"spec", "schedulerName"},
}

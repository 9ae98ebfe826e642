// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package template parses NamespaceTemplates and renders their objects for a namespace.
package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Kinds returns the kinds of the objects that a template may contain, and their resources. No
// object of these kinds grants rights. Rights are granted only by Tenants and TenantMembers, whose
// subjects the server checks.
func Kinds() map[schema.GroupVersionKind]schema.GroupVersionResource {
	core, networking := corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion
	return map[schema.GroupVersionKind]schema.GroupVersionResource{
		core.WithKind("ConfigMap"):           core.WithResource("configmaps"),
		core.WithKind("LimitRange"):          core.WithResource("limitranges"),
		core.WithKind("ResourceQuota"):       core.WithResource("resourcequotas"),
		networking.WithKind("NetworkPolicy"): networking.WithResource("networkpolicies"),
	}
}

// typed returns an empty object of the given kind, which must be one of [Kinds].
func typed(kind string) any {
	switch kind {
	case "ConfigMap":
		return &corev1.ConfigMap{}
	case "LimitRange":
		return &corev1.LimitRange{}
	case "ResourceQuota":
		return &corev1.ResourceQuota{}
	}
	return &networkingv1.NetworkPolicy{}
}

// maxRendered is the maximum total size of the objects that a template defines in one namespace,
// in bytes of JSON. It is approximately the maximum size of one object in etcd.
const maxRendered = 1 << 20

// longestName has the maximum length of a value for the placeholders ${tenant} and ${namespace}.
const longestName = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// Template is the content of a NamespaceTemplate. Callers MUST NOT change it.
type Template struct {
	// Objects are the objects before placeholders are replaced.
	Objects []map[string]any
	// Hold specifies whether Pods in a new namespace wait until the namespace is prepared.
	Hold bool
	// Created is the time of creation of the NamespaceTemplate.
	Created time.Time
	// Digest is a hash of the objects.
	Digest string
}

// Object is an object that a template defines for a namespace.
type Object struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// Parse reads the objects of a NamespaceTemplate.
func Parse(stored *v1alpha1.NamespaceTemplate) (*Template, error) {
	t := &Template{
		Objects: make([]map[string]any, len(stored.Spec.Objects)),
		Hold:    stored.Spec.Hold,
		Created: stored.CreationTimestamp.Time,
	}
	for i, o := range stored.Spec.Objects {
		text, err := o.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("spec.objects[%d]: %w", i, err)
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &t.Objects[i]); err != nil {
			return nil, fmt.Errorf("spec.objects[%d]: %w", i, err)
		}
	}
	// The JSON of a map has sorted keys, so the digest does not depend on the order of the
	// fields.
	text, err := json.Marshal(t.Objects)
	sum := sha256.Sum256(text)
	t.Digest = hex.EncodeToString(sum[:16])
	return t, err
}

// Contains reports whether the template has an object with the given resource and name in a
// namespace of a tenant.
func (t *Template) Contains(id tenant.ID, namespace string, resource schema.GroupResource, name string) bool {
	replace := replacer(id, namespace)
	return slices.ContainsFunc(t.Objects, func(content map[string]any) bool {
		u := unstructured.Unstructured{Object: content}
		return Kinds()[u.GroupVersionKind()].GroupResource() == resource && replace.Replace(u.GetName()) == name
	})
}

// Replace returns a copy of an object in which the placeholders "${tenant}" and "${namespace}"
// are replaced with the tenant's ID and the name of the namespace.
func Replace(content map[string]any, id tenant.ID, namespace string) map[string]any {
	out, _ := replaceAll(runtime.DeepCopyJSON(content), replacer(id, namespace)).(map[string]any)
	return out
}

func replacer(id tenant.ID, namespace string) *strings.Replacer {
	return strings.NewReplacer("${tenant}", id.String(), "${namespace}", namespace)
}

// Validate returns the first problem with the objects. The error contains the path of the field.
// Validate uses the longest possible tenant ID and namespace name, so that the template is valid
// for every namespace.
func (t *Template) Validate() error {
	id, err := tenant.Parse(longestName)
	if err != nil {
		return err
	}
	_, err = t.Render(id, longestName)
	return err
}

// Resources returns the distinct resources of the objects, sorted. It ignores objects that a
// template may not contain.
func (t *Template) Resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, content := range t.Objects {
		u := unstructured.Unstructured{Object: content}
		if r, known := Kinds()[u.GroupVersionKind()]; known && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Render returns all objects for a namespace of a tenant. metadata.namespace of the objects is not
// set. An error contains the path of the invalid field.
func (t *Template) Render(id tenant.ID, namespace string) ([]Object, error) {
	replace := replacer(id, namespace)
	seen := map[string]bool{}
	var out []Object
	for i, content := range t.Objects {
		object, err := render(content, replace)
		if err == nil {
			key := object.Resource.Resource + "/" + object.Object.GetName()
			if seen[key] {
				err = errors.New("has the same kind and name as another object")
			}
			seen[key] = true
		}
		if err != nil {
			return nil, fmt.Errorf("spec.objects[%d]: %w", i, err)
		}
		out = append(out, object)
	}
	text, err := json.Marshal(out)
	if err == nil && len(text) > maxRendered {
		err = fmt.Errorf("spec.objects: must have at most %d bytes in total with the longest names, but have %d",
			maxRendered, len(text))
	}
	return out, err
}

// render returns one object of a template after it has replaced the placeholders.
func render(content map[string]any, replace *strings.Replacer) (out Object, err error) {
	u := &unstructured.Unstructured{Object: content}
	resource, known := Kinds()[u.GroupVersionKind()]
	if !known {
		return out, fmt.Errorf("kind %q of apiVersion %q: must be ConfigMap, LimitRange or ResourceQuota of v1, or "+
			"NetworkPolicy of networking.k8s.io/v1", u.GetKind(), u.GetAPIVersion())
	}
	if content, _ = replaceAll(runtime.DeepCopyJSON(content), replace).(map[string]any); content == nil {
		return out, errors.New("is not an object")
	}
	u = &unstructured.Unstructured{Object: content}
	if err := checkMetadata(content); err != nil {
		return out, err
	}
	if u.GetKind() == "ConfigMap" && u.GetName() == "kube-root-ca.crt" {
		return out, errors.New("metadata.name: kube-controller-manager creates the ConfigMap of this name")
	}
	if _, ok := content["status"]; ok {
		return out, errors.New("status must not be set")
	}
	text, err := json.Marshal(content)
	if err != nil {
		return out, err
	}
	if strict, err := kjson.UnmarshalStrict(text, typed(u.GetKind())); err != nil || len(strict) > 0 {
		return out, errors.Join(append(strict, err)...)
	}
	return Object{Resource: resource, Object: u}, nil
}

// checkMetadata rejects metadata that a template may not specify.
func checkMetadata(content map[string]any) error {
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return errors.New("metadata.name must be set")
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !slices.Contains([]string{"name", "labels", "annotations"}, key) {
			return fmt.Errorf("metadata.%s must not be set", key)
		}
	}
	name, _ := metadata["name"].(string)
	if wrong := apivalidation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return fmt.Errorf("metadata.name %q: %s", name, wrong[0])
	}
	for _, field := range []string{"labels", "annotations"} {
		keys, _, err := unstructured.NestedStringMap(metadata, field)
		if err != nil {
			return fmt.Errorf("metadata.%s: all values must be strings", field)
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if strings.HasPrefix(key, tenant.Domain+"/") {
				return fmt.Errorf("metadata.%s: the key %s is reserved", field, key)
			}
		}
	}
	return nil
}

// replaceAll replaces placeholders in string values, but never in keys.
func replaceAll(value any, replace *strings.Replacer) any {
	switch value := value.(type) {
	case string:
		return replace.Replace(value)
	case []any:
		for i := range value {
			value[i] = replaceAll(value[i], replace)
		}
	case map[string]any:
		for key := range value {
			value[key] = replaceAll(value[key], replace)
		}
	}
	return value
}

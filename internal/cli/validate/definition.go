// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	openapi "k8s.io/kube-openapi/pkg/validation/validate"
	kyaml "sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// definition is the scope and the schema of a CustomResourceDefinition.
type definition struct {
	namespaced bool
	schema     *spec.Schema
}

// definitions returns the CustomResourceDefinitions of kubetenant, keyed by kind.
func definitions() (map[string]*definition, error) {
	all := map[string]*definition{}
	for name, text := range deploy.Definitions() {
		var crd struct {
			Spec struct {
				Scope    string `json:"scope"`
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema *spec.Schema `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := kyaml.Unmarshal([]byte(text), &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, v := range crd.Spec.Versions {
			all[crd.Spec.Names.Kind] = &definition{
				namespaced: crd.Spec.Scope == "Namespaced",
				schema:     v.Schema.OpenAPIV3Schema,
			}
		}
	}
	return all, nil
}

// objects returns the findings for objects that have a CustomResourceDefinition of kubetenant.
func (r *run) objects(_ *file, docs []document) ([]Finding, error) {
	all, err := definitions()
	if err != nil {
		return nil, err
	}
	var found []Finding
	for i := range docs {
		d := &docs[i]
		if wrongVersion(d) != nil {
			continue // unknownDocuments reports it
		}
		problems := all[d.kind].check(d)
		if !hasError(problems) {
			refused, err := r.subjects(d)
			if err != nil {
				return nil, err
			}
			problems = append(problems, refused...)
		}
		found = append(found, problems...)
	}
	return found, nil
}

// check returns the findings for an object. Like the API server, it checks the fields and the
// schema before the CEL rules. It checks the rules of the controllers last, if it has found no
// error.
func (k *definition) check(d *document) []Finding {
	if found := d.duplicates(); len(found) > 0 {
		return found
	}
	value, err := d.value()
	if err != nil {
		return []Finding{d.at("", err.Error(), "write an object")}
	}
	var found []Finding
	unknownFields(k.schema, value, "", func(path, name string, known []string) {
		reason, fix := unknownField(name, known)
		found = append(found, d.at(path, reason, fix))
	})
	delete(value, "status") // the API server ignores a status in a creation
	setDefaults(k.schema, value)
	found = append(found, k.metadata(d, value)...)
	schema := k.structure(d, value)
	if found = append(found, schema...); len(schema) > 0 {
		return found
	}
	rules := k.rules(d, value)
	if found = append(found, rules...); hasError(found) {
		return found
	}
	if problems := undecoded(d, value); len(problems) > 0 {
		return append(found, problems...)
	}
	for _, f := range controllers(d, value) {
		if f.Fix == "" {
			f.Fix = k.described(strings.TrimPrefix(f.Field, d.prefix))
		}
		found = append(found, f)
	}
	return found
}

// unknownFields calls report for each field that a schema does not contain.
func unknownFields(s *spec.Schema, value any, path string, report func(fieldPath, name string, known []string)) {
	if preserved, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); preserved {
		return
	}
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			if s.Items != nil && s.Items.Schema != nil {
				unknownFields(s.Items.Schema, item, fmt.Sprintf("%s[%d]", path, i), report)
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			fieldPath := strings.TrimPrefix(path+"."+name, ".")
			if fieldPath == "metadata" { // metadata has its own type
				continue
			}
			property, known := s.Properties[name]
			switch {
			case known:
				unknownFields(&property, value[name], fieldPath, report)
			case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
				unknownFields(s.AdditionalProperties.Schema, value[name], fieldPath, report)
			case len(s.Properties) > 0:
				report(fieldPath, name, slices.Collect(maps.Keys(s.Properties)))
			}
		}
	}
}

// setDefaults sets the default values in a schema. Like the API server, it first removes null
// fields that the schema does not allow. It retains null items in lists.
func setDefaults(s *spec.Schema, value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if s.Items != nil && s.Items.Schema != nil {
				setDefaults(s.Items.Schema, item)
			}
		}
	case map[string]any:
		for name, field := range value {
			if property := fieldOf(s, name); property != nil && field == nil && !property.Nullable {
				delete(value, name)
			}
		}
		for name := range s.Properties {
			if _, set := value[name]; !set && s.Properties[name].Default != nil {
				value[name] = s.Properties[name].Default
			}
		}
		for name, field := range value {
			if property := fieldOf(s, name); property != nil {
				setDefaults(property, field)
			}
		}
	}
}

// fieldOf returns the schema of a field of a map, or nil.
func fieldOf(s *spec.Schema, name string) *spec.Schema {
	if property, ok := s.Properties[name]; ok {
		return &property
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Schema
	}
	return nil
}

// metadata checks the metadata of an object. It accepts a missing namespace, because kubectl sets
// the namespace.
func (k *definition) metadata(d *document, value map[string]any) []Finding {
	content, ok := value["metadata"].(map[string]any)
	if !ok {
		return []Finding{d.at("metadata", "is required", "add metadata with a name")}
	}
	var found []Finding
	for _, m := range mismatches(typeOf[metav1.ObjectMeta](), content, "metadata") {
		found = append(found, m.finding(d))
	}
	meta := &metav1.ObjectMeta{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, meta)
	if err != nil || len(found) > 0 {
		return found // the mismatches already contain the error
	}
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = names.SimpleNameGenerator.GenerateName(meta.GenerateName)
		content["name"] = meta.Name // the rules check the name
	}
	if k.namespaced && meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault
	}
	if !k.namespaced && meta.Namespace != "" {
		meta.Namespace = "" // as the API server does
		w := d.at("metadata.namespace", "is ignored: "+d.kind+" objects are cluster-scoped", "remove it")
		w.Severity = Warning
		found = append(found, w)
	}
	errs := apivalidation.ValidateObjectMeta(meta, k.namespaced, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	for _, err := range errs {
		found = append(found, fieldError(d, err))
	}
	return found
}

// structure validates an object against the schema, without the CEL rules of the schema.
func (k *definition) structure(d *document, value map[string]any) []Finding {
	var found []Finding
	result := openapi.NewSchemaValidator(k.schema, nil, "", strfmt.Default).Validate(value)
	for _, err := range result.Errors {
		var at *openapierrors.Validation
		if !errors.As(err, &at) {
			found = append(found, d.at("", err.Error(), ""))
			continue
		}
		reason := strings.TrimPrefix(strings.TrimPrefix(err.Error(), at.Name), " in body ")
		path := strings.TrimPrefix(at.Name, ".")
		name := path[strings.LastIndexByte(path, '.')+1:]
		fix := k.described(path)
		switch at.Code() {
		case openapierrors.InvalidTypeCode:
			_, name, _ := strings.Cut(reason, "must be of type ")
			name, _, _ = strings.Cut(name, ":") // the value follows the colon
			reason, fix = "must be "+formOfType(name), "write "+formOfType(name)
		case openapierrors.RequiredFailCode:
			fix = "add " + name
		case openapierrors.EnumFailCode:
			reason = "is not a value of this field"
			fix = "write one of " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(at.Values), "[]")), ", ")
		}
		found = append(found, d.at(path, reason, fix))
	}
	return found
}

// formOfType describes the values of a schema type for an error message.
func formOfType(name string) string {
	switch name {
	case "array":
		return "a list"
	case "object":
		return "a map"
	case "boolean":
		return "true or false"
	case "integer":
		return "a whole number"
	}
	return "a " + name
}

// described returns a fix that contains the first two sentences of a field's description, or "".
func (k *definition) described(path string) string {
	const sentences = 2
	parts := strings.SplitAfterN(k.description(path), ". ", sentences+1)
	text := strings.TrimSpace(strings.Join(parts[:min(sentences, len(parts))], ""))
	if text == "" {
		return ""
	}
	return fmt.Sprintf("write a value that fits the description: %s", text)
}

// description returns the description of a field, or of its nearest parent field that has one.
func (k *definition) description(path string) string {
	s := k.schema
	text := ""
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		next, ok := s.Properties[name]
		switch {
		case ok:
			s = &next
		case s.Items != nil && s.Items.Schema != nil:
			s = s.Items.Schema
		case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
			s = s.AdditionalProperties.Schema
		default:
			return text
		}
		if s.Description != "" {
			text = strings.Join(strings.Fields(s.Description), " ")
		}
	}
	return text
}

// controllers returns the findings for rules that the controllers check, but the API server does
// not.
func controllers(d *document, value map[string]any) []Finding {
	object := &unstructured.Unstructured{Object: value}
	switch d.kind {
	case v1alpha1.KindAccessGrant:
		if _, err := accessgrant.Parse(object); err != nil {
			return fieldErrors(d, err)
		}
	case v1alpha1.KindTenant:
		return limits(d, value, "spec", "quota")
	case v1alpha1.KindTenantQuota:
		return limits(d, value, "spec", "hard")
	case v1alpha1.KindNamespaceTemplate:
		if found := templateObjects(d, value); len(found) > 0 {
			return found
		}
		if err := validateTemplate(object); err != nil {
			return fieldErrors(d, err)
		}
	case v1alpha1.KindPublication:
		if err := validatePublication(object); err != nil {
			return fieldErrors(d, err)
		}
	}
	return nil
}

// limits returns the findings for the resource limits at the path fields.
func limits(d *document, value map[string]any, fields ...string) []Finding {
	hard, _, _ := unstructured.NestedMap(value, fields...)
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		path := fmt.Sprintf("%s[%s]", strings.Join(fields, "."), name)
		if len(quota.Resources(corev1.ResourceName(name))) == 0 {
			found = append(found, d.at(path, "no object uses it",
				"use a resource name that ResourceQuota accepts, such as pods or requests.cpu"))
		}
	}
	return found
}

// templateObjects returns the findings for the objects in a NamespaceTemplate.
func templateObjects(d *document, value map[string]any) []Finding {
	types := map[string]reflect.Type{
		"ConfigMap":     reflect.TypeFor[corev1.ConfigMap](),
		"LimitRange":    reflect.TypeFor[corev1.LimitRange](),
		"ResourceQuota": reflect.TypeFor[corev1.ResourceQuota](),
		"NetworkPolicy": reflect.TypeFor[networkingv1.NetworkPolicy](),
	}
	var found []Finding
	objects, _, _ := unstructured.NestedSlice(value, "spec", "objects")
	for i, object := range objects {
		content, ok := object.(map[string]any)
		if !ok {
			continue // the schema rejects it
		}
		t, isKnown := types[fmt.Sprint(content["kind"])]
		if !isKnown {
			continue // a rule of the schema rejects it
		}
		for _, m := range mismatches(t, content, fmt.Sprintf("spec.objects[%d]", i)) {
			found = append(found, m.finding(d))
		}
	}
	return found
}

// fieldErrors returns a finding for each error in err.
func fieldErrors(d *document, err error) []Finding {
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		return []Finding{textError(d, err.Error())}
	}
	var found []Finding
	for _, e := range utilerrors.Flatten(all).Errors() {
		var at *field.Error
		if errors.As(e, &at) {
			found = append(found, fieldError(d, at))
			continue
		}
		found = append(found, textError(d, e.Error()))
	}
	return found
}

// fieldError returns the finding for a field error.
func fieldError(d *document, err *field.Error) Finding {
	return d.at(err.Field, err.ErrorBody(), fieldFix(err))
}

// validatePublication validates a Publication, except for rules that depend on the server's
// configuration.
func validatePublication(object *unstructured.Unstructured) error {
	decoded, err := typed.Decode[v1alpha1.Publication](object)
	if err != nil {
		return err
	}
	parsed, err := publication.Parse(decoded)
	if err != nil {
		return err
	}
	resource, _ := meta.UnsafeGuessKindToResource(parsed.From.Kind)
	if err := publication.CheckKind(publication.Kind{
		Kind:     parsed.From.Kind.GroupKind(),
		Resource: resource.Resource,
	}); err != nil {
		return fmt.Errorf("spec.from.%w", err)
	}
	return nil
}

func validateTemplate(object *unstructured.Unstructured) error {
	decoded, err := typed.Decode[v1alpha1.NamespaceTemplate](object)
	if err != nil {
		return err
	}
	parsed, err := template.Parse(decoded)
	if err != nil {
		return err
	}
	return parsed.Validate()
}

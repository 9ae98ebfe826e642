// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/internal/projection"
)

// clustersView is the name of the view of clusters.
const clustersView = "clusters"

func validateObjectViews(views []GatewayObjectView, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range views {
		v := &views[i]
		p := path.Index(i)
		switch {
		case v.Name == clustersView:
			errs = append(errs, field.Forbidden(p.Child("name"), "clusters is the view of the gateway's clusters"))
		case len(validation.IsDNS1035Label(v.Name)) > 0:
			errs = append(errs, field.Invalid(p.Child("name"), v.Name,
				"must be a lower-case DNS label that begins with a letter"))
		case names.Has(v.Name):
			errs = append(errs, field.Duplicate(p.Child("name"), v.Name))
		}
		names.Insert(v.Name)
		errs = append(errs, v.Of.validate(p.Child("of"))...)
		errs = append(errs, v.validatePaths(p)...)
	}
	return errs
}

func (s *GatewayViewSource) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Group != "" && len(validation.IsDNS1123Subdomain(s.Group)) > 0 {
		errs = append(errs, field.Invalid(path.Child("group"), s.Group, "must be an API group"))
	}
	for _, f := range []struct{ name, is string }{{"version", s.Version}, {"resource", s.Resource}} {
		switch {
		case f.is == "":
			errs = append(errs, field.Required(path.Child(f.name), ""))
		case len(validation.IsDNS1035Label(f.is)) > 0:
			errs = append(errs, field.Invalid(path.Child(f.name), f.is, "may not contain wildcards or subresources"))
		}
	}
	return errs
}

// shownMetadata returns the fields of metadata that a view may show in addition to individual
// labels and annotations. Every view shows the name, the namespace and the resource version.
func shownMetadata() []string { return []string{"creationTimestamp", "generation", "uid"} }

func (v *GatewayObjectView) validatePaths(path *field.Path) field.ErrorList {
	if v.NamespaceFrom == "" {
		return field.ErrorList{field.Required(path.Child("namespaceFrom"), "")}
	}
	from, err := projection.Parse(v.NamespaceFrom)
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("namespaceFrom"), v.NamespaceFrom, err.Error())}
	}
	if len(v.Fields) == 0 {
		return field.ErrorList{field.Required(path.Child("fields"), "must list at least one field")}
	}
	var errs field.ErrorList
	all := []projection.Path{from}
	for i, text := range v.Fields {
		p, err := projection.Parse(text)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("fields").Index(i), text, err.Error()))
		}
		all = append(all, p)
	}
	if len(errs) > 0 {
		return errs
	}
	if slices.ContainsFunc(all, from.Contains) {
		errs = append(errs, field.Invalid(path.Child("namespaceFrom"), v.NamespaceFrom,
			"must lead to a string, but a listed field is in it"))
	}
	for i, text := range v.Fields {
		p := all[i+1]
		at := path.Child("fields").Index(i)
		switch {
		case slices.Contains(v.Fields[:i], text):
			errs = append(errs, field.Duplicate(at, text))
		case slices.ContainsFunc(all, p.Contains):
			errs = append(errs, field.Invalid(at, text, "is an object or a list: list the fields in it instead"))
		case p.EndsInList() && !slices.Equal(p, from):
			errs = append(errs, field.Invalid(at, text,
				"may not end in [*], because the namespace of such an entry is unknown"))
		default:
			if reason := notShown(p); reason != "" {
				errs = append(errs, field.Invalid(at, text, reason))
			}
		}
	}
	return errs
}

// notShown returns the reason why no view may show the field at a path, or "" if a view may.
func notShown(p projection.Path) string {
	first := p[0].Field
	switch {
	case first == "apiVersion" || first == "kind":
		return "is the view's own"
	case first != "metadata":
		return ""
	case len(p) == 2 && slices.Contains(shownMetadata(), p[1].Field):
		return ""
	case len(p) != 3 || p[1].Field != "labels" && p[1].Field != "annotations":
		return "must be one label or annotation, or one of " + strings.Join(shownMetadata(), ", ") +
			": views always show metadata.name, metadata.namespace and metadata.resourceVersion"
	case p[2].Field == corev1.LastAppliedConfigAnnotation:
		return "contains the fields that are not listed"
	}
	return ""
}

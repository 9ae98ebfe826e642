// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Warnings returns a sentence for each valid setting that may not have the intended effect. Each
// sentence begins with the path of the field. Call Warnings after [Default].
func (s *Settings) Warnings() []string {
	warnings := s.Admission.Placement.warnings()
	for _, list := range s.Admission.Attribution.WorkloadUser.patterns() {
		at := field.NewPath("admission", "attribution", "workloadUser", list.name)
		for i, pattern := range list.patterns {
			// In YuniKorn, patterns are not anchored. A pattern that ends with a colon matches
			// names there.
			if strings.HasSuffix(pattern, ":") {
				warnings = append(warnings,
					at.Index(i).String()+": the pattern must match the whole name, and no name ends with a colon: append .*")
			}
		}
	}
	return slices.Concat(warnings, s.namelessTenants(), s.replacedDefaults())
}

// replacedDefaults returns a warning for each list that replaces its default and lacks at least one
// default entry. It returns no warning for an empty list, which is intended.
func (s *Settings) replacedDefaults() []string {
	var warnings []string
	for i := range s.Authentication.Sources {
		if x := s.Authentication.Sources[i].X509; x != nil {
			at := field.NewPath("authentication", "sources").Index(i).Child("x509", "systemOrganizations")
			warnings = append(warnings,
				replaced(at, x.SystemOrganizations, []string{user.SystemPrivilegedGroup}, plain)...)
		}
	}
	z := &s.Authorization
	authorization := field.NewPath("authorization")
	unbound := authorization.Child("unboundAllow")
	warnings = append(warnings, replaced(unbound.Child("paths"), z.UnboundAllow.Paths, unboundPaths(), plain)...)
	warnings = append(warnings,
		replaced(unbound.Child("resources"), z.UnboundAllow.Resources, unboundResources(), objectVerb)...)
	warnings = append(warnings, replaced(authorization.Child("sharedClusterResources"), z.SharedClusterResources,
		sharedResources(), groupResource)...)
	warnings = append(warnings, replaced(authorization.Child("selectableResources"), z.SelectableResources,
		selectableResources(), groupResource)...)
	return append(warnings, replaced(field.NewPath("admission", "restriction", "resources"),
		s.Admission.Restriction.Resources, restrictedResources(), groupResource)...)
}

func replaced[T comparable](at *field.Path, list, defaults []T, text func(T) string) []string {
	missing := absent(list, defaults)
	if len(list) == 0 || len(missing) == 0 {
		return nil
	}
	names := make([]string, 0, len(missing))
	for _, entry := range missing {
		names = append(names, text(entry))
	}
	return []string{fmt.Sprintf("%s: the list replaces the default list and does not contain its entries %s",
		at, strings.Join(names, ", "))}
}

func plain(text string) string { return text }

func groupResource(r GroupResource) string { return strings.TrimSuffix(r.Resource+"."+r.Group, ".") }

func objectVerb(r ObjectVerb) string {
	return r.Verb + " " + r.Resource + " " + r.Namespace + "/" + r.Name
}

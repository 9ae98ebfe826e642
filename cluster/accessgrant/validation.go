// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// maxGrantedActions is the maximum number of actions that one grant allows. The number is limited
// because the server checks each action when the grant is written.
const maxGrantedActions = 1000

// Parse decodes an AccessGrant and validates it.
func Parse(obj runtime.Object) (*v1alpha1.AccessGrant, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	g := &v1alpha1.AccessGrant{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, g, true); err != nil {
		return nil, err
	}
	return g, Validate(g).ToAggregate()
}

// Accepted reports whether the condition Accepted of a grant is not False. A grant without the
// condition is accepted.
func Accepted(g *v1alpha1.AccessGrant) bool {
	return !meta.IsStatusConditionFalse(g.Status.Conditions, v1alpha1.ConditionAccepted)
}

// Action is an action on a resource that a grant allows.
type Action struct {
	APIGroup, Resource, Subresource, Name, Verb string
}

// Actions returns all combinations of API groups, resources, names and verbs in each rule of a
// grant.
func Actions(g *v1alpha1.AccessGrant) []Action {
	var all []Action
	for _, r := range g.Spec.To {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, full := range r.Resources {
				all = append(all, actionsOn(group, full, names, r.Verbs)...)
			}
		}
	}
	return all
}

// actionsOn returns the actions on a resource, which may be a subresource.
func actionsOn(group, full string, names, verbs []string) (all []Action) {
	resource, sub, _ := strings.Cut(full, "/")
	for _, name := range names {
		for _, verb := range verbs {
			all = append(all, Action{group, resource, sub, name, verb})
		}
	}
	return all
}

// Validate returns all problems with a grant. The schema in the CustomResourceDefinition has the
// same rules, but the server does not rely on the schema.
func Validate(g *v1alpha1.AccessGrant) field.ErrorList {
	spec := field.NewPath("spec")
	from := spec.Child("from")
	var errs field.ErrorList
	id, err := tenant.Parse(g.Spec.From.Tenant)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(from.Child("tenant"), g.Spec.From.Tenant, err.Error()))
	case id.IsSystem():
		errs = append(errs, field.Invalid(from.Child("tenant"), g.Spec.From.Tenant, "the system tenant needs no grant"))
	}
	if len(g.Spec.From.Users)+len(g.Spec.From.Groups)+len(g.Spec.From.ServiceAccounts) == 0 {
		errs = append(errs, field.Required(from, "set users, groups or serviceAccounts"))
	}
	errs = append(errs, validateNamed(from.Child("users"), g.Spec.From.Users)...)
	errs = append(errs, validateNamed(from.Child("groups"), g.Spec.From.Groups)...)
	for i, group := range g.Spec.From.Groups {
		if strings.HasPrefix(group, tenant.GroupPrefix) && err == nil && group != id.Group() {
			errs = append(errs,
				field.Invalid(from.Child("groups").Index(i), group, "is the group of another tenant, so no caller of "+
					"spec.from.tenant is in it"))
		}
	}
	for i, name := range g.Spec.From.ServiceAccounts {
		if name.Namespace == "" || name.Name == "" {
			errs = append(errs, field.Required(from.Child("serviceAccounts").Index(i), "must have namespace and name"))
		}
	}
	if len(g.Spec.To) == 0 {
		errs = append(errs, field.Required(spec.Child("to"), ""))
	}
	actions := 0
	for i := range g.Spec.To {
		r := &g.Spec.To[i]
		errs = append(errs, validateGrantRule(spec.Child("to").Index(i), r)...)
		actions += len(r.APIGroups) * len(r.Resources) * max(1, len(r.ResourceNames)) * len(r.Verbs)
	}
	if actions > maxGrantedActions {
		errs = append(errs,
			field.Forbidden(spec.Child("to"), fmt.Sprintf("has %d actions, at most %d are allowed", actions, maxGrantedActions)))
	}
	return errs
}

func validateGrantRule(path *field.Path, r *v1alpha1.AccessGrantRule) field.ErrorList {
	var errs field.ErrorList
	for name, list := range map[string][]string{"apiGroups": r.APIGroups, "resources": r.Resources, "verbs": r.Verbs} {
		if len(list) == 0 {
			errs = append(errs, field.Required(path.Child(name), ""))
		}
	}
	for i, group := range r.APIGroups {
		if strings.Contains(group, "*") {
			errs = append(errs, field.Invalid(path.Child("apiGroups").Index(i), group, "wildcards are not allowed"))
		}
	}
	errs = append(errs, validateNamed(path.Child("resources"), r.Resources)...)
	errs = append(errs, validateNamed(path.Child("resourceNames"), r.ResourceNames)...)
	errs = append(errs, validateNamed(path.Child("verbs"), r.Verbs)...)
	for i, verb := range r.Verbs {
		if strings.HasPrefix(strings.ToLower(verb), "impersonate") {
			errs = append(errs, field.Invalid(path.Child("verbs").Index(i), verb, "impersonation cannot be granted"))
		}
	}
	for i, resource := range r.Resources {
		if reason := ungrantable(r, resource); reason != "" {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i), resource, reason))
		}
		if base, _, _ := strings.Cut(resource, "/"); base == "namespaces" {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i), resource, "access to the Namespace object "+
				"itself cannot be granted"))
		}
	}
	return errs
}

// ungrantable returns the reason why a resource cannot be granted with the API groups and verbs
// of the rule, or "" if it can be granted. Some rights cannot be granted because they would
// outlive or exceed the grant.
func ungrantable(r *v1alpha1.AccessGrantRule, resource string) string {
	base, sub, _ := strings.Cut(resource, "/")
	writes := slices.ContainsFunc(r.Verbs, func(verb string) bool {
		return verb != "get" && verb != "list" && verb != "watch"
	})
	switch {
	case base == "serviceaccounts" && sub == "token" && slices.Contains(r.APIGroups, ""):
		return "tokens cannot be granted: they would stay valid after the grant ends"
	case (base == "roles" || base == "rolebindings") && slices.Contains(r.APIGroups, "rbac.authorization.k8s.io") &&
		writes:
		return "writes to roles and bindings cannot be granted: they could give more rights than the grant"
	}
	return ""
}

// validateNamed rejects empty names and wildcards.
func validateNamed(path *field.Path, names []string) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		if name == "" || strings.Contains(name, "*") {
			errs = append(errs, field.Invalid(path.Index(i), name, "must be a name, wildcards are not allowed"))
		}
	}
	return errs
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// Validate returns every problem in s. [Default] MUST have been applied to s. The path of each
// field in the problems begins with path.
func Validate(s *Settings, path *field.Path) field.ErrorList {
	errs := validateAuthentication(&s.Authentication, path.Child("authentication"))
	errs = append(errs, validateAuthorization(&s.Authorization, path.Child("authorization"))...)
	errs = append(errs, validateAdmission(&s.Admission, path.Child("admission"))...)
	errs = append(errs, validateFairUse(&s.FairUse, path.Child("fairUse"))...)
	errs = append(errs, validateUsage(&s.Usage, path.Child("usage"))...)
	errs = append(errs, s.Audit.validate(path.Child("audit"))...)
	errs = append(errs, validateService(&s.Service, path.Child("service"))...)
	if s.Gateway != nil {
		errs = append(errs, validateGateway(s.Gateway, path.Child("gateway"))...)
		errs = append(errs, validateGatewaySources(s.Authentication.Sources, path.Child("authentication", "sources"))...)
	}
	return errs
}

// The upper bounds of authentication.limits. Identities travel between servers in headers, and
// kube-apiserver accepts at most 1 MiB of headers (net/http).
const (
	maxIdentityBytes  = 1 << 20
	maxIdentityGroups = 20_000
)

func validateAuthentication(a *Authentication, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	claimed := &claimed{issuers: map[string]string{}, prefixes: map[string]string{}}
	if a.Revocation != nil && a.Revocation.Path == "" {
		errs = append(errs, field.Required(path.Child("revocation", "path"), ""))
	}
	for _, f := range []struct {
		name        string
		value, most int
	}{{"bytes", a.Limits.Bytes, maxIdentityBytes}, {"groups", a.Limits.Groups, maxIdentityGroups}} {
		if f.value < 1 || f.value > f.most {
			errs = append(errs,
				field.Invalid(path.Child("limits", f.name), f.value, fmt.Sprintf("must be between 1 and %d", f.most)))
		}
	}
	for i := range a.Sources {
		src := &a.Sources[i]
		p := path.Child("sources").Index(i)
		switch {
		case src.Name == "":
			errs = append(errs, field.Required(p.Child("name"), "must be set, because logs and identities name the source"))
		case len(validation.IsDNS1123Label(src.Name)) > 0:
			errs = append(errs, field.Invalid(p.Child("name"), src.Name, "must be a lower-case DNS label"))
		case names.Has(src.Name):
			errs = append(errs, field.Duplicate(p.Child("name"), src.Name))
		}
		names.Insert(src.Name)
		errs = append(errs, src.validate(claimed, p)...)
	}
	return errs
}

func validateAuthorization(a *Authorization, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	subjects := path.Child("systemSubjects")
	errs = append(errs, validateNames(a.SystemSubjects.Users, subjects.Child("users"))...)
	errs = append(errs, validateNames(a.SystemSubjects.UserPrefixes, subjects.Child("userPrefixes"))...)
	errs = append(errs, validateNames(a.SystemSubjects.Groups, subjects.Child("groups"))...)
	for _, everybody := range []string{user.AllAuthenticated, user.AllUnauthenticated, "system:serviceaccounts"} {
		if i := slices.Index(a.SystemSubjects.Groups, everybody); i >= 0 {
			errs = append(errs,
				field.Invalid(subjects.Child("groups").Index(i), everybody, "would assign every caller to the system tenant"))
		}
	}
	if i := slices.Index(a.SystemSubjects.Users, user.Anonymous); i >= 0 {
		errs = append(errs,
			field.Invalid(subjects.Child("users").Index(i), user.Anonymous, "would assign every caller to the system tenant"))
	}
	for i, prefix := range a.SystemSubjects.UserPrefixes {
		for _, everybody := range []string{user.Anonymous, serviceaccount.ServiceAccountUsernamePrefix} {
			if prefix != "" && strings.HasPrefix(everybody, prefix) {
				errs = append(errs,
					field.Invalid(subjects.Child("userPrefixes").Index(i), prefix, "would assign every caller to the system tenant"))
				break
			}
		}
	}
	if !slices.Contains(a.SystemNamespaces, metav1.NamespaceSystem) {
		errs = append(errs, field.Required(path.Child("systemNamespaces"),
			"must contain kube-system, because its service accounts are those of the cluster's own controllers"))
	}
	for i, ns := range a.SystemNamespaces {
		if len(validation.IsDNS1123Label(ns)) > 0 {
			errs = append(errs, field.Invalid(path.Child("systemNamespaces").Index(i), ns, "must be the name of a namespace"))
		}
	}
	unbound := path.Child("unboundAllow")
	for i, p := range a.UnboundAllow.Paths {
		if !strings.HasPrefix(p, "/") || strings.Contains(p, "*") {
			errs = append(errs, field.Invalid(unbound.Child("paths").Index(i), p, "must begin with / and may not contain *"))
		}
	}
	for i, r := range a.UnboundAllow.Resources {
		errs = append(errs, validateObjectVerb(r, unbound.Child("resources").Index(i))...)
	}
	errs = append(errs, validateResources(a.SharedClusterResources, path.Child("sharedClusterResources"))...)
	if a.ABAC != nil && a.ABAC.Path == "" {
		errs = append(errs, field.Required(path.Child("abac", "path"), ""))
	}
	if a.Mode != ModeEnforce && a.Mode != ModeShadow {
		errs = append(errs, field.NotSupported(path.Child("mode"), a.Mode, []Mode{ModeEnforce, ModeShadow}))
	}
	all := []RequireTenant{RequireTenantNever, RequireTenantWarn, RequireTenantAlways}
	if !slices.Contains(all, a.RequireTenant) {
		errs = append(errs, field.NotSupported(path.Child("requireTenant"), a.RequireTenant, all))
	}
	if e := a.RBAC.Evaluator; e != EvaluatorIndexed && e != EvaluatorUpstream {
		errs = append(errs,
			field.NotSupported(path.Child("rbac", "evaluator"), e, []Evaluator{EvaluatorIndexed, EvaluatorUpstream}))
	}
	return append(errs, validateResources(a.SelectableResources, path.Child("selectableResources"))...)
}

func validateObjectVerb(r ObjectVerb, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"verb", r.Verb, true},
		{"group", r.Group, false},
		{"resource", r.Resource, true},
		{"namespace", r.Namespace, false},
		{"name", r.Name, true},
	} {
		if f.required && f.value == "" {
			errs = append(errs, field.Required(path.Child(f.name), ""))
		}
		if strings.Contains(f.value, "*") {
			errs = append(errs, field.Invalid(path.Child(f.name), f.value, "may not contain *"))
		}
	}
	return errs
}

// validateKeys checks the keys that tenants may set on namespaces. Each must be a qualified name or
// "domain/*". Keys of domains that the plugin protects are invalid.
func validateKeys(keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, key := range keys {
		domain, name, hasDomain := strings.Cut(key, "/")
		if !hasDomain && len(validation.IsQualifiedName(key)) == 0 { // a webhook may select namespaces by this key
			continue
		}
		switch {
		case name != "*" && len(validation.IsQualifiedName(key)) > 0, len(validation.IsDNS1123Subdomain(domain)) > 0:
			errs = append(errs,
				field.Invalid(path.Index(i), key, "must be a qualified name (for example example.com/key) or domain/*"))
		case domain == tenant.Domain, domain == "pod-security.kubernetes.io":
			errs = append(errs, field.Forbidden(path.Index(i), "keys of this domain may not be allowed"))
		}
	}
	return errs
}

func validateResources(list []GroupResource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range list {
		if r.Resource == "" {
			errs = append(errs, field.Required(path.Index(i).Child("resource"), ""))
		}
		if strings.ContainsAny(r.Resource, "*/") || strings.Contains(r.Group, "*") {
			errs = append(errs, field.Invalid(path.Index(i), r, "may not contain wildcards or subresources"))
		}
	}
	return errs
}

// validateForm rejects a name, or a prefix of a name, that no identity can have.
func validateForm(name string, path *field.Path) field.ErrorList {
	if err := tenant.CheckForm("the name", name); err != nil {
		return field.ErrorList{field.Invalid(path, name, err.Error())}
	}
	return nil
}

func validateNames(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		if name == "" {
			errs = append(errs, field.Required(path.Index(i), "may not be empty"))
		}
		errs = append(errs, validateForm(name, path.Index(i))...)
	}
	return errs
}

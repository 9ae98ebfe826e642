// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fields returns all rules, keyed by field name. A rule that is not set is nil.
func (r *PolicyRules) fields() map[string]*FieldRule {
	return map[string]*FieldRule{
		"imageRegistries":   r.ImageRegistries,
		"imagePullPolicies": r.ImagePullPolicies,
		"ingressClasses":    r.IngressClasses,
		"gatewayClasses":    r.GatewayClasses,
		"hosts":             r.Hosts,
		"storageClasses":    r.StorageClasses,
		"serviceTypes":      r.ServiceTypes,
	}
}

// Fields returns the rules that are set, keyed by field name.
func (r *PolicyRules) Fields() map[string]FieldRule { return given(r.fields()) }

func defaultPolicy(p *Policy) {
	r := &p.PolicyRules
	for _, rule := range []**FieldRule{
		&r.ImageRegistries, &r.ImagePullPolicies, &r.IngressClasses, &r.GatewayClasses,
		&r.Hosts, &r.StorageClasses, &r.ServiceTypes,
	} {
		defaultValue(rule, FieldRule{Policy: FieldIgnore})
	}
	defaultRules(r.fields())
	for i := range p.Tenants {
		defaultRules(p.Tenants[i].fields())
	}
}

func validatePolicy(p *Policy, path *field.Path) field.ErrorList {
	errs := validateRules(p.fields(), path, PolicyEntryProblem)
	seen := sets.New[string]()
	for i := range p.Tenants {
		at := path.Child("tenants").Index(i)
		errs = append(errs, validateTenants(p.Tenants[i].Tenants, seen, at)...)
		errs = append(errs, validateRules(p.Tenants[i].fields(), at, PolicyEntryProblem)...)
	}
	return errs
}

// registry matches an image registry or a repository in a registry. A first component that has
// neither a dot nor a port is a name on Docker Hub, except localhost
// (github.com/distribution/reference, v0.6.0).
var registry = regexp.MustCompile(`\A` +
	`(localhost|[a-z0-9-]+(\.[a-z0-9-]+)+|[a-z0-9.-]+:[0-9]+|\[[0-9a-f:]+\](:[0-9]+)?)` +
	`(/[a-z0-9._-]+)*\z`)

// PolicyEntryProblem returns the problem of an entry in the list of the given field of
// [PolicyRules], or "" if the entry is valid.
func PolicyEntryProblem(name, entry string) string {
	plain := strings.ReplaceAll(entry, "{tenant}", "t") // the name of a tenant is a DNS label here
	oneOf := func(all ...string) string {
		if slices.Contains(all, entry) {
			return ""
		}
		return "must be one of " + strings.Join(all, ", ")
	}
	switch name {
	case "imageRegistries":
		if !registry.MatchString(plain) {
			return "must be a registry, for example docker.io, or a repository, for example " +
				"registry.example.com/{tenant}: in lower case, without a tag or wildcards"
		}
	case "imagePullPolicies":
		return oneOf(string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))
	case "serviceTypes":
		return oneOf(string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeLoadBalancer),
			string(corev1.ServiceTypeExternalName))
	case "hosts":
		if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(plain, "*."))) > 0 {
			return "must be a host, for example www.example.com, or a wildcard, for example *.{tenant}.example.com"
		}
	default:
		if len(validation.IsDNS1123Subdomain(plain)) > 0 {
			return "must be the name of a class, without wildcards"
		}
	}
	return ""
}

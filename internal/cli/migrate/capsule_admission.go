// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// admissionSettings contains the configuration's admission settings for the tenants in a file.
type admissionSettings struct {
	Policy    []configv1alpha1.TenantPolicy
	Placement []configv1alpha1.TenantPlacement
}

// file returns a configuration file with the settings, or "" if there are none. It returns an
// error if the server would reject the file.
func (s *admissionSettings) file() (string, error) {
	admission := map[string]any{}
	if len(s.Policy) > 0 {
		admission["policy"] = map[string]any{"tenants": s.Policy}
	}
	if len(s.Placement) > 0 {
		admission["placement"] = map[string]any{"tenants": s.Placement}
	}
	if len(admission) == 0 {
		return "", nil
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       configv1alpha1.KindTenancyConfiguration,
		"admission":  admission,
	})
	if err == nil {
		_, err = configv1alpha1.Decode(text)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", configurationFile, err)
	}
	return string(text), nil
}

// convertAdmission converts the settings of a tenant for which kubetenant has admission
// settings.
func (m *capsuleMigration) convertAdmission(t *capsuleTenant) {
	spec := t.get("spec")
	ingress := spec.get("ingressOptions")
	policy := configv1alpha1.TenantPolicy{
		Tenants: []string{t.id.String()},
		PolicyRules: configv1alpha1.PolicyRules{
			ImageRegistries:   convertRule("imageRegistries", spec.get("containerRegistries")),
			ImagePullPolicies: convertNames("imagePullPolicies", spec.get("imagePullPolicies")),
			IngressClasses:    convertRule("ingressClasses", ingress.get("allowedClasses")),
			Hosts:             convertRule("hosts", ingress.get("allowedHostnames")),
			GatewayClasses:    convertRule("gatewayClasses", spec.find("gatewayOptions.allowedClasses")),
			StorageClasses:    convertRule("storageClasses", spec.get("storageClasses")),
			ServiceTypes:      convertServices(spec.find("serviceOptions.allowedServices")),
		},
	}
	t.convertWildcards(ingress)
	if len(policy.Fields()) > 0 {
		m.settings.Policy = append(m.settings.Policy, policy)
	}
	placement := configv1alpha1.TenantPlacement{
		Tenants: policy.Tenants,
		PlacementRules: configv1alpha1.PlacementRules{
			PriorityClassName: convertRule("priorityClasses", spec.get("priorityClasses")),
			RuntimeClassName:  convertRule("runtimeClasses", spec.get("runtimeClasses")),
			Defaults:          convertNodeSelector(spec.get("nodeSelector")),
		},
	}
	if len(placement.Fields()) > 0 || placement.Defaults != nil {
		m.settings.Placement = append(m.settings.Placement, placement)
	}
}

// convertWildcards reports a difference in the treatment of hosts with a wildcard. Capsule
// rejects them unless allowWildcardHostnames is true. kubetenant allows them unless the allowed
// hosts are listed.
func (t *capsuleTenant) convertWildcards(ingress node) {
	if scope := ingress.get("hostnameCollisionScope"); scope.value == "Disabled" {
		scope.consume()
	}
	wildcards := ingress.get("allowWildcardHostnames")
	allowed, _ := wildcards.flag()
	areListed := ingress.get("allowedHostnames").isSet
	switch {
	case allowed && areListed:
		wildcards.reportUnconverted("hosts with a wildcard are limited, too; list them in admission.policy.hosts")
	case !allowed && !areListed:
		t.result.reportUnconverted(
			t.location,
			"spec.ingressOptions.allowWildcardHostnames: Capsule refuses hosts with a wildcard, but "+
				"kubetenant allows them; list the tenant's hosts in admission.policy.hosts",
		)
	}
}

func convertNodeSelector(selector node) *configv1alpha1.PlacementDefaults {
	labels := map[string]string{}
	for _, key := range selector.keys() {
		label := selector.get(key)
		value, isText := label.value.(string)
		if !isText || len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0 {
			label.reportUnconverted("this is not a valid label; correct it")
			continue
		}
		labels[key] = value
		label.consume()
	}
	if len(labels) == 0 {
		return nil
	}
	return &configv1alpha1.PlacementDefaults{NodeSelector: labels}
}

// convertRule returns the rule for a list of allowed names, or nil if the list is not set. It
// reports and omits the names that a rule cannot express.
func convertRule(field string, list node) *configv1alpha1.FieldRule {
	if !list.isSet {
		return nil
	}
	list.get("allowedRegex").reportUnconverted("regular expressions are not supported; list the names that it matches")
	list.get("matchLabels").reportUnconverted("selecting classes by label is not supported; list the names of the classes")
	list.get("matchExpressions").
		reportUnconverted("selecting classes by label is not supported; list the names of the classes")
	names := list.get("allowed").items()
	if standard := list.get("default"); standard.isSet {
		names = append(names, standard)
		defer standard.reportUnconverted(
			"the name is allowed, but is not the default for objects without one; use a mutating admission " +
				"policy",
		)
	}
	return ruleOf(field, names)
}

// convertNames returns the rule for a plain list of allowed names, or nil if the list is empty.
func convertNames(field string, list node) *configv1alpha1.FieldRule {
	items := list.items()
	if len(items) == 0 {
		return nil
	}
	return ruleOf(field, items)
}

// ruleOf returns a rule that allows the valid names, and reports the invalid names. Without a valid
// name, the rule forbids all values.
func ruleOf(field string, names []node) *configv1alpha1.FieldRule {
	rule := &configv1alpha1.FieldRule{Policy: configv1alpha1.FieldForbid}
	for _, item := range names {
		entry, isText := item.value.(string)
		if field == "imageRegistries" {
			entry = strings.ToLower(entry)
		}
		problem := configv1alpha1.PolicyEntryProblem(field, entry)
		switch {
		case !isText:
			continue
		case strings.Contains(entry, "{tenant}"):
			item.reportUnconverted("{tenant} would be replaced by the name of the tenant; use the name itself")
			continue
		case field == "hosts" && strings.HasPrefix(entry, "*."):
			item.reportUnconverted(
				"%s is one host in Capsule, but matches all hosts below it in kubetenant; list the hosts",
				entry,
			)
			continue
		case problem != "":
			item.reportUnconverted("%q is not allowed, because it %s; correct it", entry, problem)
			continue
		case !slices.Contains(rule.Allowed, entry):
			rule.Policy = configv1alpha1.FieldAllowListed
			rule.Allowed = append(rule.Allowed, entry)
		}
		item.consume()
	}
	slices.Sort(rule.Allowed)
	return rule
}

// convertServices returns a rule with the allowed types of Services, or nil if all types are
// allowed. A type that is not set is allowed.
func convertServices(allowed node) *configv1alpha1.FieldRule {
	rule := &configv1alpha1.FieldRule{Policy: configv1alpha1.FieldForbid}
	types := []corev1.ServiceType{
		corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeExternalName,
	}
	for _, t := range types {
		isAllowed, isFlag := allowed.get(strings.ToLower(string(t[:1])) + string(t[1:])).flag()
		if isAllowed || !isFlag {
			rule.Policy = configv1alpha1.FieldAllowListed
			rule.Allowed = append(rule.Allowed, string(t))
		}
	}
	if len(rule.Allowed) == len(types) {
		return nil
	}
	return rule
}

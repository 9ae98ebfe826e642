package migrate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// capsuleList is what of something is allowed. Patterns and selectors cannot be said here.
type capsuleList struct {
	Allowed          []string          `json:"allowed"`
	AllowedRegex     string            `json:"allowedRegex"`
	Default          string            `json:"default"`
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []map[string]any  `json:"matchExpressions"`
}

// capsuleAdmission is what of a spec is about what tenants' objects may ask for.
type capsuleAdmission struct {
	NodeSelector        map[string]string `json:"nodeSelector"`
	PriorityClasses     *capsuleList      `json:"priorityClasses"`
	RuntimeClasses      *capsuleList      `json:"runtimeClasses"`
	StorageClasses      *capsuleList      `json:"storageClasses"`
	ContainerRegistries *capsuleList      `json:"containerRegistries"`
	ImagePullPolicies   []string          `json:"imagePullPolicies"`
	IngressOptions      struct {
		AllowedClasses   *capsuleList `json:"allowedClasses"`
		AllowedHostnames *capsuleList `json:"allowedHostnames"`
		AllowWildcards   bool         `json:"allowWildcardHostnames"`
	} `json:"ingressOptions"`
	GatewayOptions struct {
		AllowedClasses *capsuleList `json:"allowedClasses"`
	} `json:"gatewayOptions"`
	ServiceOptions struct {
		AllowedServices map[string]bool `json:"allowedServices"`
	} `json:"serviceOptions"`
}

// capsuleAdmissionFields are those that [capsuleAdmission] reads, of the options those within.
var capsuleAdmissionFields = map[string][]string{
	"nodeSelector": nil, "priorityClasses": nil, "runtimeClasses": nil, "storageClasses": nil, "containerRegistries": nil, "imagePullPolicies": nil,
	"ingressOptions": {"allowedClasses", "allowedHostnames", "allowWildcardHostnames"}, "gatewayOptions": {"allowedClasses"}, "serviceOptions": {"allowedServices"},
}

// admissionSettings are the settings for the tenants of a file.
type admissionSettings struct {
	Policy    []v1alpha1.TenantPolicy
	Placement []v1alpha1.TenantPlacement
}

// file returns the configuration, empty where nothing is set.
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
	text, err := yaml.Marshal(map[string]any{"apiVersion": tenant.Domain + "/v1alpha1", "kind": v1alpha1.KindTenancyConfiguration, "admission": admission})
	return string(text), err
}

// capsuleAdmission adds the settings of a tenant.
func (r *Result) capsuleAdmission(spec map[string]any, id tenant.ID, into *admissionSettings) error {
	is := &capsuleAdmission{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, is); err != nil {
		return err
	}
	for _, option := range []string{"ingressOptions", "gatewayOptions", "serviceOptions"} {
		within, _ := spec[option].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(within)) {
			if !slices.Contains(capsuleAdmissionFields[option], name) {
				r.left("tenant "+id.String(), "spec.%s.%s", option, name)
			}
		}
	}
	if is.IngressOptions.AllowedHostnames == nil && !is.IngressOptions.AllowWildcards {
		r.left("tenant "+id.String(), "hosts with a wildcard, which Capsule refuses: list the tenant's in admission.policy.hosts")
	}
	policy := v1alpha1.TenantPolicy{Tenants: []string{id.String()}, PolicyRules: v1alpha1.PolicyRules{
		ImageRegistries: r.capsuleRule(id, "imageRegistries", "containerRegistries", is.ContainerRegistries),
		IngressClasses:  r.capsuleRule(id, "ingressClasses", "ingressOptions.allowedClasses", is.IngressOptions.AllowedClasses),
		Hosts:           r.capsuleRule(id, "hosts", "ingressOptions.allowedHostnames", is.IngressOptions.AllowedHostnames),
		GatewayClasses:  r.capsuleRule(id, "gatewayClasses", "gatewayOptions.allowedClasses", is.GatewayOptions.AllowedClasses),
		StorageClasses:  r.capsuleRule(id, "storageClasses", "storageClasses", is.StorageClasses),
	}}
	if len(is.ImagePullPolicies) > 0 {
		policy.ImagePullPolicies = r.capsuleRule(id, "imagePullPolicies", "imagePullPolicies", &capsuleList{Allowed: is.ImagePullPolicies})
	}
	policy.ServiceTypes = capsuleServices(is.ServiceOptions.AllowedServices)
	if len(policy.Fields()) > 0 {
		into.Policy = append(into.Policy, policy)
	}
	placement := v1alpha1.TenantPlacement{Tenants: policy.Tenants, PlacementRules: v1alpha1.PlacementRules{
		PriorityClassName: r.capsuleRule(id, "", "priorityClasses", is.PriorityClasses),
		RuntimeClassName:  r.capsuleRule(id, "", "runtimeClasses", is.RuntimeClasses),
	}}
	if len(is.NodeSelector) > 0 {
		placement.Defaults = &v1alpha1.PlacementDefaults{NodeSelector: is.NodeSelector}
	}
	if len(placement.Fields()) > 0 || placement.Defaults != nil {
		into.Placement = append(into.Placement, placement)
	}
	return nil
}

// capsuleRule returns what is allowed by a list, nil where there is none. What cannot be said allows nothing.
func (r *Result) capsuleRule(id tenant.ID, field, from string, list *capsuleList) *v1alpha1.FieldRule {
	if list == nil {
		return nil
	}
	where := "tenant " + id.String()
	if list.AllowedRegex != "" {
		r.left(where, "spec.%s.allowedRegex: list what is meant", from)
	}
	if len(list.MatchLabels)+len(list.MatchExpressions) > 0 {
		r.left(where, "spec.%s: a selector; list the names it selects", from)
	}
	names := list.Allowed
	if list.Default != "" {
		r.left(where, "spec.%s.default: allowed, and put into nothing", from)
		names = append(slices.Clone(names), list.Default)
	}
	rule := &v1alpha1.FieldRule{Policy: v1alpha1.FieldForbid}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		entry := strings.ToLower(name)
		if field != "imageRegistries" {
			entry = name
		}
		if field == "hosts" && strings.HasPrefix(entry, "*.") {
			r.left(where, "spec.%s: %s: one host there, all beneath it here; list them", from, name)
			continue
		}
		if field != "" {
			if problem := v1alpha1.PolicyEntryProblem(field, entry); problem != "" {
				r.left(where, "spec.%s: %s: %s", from, name, problem)
				continue
			}
		}
		rule.Policy, rule.Allowed = v1alpha1.FieldAllowListed, append(rule.Allowed, entry)
	}
	return rule
}

// capsuleServices returns the types of Services that are not switched off, nil where none is.
func capsuleServices(allowed map[string]bool) *v1alpha1.FieldRule {
	rule := &v1alpha1.FieldRule{Policy: v1alpha1.FieldForbid}
	types := []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName}
	for _, t := range types {
		if is, said := allowed[strings.ToLower(string(t[:1]))+string(t[1:])]; is || !said {
			rule.Policy, rule.Allowed = v1alpha1.FieldAllowListed, append(rule.Allowed, string(t))
		}
	}
	if len(rule.Allowed) == len(types) {
		return nil
	}
	return rule
}

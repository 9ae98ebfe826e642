// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/tenant"
	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func validateAdmission(a *Admission, path *field.Path) field.ErrorList {
	errs := validateResources(a.Restriction.Resources, path.Child("restriction", "resources"))
	ns := path.Child("namespace")
	prefixes := []tenantv1alpha1.NamespacePrefix{
		tenantv1alpha1.NamespacePrefixRequired, tenantv1alpha1.NamespacePrefixNone,
	}
	if p := a.Namespace.NamespacePrefix; !slices.Contains(prefixes, p) {
		errs = append(errs, field.NotSupported(ns.Child("namespacePrefix"), p, prefixes))
	}
	errs = append(errs, oneOfThese(path.Child("gate", "mode"), a.Gate.Mode, GateOff, GateShadow, GateEnforce)...)
	levels := []string{"privileged", "baseline", "restricted"}
	if !slices.Contains(levels, a.Namespace.PodSecurity) {
		errs = append(errs, field.NotSupported(ns.Child("podSecurity"), a.Namespace.PodSecurity, levels))
	}
	errs = append(errs, validateKeys(a.Namespace.AllowedLabels, ns.Child("allowedLabels"))...)
	errs = append(errs, validateKeys(a.Namespace.AllowedAnnotations, ns.Child("allowedAnnotations"))...)
	errs = append(errs, validateClusterLabels(a.Namespace.ClusterLabels, ns.Child("clusterLabels"))...)
	errs = append(errs, validateClusterKeys(a.Namespace.ClusterAnnotations, ns.Child("clusterAnnotations"))...)
	errs = append(errs, validateWorkloads(a.Workloads, path.Child("workloads"))...)
	errs = append(errs, validatePlacement(&a.Placement, path.Child("placement"))...)
	errs = append(errs, validatePolicy(&a.Policy, path.Child("policy"))...)
	if s := a.Attribution.WorkloadUser.Scheduling; s != nil {
		for i := range a.Placement.Tenants {
			errs = append(errs,
				validateScheduler(s, a.Placement.Tenants[i].Defaults, path.Child("placement", "tenants").Index(i))...)
		}
		errs = append(errs, validateScheduler(s, a.Placement.Defaults, path.Child("placement"))...)
	}
	errs = append(errs, validateWorkloadUser(&a.Attribution.WorkloadUser, path.Child("attribution", "workloadUser"))...)
	for i, k := range a.Binding.Kinds {
		at := path.Child("binding", "kinds").Index(i)
		errs = append(errs, validateGroupKind(k.Group, k.Kind, at)...)
		if k.Group == "" {
			errs = append(errs, field.Required(at.Child("group"), "kinds of the core group are not supported"))
		}
	}
	errs = append(errs, validatePublication(a, path.Child("publication"))...)
	for _, name := range slices.Sorted(maps.Keys(a.Quota.Default)) {
		if quantity := a.Quota.Default[name]; quantity.Sign() < 0 {
			errs = append(errs,
				field.Invalid(path.Child("quota", "default").Key(string(name)), quantity.String(), "must not be negative"))
		}
	}
	if a.Quota.Reservation.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("quota", "reservation"), a.Quota.Reservation.String(),
			"must be longer than the timeout of requests"))
	}
	errs = append(errs, validateStatus(a.Status.Allowed, path.Child("status", "allowed"))...)
	for _, p := range []struct {
		section, name, moved string
		is, was              Permission
	}{
		{"services", "externalIPs", "serviceExternalIPs", a.Services.ExternalIPs, a.RoleBinding.ServiceExternalIPs},
		{
			"persistentVolumeClaims",
			"volumeName",
			"claimVolumeName",
			a.PersistentVolumeClaims.VolumeName,
			a.RoleBinding.ClaimVolumeName,
		},
	} {
		at := path.Child(p.section, p.name)
		if p.is != PermissionAllow && p.is != PermissionForbid {
			errs = append(errs, field.NotSupported(at, p.is, []Permission{PermissionAllow, PermissionForbid}))
		}
		if p.was != "" {
			errs = append(errs, field.Forbidden(path.Child("roleBinding", p.moved), "was moved to "+at.String()))
		}
	}
	return errs
}

func validateStatus(allowed []StatusException, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range allowed {
		at := path.Index(i)
		if _, err := tenant.ParseSet(e.Tenants); err != nil || len(e.Tenants) == 0 {
			errs = append(errs, field.Invalid(at.Child("tenants"), e.Tenants, `must be tenant names or "*"`))
		}
		if len(e.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"),
				"must list the resources whose status the tenants may write"))
		}
		errs = append(errs, validateResources(e.Resources, at.Child("resources"))...)
	}
	return errs
}

// validateScheduler returns a problem if s and d specify different schedulers for new pods.
func validateScheduler(s *WorkloadScheduling, d *PlacementDefaults, path *field.Path) field.ErrorList {
	if d == nil || d.SchedulerName == "" || d.SchedulerName == s.SchedulerName {
		return nil
	}
	return field.ErrorList{
		field.Invalid(path.Child("defaults", "schedulerName"), d.SchedulerName,
			"must be the same as schedulerName of attribution.workloadUser.scheduling"),
	}
}

func validateGroupKind(group, kind string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group != "" && len(validation.IsDNS1123Subdomain(group)) > 0 {
		errs = append(errs, field.Invalid(path.Child("group"), group, "must be an API group"))
	}
	if kind == "" || len(validation.IsDNS1035Label(strings.ToLower(kind))) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), kind, "must be the name of a kind"))
	}
	return errs
}

// templateField matches one element of the path of a template: a field name or "*".
var templateField = regexp.MustCompile(`\A(\*|[A-Za-z][A-Za-z0-9_-]*)\z`)

func validateWorkloads(kinds []WorkloadKind, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, k := range kinds {
		at := path.Index(i)
		errs = append(errs, validateGroupKind(k.Group, k.Kind, at)...)
		if k.Group == "" || k.Group == "apps" || k.Group == "batch" {
			errs = append(errs, field.Forbidden(at.Child("group"),
				"may not be a built-in group, because its templates are known"))
		}
		if len(k.Paths) == 0 {
			errs = append(errs, field.Required(at.Child("paths"), "must list the paths of the pod templates"))
		}
		for j, p := range k.Paths {
			if slices.ContainsFunc(strings.Split(p, "."), func(name string) bool { return !templateField.MatchString(name) }) {
				errs = append(errs,
					field.Invalid(at.Child("paths").Index(j), p, `must be field names or "*", separated by dots`))
			}
		}
	}
	return errs
}

// fields returns all rules, keyed by field name. A rule that is not set is nil.
func (r *PlacementRules) fields() map[string]*FieldRule {
	return map[string]*FieldRule{
		"nodeName":          r.NodeName,
		"nodeSelector":      r.NodeSelector,
		"nodeAffinity":      r.NodeAffinity,
		"tolerations":       r.Tolerations,
		"topologySpread":    r.TopologySpread,
		"runtimeClassName":  r.RuntimeClassName,
		"priorityClassName": r.PriorityClassName,
		"schedulerName":     r.SchedulerName,
		"podAffinity":       r.PodAffinity,
	}
}

// Fields returns the rules that are set, keyed by field name.
func (r *PlacementRules) Fields() map[string]FieldRule { return given(r.fields()) }

// given returns the rules that are not nil.
func given(rules map[string]*FieldRule) map[string]FieldRule {
	out := map[string]FieldRule{}
	for name, rule := range rules {
		if rule != nil {
			out[name] = *rule
		}
	}
	return out
}

func defaultRules(rules map[string]*FieldRule) {
	for _, rule := range rules {
		if rule == nil {
			continue
		}
		if len(rule.Allowed) > 0 {
			defaultText(&rule.Policy, FieldAllowListed)
		}
		defaultText(&rule.Policy, FieldForbid)
	}
}

func validatePlacement(p *Placement, path *field.Path) field.ErrorList {
	errs := validatePlacementRules(&p.PlacementRules, path)
	seen := sets.New[string]()
	for i := range p.Tenants {
		at := path.Child("tenants").Index(i)
		errs = append(errs, validateTenants(p.Tenants[i].Tenants, seen, at)...)
		errs = append(errs, validatePlacementRules(&p.Tenants[i].PlacementRules, at)...)
	}
	return errs
}

// validateTenants checks the tenants of an entry and adds them to seen. A tenant in seen belongs to
// an earlier entry and is invalid.
func validateTenants(names []string, seen sets.Set[string], at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(names) == 0 {
		errs = append(errs, field.Required(at.Child("tenants"), "must list the tenants that the rules apply to"))
	}
	for j, name := range names {
		id, err := tenant.Parse(name)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at.Child("tenants").Index(j), name, err.Error()))
		case id.IsSystem():
			errs = append(errs, field.Forbidden(at.Child("tenants").Index(j), "the rules do not apply to the system tenant"))
		case seen.Has(name):
			errs = append(errs, field.Duplicate(at.Child("tenants").Index(j), name))
		}
		seen.Insert(name)
	}
	return errs
}

// validateRules checks the policy and the list of each rule. The function entry returns the problem
// of an entry of a list, or "" if the entry is valid.
func validateRules(
	rules map[string]*FieldRule, path *field.Path, entry func(name, entry string) (problem string),
) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		rule := rules[name]
		if rule == nil {
			continue
		}
		at := path.Child(name)
		policies := []FieldPolicy{FieldForbid, FieldAllowListed, FieldIgnore}
		switch {
		case !slices.Contains(policies, rule.Policy):
			errs = append(errs, field.NotSupported(at.Child("policy"), rule.Policy, policies))
		case rule.Policy != FieldAllowListed && len(rule.Allowed) > 0:
			errs = append(errs, field.Forbidden(at.Child("allowed"), "may not be set if policy is "+string(rule.Policy)))
		case rule.Policy == FieldAllowListed && len(rule.Allowed) == 0:
			errs = append(errs, field.Required(at.Child("allowed"),
				"must have an entry: to allow nothing, set policy to Forbid"))
		}
		for i, e := range rule.Allowed {
			if problem := entry(name, e); problem != "" {
				errs = append(errs, field.Invalid(at.Child("allowed").Index(i), e, problem))
			}
		}
	}
	return errs
}

func validatePlacementRules(r *PlacementRules, path *field.Path) field.ErrorList {
	errs := validateRules(r.fields(), path, placementEntry)
	if d := r.Defaults; d != nil {
		errs = append(errs, validatePlaces(d.NodeSelector, d.Tolerations, path.Child("defaults"))...)
	}
	if c := r.Cluster; c != nil {
		at := path.Child("cluster")
		errs = append(errs, validatePlaces(c.NodeSelector, c.Tolerations, at)...)
		for _, f := range []struct{ name, value string }{
			{"schedulerName", c.SchedulerName},
			{"runtimeClassName", c.RuntimeClassName},
			{"priorityClassName", c.PriorityClassName},
		} {
			if f.value != "" && len(validation.IsDNS1123Subdomain(f.value)) > 0 {
				errs = append(errs, field.Invalid(at.Child(f.name), f.value, "must be a name, without wildcards"))
			}
		}
	}
	return errs
}

// validatePlaces checks node labels and tolerations that are added to pods or always allowed in
// them.
func validatePlaces(selector map[string]string, tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		value := selector[key]
		for _, msg := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
			errs = append(errs, field.Invalid(at.Child("nodeSelector").Key(key), value, msg))
		}
	}
	for i, t := range tolerations {
		here := at.Child("tolerations").Index(i)
		if t.Key == "" {
			errs = append(errs, field.Required(here.Child("key"),
				"must be set, because a toleration without a key tolerates every taint"))
		}
		operators := []corev1.TolerationOperator{"", corev1.TolerationOpExists, corev1.TolerationOpEqual}
		if !slices.Contains(operators, t.Operator) {
			errs = append(errs, field.NotSupported(here.Child("operator"), t.Operator, operators))
		}
		effects := []corev1.TaintEffect{
			"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
		}
		if !slices.Contains(effects, t.Effect) {
			errs = append(errs, field.NotSupported(here.Child("effect"), t.Effect, effects))
		}
	}
	return errs
}

// validateClusterLabels checks the labels of admission.namespace.clusterLabels.
func validateClusterLabels(labels map[string]string, path *field.Path) field.ErrorList {
	errs := validateClusterKeys(labels, path)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		plain := strings.ReplaceAll(labels[key], "{tenant}", "t") // the name of a tenant is a valid label value
		for _, msg := range validation.IsValidLabelValue(plain) {
			errs = append(errs, field.Invalid(path.Key(key), labels[key], msg))
		}
		switch key {
		case "pod-security.kubernetes.io/enforce":
			errs = append(errs, field.Forbidden(path.Key(key), "admission.namespace.podSecurity sets this label"))
		case corev1.LabelMetadataName:
			errs = append(errs, field.Forbidden(path.Key(key), "the server sets this label"))
		}
	}
	return errs
}

// validateClusterKeys checks the keys of admission.namespace.clusterLabels or clusterAnnotations.
func validateClusterKeys(values map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, msg := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(path.Key(key), key, msg))
		}
		if domain, _, _ := strings.Cut(key, "/"); domain == tenant.Domain {
			errs = append(errs, field.Forbidden(path.Key(key), "keys of this domain are reserved"))
		}
	}
	return errs
}

// reservedExamples are reserved names. A pattern of external users or groups is invalid if it
// matches one of them.
var reservedExamples = []string{
	"system:masters", "system:kube-controller-manager", "system:authenticated",
	"system:serviceaccount:kube-system:default", "tenant:system",
}

// patternList is a field of [WorkloadUser] that contains patterns of names.
type patternList struct {
	name     string
	patterns []string
}

func (w *WorkloadUser) patterns() []patternList {
	return []patternList{
		{"systemUsers", w.SystemUsers}, {"externalUsers", w.ExternalUsers}, {"externalGroups", w.ExternalGroups},
	}
}

func validateWorkloadUser(w *WorkloadUser, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if w.Foreign != ForeignRefuse && w.Foreign != ForeignRestamp {
		errs = append(errs,
			field.NotSupported(path.Child("foreign"), w.Foreign, []ForeignUser{ForeignRefuse, ForeignRestamp}))
	}
	for _, list := range w.patterns() {
		for i, pattern := range list.patterns {
			at := path.Child(list.name).Index(i)
			compiled, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
			switch {
			case pattern == "":
				errs = append(errs, field.Required(at, "may not be empty, because an empty pattern matches no name"))
			case err != nil:
				errs = append(errs, field.Invalid(at, pattern, "must be a regular expression in RE2 syntax"))
			case list.name != "systemUsers" && slices.ContainsFunc(reservedExamples, compiled.MatchString):
				errs = append(errs, field.Invalid(at, pattern, "may not match reserved names"))
			}
		}
	}
	return errs
}

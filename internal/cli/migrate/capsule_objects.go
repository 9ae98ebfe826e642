// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

// Limits in the CustomResourceDefinitions NamespaceTemplate and Tenant.
const (
	maxTemplateObjects = 32
	maxLimits          = 256
)

// convertObjects converts the tenant's quota, and the objects that Capsule creates in each
// namespace of the tenant.
func (t *capsuleTenant) convertObjects() {
	t.convertQuotas()
	for i, item := range t.find("spec.limitRanges.items").items() {
		t.addObject(item, "v1", "LimitRange", fmt.Sprintf("tenant-limits-%d", i))
	}
	for i, item := range t.find("spec.networkPolicies.items").items() {
		t.addObject(item, "networking.k8s.io/v1", "NetworkPolicy", fmt.Sprintf("tenant-network-%d", i))
	}
}

// convertQuotas converts quotas for the whole tenant to spec.quota, and quotas for each
// namespace to ResourceQuotas.
func (t *capsuleTenant) convertQuotas() {
	quotas := t.find("spec.resourceQuotas")
	scope := quotas.get("scope")
	items := quotas.get("items").items()
	switch scope.value {
	case nil, "Tenant":
		for _, item := range items {
			t.addQuota(item)
		}
	case "Namespace":
		for i, item := range items {
			t.addObject(item, "v1", "ResourceQuota", fmt.Sprintf("tenant-quota-%d", i))
		}
	default:
		quotas.reportUnconverted("the scope must be Tenant or Namespace; correct it")
	}
	scope.consume()
}

// addQuota adds the limits of an item to spec.quota. If a resource has two limits, the smaller
// one applies, as in Capsule.
func (t *capsuleTenant) addQuota(item node) {
	if item.get("scopes").isSet || item.get("scopeSelector").isSet {
		item.reportUnconverted(
			"a limit for selected Pods can only apply to a namespace; use a ResourceQuota in a NamespaceTemplate",
		)
		return
	}
	for _, key := range item.get("hard").keys() {
		entry := item.get("hard").get(key)
		limit, isQuantity := quantity(entry.value)
		name := corev1.ResourceName(key)
		isUsed := len(quota.Resources(name)) > 0
		current, ok := t.object.Spec.Quota[name]
		switch {
		case !isQuantity || limit.Sign() < 0:
			entry.reportUnconverted("the limit is not a valid quantity; correct it")
		case !isUsed || name == "count/namespaces":
			entry.reportUnconverted(
				"a tenant's quota cannot limit this; limit namespaces with spec.namespaces.max, and other resources " +
					"with count/<resource>.<group>",
			)
		case !ok && len(t.object.Spec.Quota) == maxLimits:
			entry.reportUnconverted("a Tenant has at most %d limits; use a ResourceQuota in a NamespaceTemplate", maxLimits)
		default:
			if t.object.Spec.Quota == nil {
				t.object.Spec.Quota = corev1.ResourceList{}
			}
			if !ok || limit.Cmp(current) < 0 {
				t.object.Spec.Quota[name] = limit
			}
			entry.consume()
		}
	}
}

func quantity(value any) (q resource.Quantity, ok bool) {
	text, ok := value.(string)
	if n, isNumber := value.(int64); isNumber {
		text = strconv.FormatInt(n, 10)
		ok = true
	}
	q, err := resource.ParseQuantity(text)
	return q, ok && err == nil
}

// addObject adds an object to the tenant's template. The only change to the object is in
// selectors with Capsule's tenant label. addObject reports and omits an object with a field that
// a template cannot contain. It omits the whole object, because a policy that lacks a field
// could allow more.
func (t *capsuleTenant) addObject(item node, version, kind, name string) {
	content, isObject := item.value.(map[string]any)
	if !isObject {
		return
	}
	spec := runtime.DeepCopyJSON(content)
	translation := &selectors{node: item}
	translation.translate(spec, item.path)
	objects := append(slices.Clip(t.objects), map[string]any{
		"apiVersion": version,
		"kind":       kind,
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	})
	err := (&template.Template{Objects: objects}).Validate()
	switch {
	case len(objects) > maxTemplateObjects:
		item.reportUnconverted("a NamespaceTemplate has at most %d objects; create another one", maxTemplateObjects)
	case hasPlaceholder(content):
		item.reportUnconverted("${tenant} and ${namespace} would be replaced; write the %s by hand", kind)
	case err != nil:
		_, problem, _ := strings.Cut(err.Error(), ": ") // without the path in the template
		item.reportUnconverted("it is not a valid %s (%s); add it to a NamespaceTemplate by hand", kind, problem)
	case hasNegative(spec["hard"]):
		item.reportUnconverted("a limit is negative; correct it")
	default:
		t.objects = objects
		for _, note := range slices.Sorted(slices.Values(translation.notes)) {
			t.result.reportUnconverted(item.location, "%s", note)
		}
		item.consume()
	}
}

// hasPlaceholder reports whether a value contains a placeholder that a template would replace.
func hasPlaceholder(value any) bool {
	switch value := value.(type) {
	case string:
		return strings.Contains(value, "${tenant}") || strings.Contains(value, "${namespace}")
	case []any:
		return slices.ContainsFunc(value, hasPlaceholder)
	case map[string]any:
		for _, v := range value {
			if hasPlaceholder(v) {
				return true
			}
		}
	}
	return false
}

func hasNegative(hard any) bool {
	limits, _ := hard.(map[string]any)
	for _, limit := range limits {
		if q, ok := quantity(limit); !ok || q.Sign() < 0 {
			return true
		}
	}
	return false
}

// selectors replaces Capsule's tenant label in selectors with the tenant label of this project.
// It does not change a selector that it cannot translate, but reports it, because the selector
// selects nothing without Capsule.
type selectors struct {
	node
	notes []string
}

func (s *selectors) translate(value any, path string) {
	switch value := value.(type) {
	case []any:
		for i, v := range value {
			s.translate(v, fmt.Sprintf("%s[%d]", path, i))
		}
	case map[string]any:
		for key, v := range value {
			labels, isLabels := v.(map[string]any)
			expressions, isExpressions := v.([]any)
			switch {
			case key == "matchLabels" && isLabels:
				s.labels(labels, path+"."+key)
			case key == "matchExpressions" && isExpressions:
				value[key] = s.expressions(expressions, path+"."+key)
			default:
				s.translate(v, path+"."+key)
			}
		}
	}
}

// isTenantLabel reports whether a key is a label with which Capsule names a tenant.
func isTenantLabel(key string) bool {
	return key == capsuleGroup+"/tenant" || key == capsuleDomain+"/tenant"
}

// isCapsuleLabel reports whether the key of a label or annotation has a domain of Capsule.
func isCapsuleLabel(key string) bool {
	return isOfDomain(key, capsuleGroup) || isOfDomain(key, capsuleDomain)
}

func (s *selectors) note(path, key string) {
	s.notes = append(s.notes, fmt.Sprintf("%s: the label %q has no equivalent and selects nothing without Capsule; "+
		"correct the selector in %s", path, key, templatesFile))
}

func (s *selectors) labels(labels map[string]any, path string) {
	for _, key := range []string{capsuleGroup + "/tenant", capsuleDomain + "/tenant"} {
		value, isString := labels[key].(string)
		if current, exists := labels[tenant.Label]; isString && isTenant(value) && (!exists || current == value) {
			labels[tenant.Label] = value
			delete(labels, key)
		}
	}
	for key := range labels {
		if isCapsuleLabel(key) {
			s.note(path, key)
		}
	}
}

// isTenant reports whether the value of a Capsule tenant label is a valid tenant ID other than
// system.
func isTenant(value any) bool {
	name, _ := value.(string)
	id, err := tenant.Parse(name)
	return err == nil && !id.IsSystem()
}

func (s *selectors) expressions(all []any, path string) []any {
	var more []any
	for _, e := range all {
		expression, _ := e.(map[string]any)
		key, _ := expression["key"].(string)
		values, _ := expression["values"].([]any)
		if isTenantLabel(key) && !slices.ContainsFunc(values, func(v any) bool { return !isTenant(v) }) {
			expression["key"] = tenant.Label
			if expression["operator"] == "Exists" { // exclude the system tenant, whose namespaces may have the label
				more = append(more, map[string]any{
					"key":      tenant.Label,
					"operator": "NotIn",
					"values":   []any{tenant.System().String()},
				})
			}
		} else if isCapsuleLabel(key) {
			s.note(path, key)
		}
	}
	return append(all, more...)
}

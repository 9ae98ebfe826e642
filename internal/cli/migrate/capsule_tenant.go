// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	nameLabel        = "kubernetes.io/metadata.name"
	podSecurityLabel = "pod-security.kubernetes.io/enforce"
	// cordonLabel is the v1beta1 form of spec.cordoned.
	cordonLabel = capsuleGroup + "/cordon"
)

// Limits in the CustomResourceDefinition Tenant.
const (
	maxNamespaces = 10000
	maxLabels     = 32
)

// consumeServerMetadata consumes the fields that a server or kubectl wrote. They have no meaning
// for the converted object.
func consumeServerMetadata(metadata node) {
	for _, key := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "finalizers",
	} {
		metadata.get(key).consume()
	}
	metadata.get("annotations").get("kubectl.kubernetes.io/last-applied-configuration").consume()
}

func (t *capsuleTenant) convertMetadata() {
	metadata := t.get("metadata")
	consumeServerMetadata(metadata)
	metadata.get("name").consume()
	if label := metadata.get("labels").get(nameLabel); label.value == t.name {
		label.consume() // only Capsule uses this label
	}
	for _, field := range []string{"labels", "annotations"} {
		for _, key := range metadata.get(field).keys() {
			if isCapsuleLabel(key) && (!t.isBeta1() || key != cordonLabel) {
				metadata.get(field).get(key).reportUnconverted("a setting of Capsule; look up its effect and set it up by hand")
			}
		}
	}
}

// convertStatus consumes the fields that Capsule derived from the spec. It does not consume
// owners and roles in the status that are not in the spec. They also have rights, so they are
// reported. assignNamespaces has already read the namespaces.
func (t *capsuleTenant) convertStatus() {
	status := t.get("status")
	for _, key := range []string{"observedGeneration", "state", "size", "conditions", "classes"} {
		status.get(key).consume()
	}
	for _, namespace := range status.get("spaces").items() {
		for _, key := range []string{"uid", "conditions", "metadata", "enforce"} {
			namespace.get(key).consume()
		}
	}
	type subject struct{ kind, name any }
	roles := map[subject][]string{}
	for _, owner := range t.find("spec.owners").items() {
		s := subject{owner.get("kind").value, owner.get("name").value}
		roles[s] = append(roles[s], ownerRoles(owner)...)
	}
	for _, owner := range status.get("owners").items() {
		kind, name := owner.get("kind"), owner.get("name")
		_, isKind := kind.value.(string)
		_, isName := name.value.(string)
		known := roles[subject{kind.value, name.value}]
		if !isKind || !isName || known == nil {
			continue
		}
		kind.consume()
		name.consume()
		for _, role := range owner.get("clusterRoles").items() {
			if text, ok := role.value.(string); ok && slices.Contains(known, text) {
				role.consume()
			}
		}
	}
}

func (t *capsuleTenant) convertAccess() {
	spec := t.get("spec")
	// The deletion policy is Protect for both values of preventDeletion. With Protect, the
	// server rejects a deletion of the Tenant until a user changes the policy.
	spec.get("preventDeletion").flag()
	cordoned, _ := spec.get("cordoned").flag()
	if label := t.find("metadata.labels").get(cordonLabel); t.isBeta1() && label.isSet {
		cordoned = cordoned || label.text() == "enabled"
	}
	if cordoned {
		t.object.Spec.Access = v1alpha1.TenantAccessReadOnly
	}
}

// isBeta1 reports whether the Tenant has the version v1beta1, in which some settings are
// annotations and labels.
func (t *capsuleTenant) isBeta1() bool { return t.get("apiVersion").value == capsuleGroup+"/v1beta1" }

func (t *capsuleTenant) convertNamespaceOptions() {
	namespaces := &t.object.Spec.Namespaces
	options := t.find("spec.namespaceOptions")
	if quota := options.get("quota"); quota.isSet {
		if n, ok := quota.value.(int64); ok && n >= 0 && n <= maxNamespaces {
			limit := int32(n) // #nosec G115 -- at most maxNamespaces
			namespaces.Max = &limit
			quota.consume()
		} else {
			quota.reportUnconverted("a Tenant can limit its namespaces to a number from 0 to %d; set spec.namespaces.max",
				maxNamespaces)
		}
	}
	t.convertLabels(options.get("additionalMetadata").get("labels"))
	for _, item := range options.get("additionalMetadataList").items() {
		if selector := item.get("namespaceSelector"); !selector.isSet || isEmptyObject(selector) {
			selector.consume()
			t.convertLabels(item.get("labels"))
		}
	}
	if only, ok := options.get("managedMetadataOnly").flag(); ok && only {
		options.get("managedMetadataOnly").
			reportUnconverted("other labels of namespaces remain; remove unwanted labels by hand")
	}
	t.convertPrefix()
}

func isEmptyObject(n node) bool {
	m, ok := n.value.(map[string]any)
	return ok && len(m) == 0
}

// convertLabels adds labels that the server sets on each namespace of the tenant.
func (t *capsuleTenant) convertLabels(labels node) {
	namespaces := &t.object.Spec.Namespaces
	for _, key := range labels.keys() {
		label := labels.get(key)
		value, ok := label.value.(string)
		if !ok {
			continue
		}
		current, exists := namespaces.Labels[key]
		switch {
		case key == podSecurityLabel && !slices.Contains([]string{"privileged", "baseline", "restricted"}, value):
			label.reportUnconverted("the level must be privileged, baseline or restricted; set spec.namespaces.podSecurity")
		case key == podSecurityLabel && namespaces.PodSecurity != "" && namespaces.PodSecurity != value,
			exists && string(current) != value:
			label.reportUnconverted("another setting has a different value for this label; keep one of them")
		case key == podSecurityLabel:
			namespaces.PodSecurity = value
			label.consume()
		case key == nameLabel || isOfDomain(key, tenant.Domain) || isCapsuleLabel(key):
			label.reportUnconverted("the label is reserved, or has no effect without Capsule; remove it from the file")
		case len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0:
			label.reportUnconverted(
				"it is not a valid label, and Capsule's templates are not supported; set spec.namespaces.labels",
			)
		case !exists && len(namespaces.Labels) == maxLabels:
			label.reportUnconverted("a Tenant sets at most %d labels; set it on the namespaces", maxLabels)
		default:
			if namespaces.Labels == nil {
				namespaces.Labels = map[string]v1alpha1.LabelValue{}
			}
			namespaces.Labels[key] = v1alpha1.LabelValue(value)
			label.consume()
		}
	}
}

// prefixOf returns the domain of a label or annotation key, or "" if it has none.
func prefixOf(key string) string {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return domain
}

// isOfDomain reports whether the prefix of a label or annotation key is the given domain or one of
// its subdomains.
func isOfDomain(key, domain string) bool {
	prefix := prefixOf(key)
	return prefix == domain || strings.HasSuffix(prefix, "."+domain)
}

// convertPrefix requires the namespace prefix of this project if Capsule required its own
// prefix. It reports that the two prefixes differ.
func (t *capsuleTenant) convertPrefix() {
	force := t.find("spec.forceTenantPrefix")
	required, ok := force.flag()
	if !ok {
		return
	}
	prefix := t.id.NamespacePrefix()
	switch {
	case !required:
		force.reportUnconverted(
			"a Tenant cannot override the configured rule for namespace names; if tenants may choose names, set " +
				"admission.namespace.namespacePrefix to None",
		)
	case prefix == "":
		force.reportUnconverted(
			"this tenant ID cannot be a prefix of namespaces; to require a prefix, create the tenant under another " +
				"name",
		)
	default:
		t.object.Spec.Namespaces.Prefix = v1alpha1.NamespacePrefixRequired
		force.reportUnconverted("new namespaces must begin with %q instead of %q; "+
			"existing ones keep their names, and the condition Ready reports OtherNames", prefix, t.name+"-")
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	publicationsFile = "cluster/3-publications.yaml"
	// publishedNamespace is the new namespace for objects that a GlobalTenantResource contains.
	publishedNamespace = "published"
)

// published contains the objects and the Publications for the output file.
type published struct {
	objects, publications []any
	names                 map[string]bool
}

// target specifies which tenants and namespaces receive the copies of an object.
type target struct {
	tenants    v1alpha1.PublicationTenants
	namespaces *metav1.LabelSelector
}

// convertResources converts the GlobalTenantResources to Publications.
func (m *capsuleMigration) convertResources() {
	m.published.names = map[string]bool{}
	for _, n := range m.resources {
		n.get("metadata").consume()
		n.get("status").consume()
		spec := n.get("spec")
		spec.get("resyncPeriod").consume() // not needed, because the server watches the objects
		if prunes, isSet := spec.get("pruningOnDelete").flag(); isSet && !prunes {
			n.result.reportUnconverted(
				n.location,
				"spec.pruningOnDelete: the copies of a deleted Publication are always deleted",
			)
		}
		tenants, ok := m.selectedTenants(spec.get("tenantSelector"))
		if !ok {
			spec.reportUnconverted(
				"its tenantSelector selects no Tenant of the file; publish the objects with kubectl tenant publish",
			)
		}
		for _, block := range spec.get("resources").items() {
			if ok {
				m.convertBlock(block, tenants)
			}
		}
		n.reportUnhandled(resourceReasons())
	}
}

func resourceReasons() reasons {
	return reasons{
		"spec.resources": unknownField,
		"spec.resources.additionalMetadata": "copies have the labels and annotations of the object that " +
			"admission.publication allows; set them on the object",
		"spec.resources.generators": "a copy depends on one object only; write the objects by hand",
		"spec.resources.context":    "a copy depends on one object only; write the objects by hand",
	}
}

// selectedTenants returns the tenants that a selector selects, and reports whether there are
// any. Capsule's Tenant labels are not converted, so a selector with requirements becomes a list
// of tenant IDs.
func (m *capsuleMigration) selectedTenants(n node) (v1alpha1.PublicationTenants, bool) {
	selector, set := selectorOf(n)
	if !set {
		n.consume()
		return v1alpha1.PublicationTenants{All: true}, true
	}
	var ids []string
	if matches, err := metav1.LabelSelectorAsSelector(selector); err == nil {
		for _, t := range m.tenants {
			has := labels.Set{}
			all, _ := t.find("metadata.labels").value.(map[string]any)
			for key, value := range all {
				has[key] = fmt.Sprint(value)
			}
			if matches.Matches(has) {
				ids = append(ids, t.id.String())
			}
		}
	}
	if len(ids) == 0 {
		return v1alpha1.PublicationTenants{}, false
	}
	n.reportUnconverted("the Publications name the tenants that it selects now; add later tenants to spec.tenants.ids")
	return v1alpha1.PublicationTenants{IDs: slices.Sorted(slices.Values(ids))}, true
}

// selectorOf returns the label selector in n, and reports whether the selector has a
// requirement. An invalid selector becomes a selector that selects nothing.
func selectorOf(n node) (*metav1.LabelSelector, bool) {
	content, _ := n.value.(map[string]any)
	text, err := json.Marshal(content)
	selector := &metav1.LabelSelector{}
	if err != nil || json.Unmarshal(text, selector) != nil {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{}}}, true // selects nothing
	}
	return selector, len(selector.MatchLabels)+len(selector.MatchExpressions) > 0
}

// convertBlock converts the objects of one entry of spec.resources.
func (m *capsuleMigration) convertBlock(block node, tenants v1alpha1.PublicationTenants) {
	to := target{tenants: tenants}
	selectorNode := block.get("namespaceSelector")
	if selector, set := selectorOf(selectorNode); set {
		keys := slices.Collect(maps.Keys(selector.MatchLabels))
		for _, e := range selector.MatchExpressions {
			keys = append(keys, e.Key)
		}
		if slices.ContainsFunc(keys, func(key string) bool { return key != corev1.LabelMetadataName }) {
			block.reportUnconverted(
				"a Publication selects namespaces only by their names and by labels that tenants cannot set. Set the " +
					"label in spec.namespaces.labels of the Tenants, and publish the objects with kubectl tenant publish",
			)
			return
		}
		to.namespaces = selector
	}
	selectorNode.consume()
	for _, item := range block.get("namespacedItems").items() {
		m.publishStored(item, to)
	}
	for _, item := range block.get("rawItems").items() {
		m.publishRaw(item, to)
	}
}

// publishStored publishes an object that already exists in the cluster.
func (m *capsuleMigration) publishStored(item node, to target) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	text := func(key string) string { s, _ := item.get(key).value.(string); return s }
	u.SetAPIVersion(text("apiVersion"))
	u.SetKind(text("kind"))
	u.SetNamespace(text("namespace"))
	u.SetName(text("name"))
	isTenants := slices.ContainsFunc(m.tenants, func(t *capsuleTenant) bool {
		return slices.Contains(t.namespaces, u.GetNamespace())
	})
	switch {
	case u.GetName() == "" || u.GetNamespace() == "":
		item.reportUnconverted("a Publication names one object; publish each object with kubectl tenant publish KIND/NAME")
	case isTenants:
		item.reportUnconverted(
			"the object is in a namespace of a tenant; move it to a namespace of the system tenant, and publish it " +
				"with kubectl tenant publish",
		)
	default:
		m.publish(item, u, to)
	}
}

// publishRaw publishes an object that the GlobalTenantResource contains.
func (m *capsuleMigration) publishRaw(item node, to target) {
	content, isMap := item.value.(map[string]any)
	if !isMap {
		return
	}
	translated, ok := translateVariables(runtime.DeepCopyJSON(content)).(map[string]any)
	u := &unstructured.Unstructured{Object: translated}
	switch {
	case !ok || u.GetName() == "":
		item.reportUnconverted("the object has no name; set metadata.name")
	case hasPlaceholder(content):
		item.reportUnconverted("${tenant} and ${namespace} would be replaced; write the %s by hand", u.GetKind())
	case strings.Contains(fmt.Sprint(translated), "{{"):
		item.reportUnconverted(
			"only the names of the tenant and the namespace are replaced, and only in values; write the %s by hand",
			u.GetKind(),
		)
	case strings.Contains(u.GetName(), "$"):
		item.reportUnconverted("the name of a copy cannot depend on the namespace; choose one name")
	default:
		u.SetNamespace(publishedNamespace)
		if m.publish(item, u, to) {
			m.published.objects = append(m.published.objects, u)
		}
	}
}

// translateVariables replaces Capsule's variables in string values with placeholders of this
// project.
func translateVariables(value any) any {
	switch value := value.(type) {
	case string:
		return strings.NewReplacer("{{ tenant.name }}", "${tenant}", "{{tenant.name}}", "${tenant}",
			"{{ namespace }}", "${namespace}", "{{namespace}}", "${namespace}").Replace(value)
	case []any:
		for i := range value {
			value[i] = translateVariables(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = translateVariables(value[key])
		}
	}
	return value
}

// publish adds a Publication for an object. If the object cannot be published, it reports the
// reason for item and returns false.
func (m *capsuleMigration) publish(item node, u *unstructured.Unstructured, to target) bool {
	source := publication.Source{Kind: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
	name := publication.NameFor(source)
	_, err := (&publication.Rules{}).Content(u, nil)
	switch {
	case err != nil:
		item.reportUnconverted("it cannot be published: %s", strings.TrimPrefix(err.Error(), "spec.from: "))
		return false
	case m.published.names[name]:
		item.reportUnconverted("another item has this kind and name; merge the two objects")
		return false
	}
	m.published.names[name] = true
	item.consume()
	m.published.publications = append(m.published.publications, &v1alpha1.Publication{
		TypeMeta:   typeMeta(v1alpha1.GroupVersion, v1alpha1.KindPublication),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PublicationSpec{
			From: v1alpha1.PublicationSource{
				APIVersion: u.GetAPIVersion(),
				Kind:       u.GetKind(),
				Namespace:  u.GetNamespace(),
				Name:       u.GetName(),
			},
			Tenants:           to.tenants,
			NamespaceSelector: to.namespaces,
		},
	})
	return true
}

// all returns the objects for the output file. The published objects come before their
// Publications.
func (p *published) all() []any {
	var all []any
	if len(p.objects) > 0 {
		all = append(all, &corev1.Namespace{
			TypeMeta:   typeMeta("v1", "Namespace"),
			ObjectMeta: metav1.ObjectMeta{Name: publishedNamespace},
		})
	}
	return slices.Concat(all, p.objects, p.publications)
}

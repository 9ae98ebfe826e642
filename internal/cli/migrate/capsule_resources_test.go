// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const publicationsFile = "cluster/3-publications.yaml"

// published returns the objects in a file, each on one line.
func published(t *testing.T, text string) (all []string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object == nil {
			continue
		}
		metadata, _ := object["metadata"].(map[string]any)
		if object["kind"] == "Publication" {
			delete(metadata, "name")
			all = append(all, flow(t, object["spec"]))
			continue
		}
		delete(object, "apiVersion")
		all = append(all, flow(t, object))
	}
	return all
}

// TestCapsuleResources checks that a GlobalTenantResource becomes Publications with the same or
// fewer targets. All other parts are reported.
func TestCapsuleResources(t *testing.T) {
	const registry = `{from:{apiVersion:v1,kind:Secret,name:registry,namespace:platform},`
	const stored = "namespacedItems: [ { apiVersion: v1, kind: Secret, namespace: platform, name: registry } ]"
	at := func(path, text string) []string {
		return []string{"object 2 (GlobalTenantResource all): " + path + ": " + text}
	}
	for name, c := range map[string]struct {
		spec string
		want []string
		left []string
	}{
		"a reference to an object": {
			"resyncPeriod: 60s, pruningOnDelete: true, resources: [ { " + stored + " } ]",
			[]string{registry + "tenants:{all:true}}"},
			nil,
		},
		"an embedded object with variables": {
			`resources: [ { rawItems: [ { apiVersion: v1, kind: ConfigMap, metadata: { name: c, namespace: kube-system }, ` +
				`data: { a: "of {{ tenant.name }} in {{namespace}}" } } ] } ]`,
			[]string{
				"{kind:Namespace,metadata:{name:published},spec:{}}",
				"{data:{a:of ${tenant} in ${namespace}},kind:ConfigMap,metadata:{name:c,namespace:published}}",
				"{from:{apiVersion:v1,kind:ConfigMap,name:c,namespace:published},tenants:{all:true}}",
			},
			nil,
		},
		"tenants by labels": {
			"tenantSelector: { matchLabels: { energy: fossil } }, resources: [ { " + stored + " } ]",
			[]string{registry + "tenants:{ids:[oil]}}"},
			at("spec.tenantSelector",
				"the Publications name the tenants that it selects now; add later tenants to spec.tenants.ids"),
		},
		"labels that no tenant has": {
			"tenantSelector: { matchLabels: { energy: solar } }, resources: [ { " + stored + " } ]", nil,
			at("spec", "its tenantSelector selects no Tenant of the file; publish the objects with kubectl tenant publish"),
		},
		"an invalid selector": {
			"tenantSelector: { matchLabels: [ energy ] }, resources: [ { " + stored + " } ]", nil,
			at("spec", "its tenantSelector selects no Tenant of the file; publish the objects with kubectl tenant publish"),
		},
		"namespaces by name": {
			"resources: [ { namespaceSelector: { matchExpressions: [ { key: kubernetes.io/metadata.name, operator: " +
				"In, values: " +
				"[ a ] } ] }, " + stored + " } ]",
			[]string{
				registry + "namespaceSelector:{matchExpressions:[{key:kubernetes.io/metadata.name,operator:In,values:[a]}]}," +
					"tenants:{all:true}}",
			},
			nil,
		},
		"namespaces by a label that a tenant can set": {
			"resources: [ { namespaceSelector: { matchLabels: { replicate: yes } }, " + stored + " } ]", nil,
			at("spec.resources[0]",
				"a Publication selects namespaces only by their names and by labels that tenants cannot set. "+
					"Set the label in spec.namespaces.labels of the Tenants, and publish the objects with kubectl tenant publish"),
		},
		"objects by a selector": {
			"resources: [ { namespacedItems: [ { apiVersion: v1, kind: Secret, namespace: platform, selector: { matchLabels: " +
				"{ a: b } } } ] } ]", nil,
			at("spec.resources[0].namespacedItems[0]",
				"a Publication names one object; publish each object with kubectl tenant "+
					"publish KIND/NAME"),
		},
		"an object in a tenant's namespace": {
			"resources: [ { namespacedItems: [ { apiVersion: v1, kind: Secret, namespace: a, name: s } ] } ]", nil,
			at("spec.resources[0].namespacedItems[0]",
				"the object is in a namespace of a tenant; move it to a namespace of the "+
					"system tenant, and publish it with kubectl tenant publish"),
		},
		"a kind that cannot be published": {
			"resources: [ { rawItems: [ { apiVersion: v1, kind: Pod, metadata: { name: p } } ] } ]", nil,
			at("spec.resources[0].rawItems[0]", "it cannot be published: objects of the kind Pod cannot be published: use "+
				"ConfigMap, LimitRange, NetworkPolicy, ResourceQuota, Role, RoleBinding, Secret, or a kind of "+
				"admission.publication.kinds in the configuration"),
		},
		"an unknown variable": {
			`resources: [ { rawItems: [ { apiVersion: v1, kind: ConfigMap, metadata: { name: c }, ` +
				`data: { a: "{{ x }}" } } ] } ]`,
			nil, at("spec.resources[0].rawItems[0]", "only the names of the tenant and the namespace are replaced, and only in "+
				"values; write the ConfigMap by hand"),
		},
		"a variable in a key": {
			`resources: [ { rawItems: [ { apiVersion: v1, kind: ConfigMap, metadata: { name: c }, ` +
				`data: { "{{ namespace }}": a } } ` +
				`] } ]`, nil, at("spec.resources[0].rawItems[0]", "only the names of the tenant and the namespace are replaced, "+
				"and only in values; write the ConfigMap by hand"),
		},
		"a placeholder of kubetenant": {
			`resources: [ { rawItems: [ { apiVersion: v1, kind: ConfigMap, metadata: { name: c }, ` +
				`data: { a: "${tenant}" } } ] } ]`,
			nil,
			at("spec.resources[0].rawItems[0]", "${tenant} and ${namespace} would be replaced; write the ConfigMap by hand"),
		},
		"a name with a variable": {
			`resources: [ { rawItems: [ { apiVersion: v1, kind: ConfigMap, metadata: { name: "c-{{ namespace }}" } } ] } ]`, nil,
			at("spec.resources[0].rawItems[0]", "the name of a copy cannot depend on the namespace; choose one name"),
		},
		"the same object twice": {
			"resources: [ { " + stored + " }, { " + stored + " } ]",
			[]string{registry + "tenants:{all:true}}"},
			at("spec.resources[1].namespacedItems[0]", "another item has this kind and name; merge the two objects"),
		},
		"other settings": {
			"pruningOnDelete: false, scope: None, resources: [ { additionalMetadata: { labels: { a: b } }, " + stored + " } ]",
			[]string{registry + "tenants:{all:true}}"},
			append(append(at("spec.pruningOnDelete", "the copies of a deleted Publication are always deleted"),
				at("spec.resources[0].additionalMetadata", "copies have the labels and annotations of the object that "+
					"admission.publication allows; set them on the object")...),
				at("spec.scope", "the field or its value is not supported; look up its effect and set it up by hand")...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			labeled := strings.Replace(oil("nodeSelector: {}"), "{ name: oil }", "{ name: oil, labels: { energy: fossil } }", 1)
			r := converted(t, "capsule", labeled+"---\n{ apiVersion: capsule.clastix.io/v1beta2, kind: GlobalTenantResource, "+
				"metadata: { name: all, uid: x }, status: { size: 1 }, spec: { "+c.spec+" } }\n")
			same(t, "published", c.want, published(t, r.Files[publicationsFile]))
			var left []string
			for _, line := range r.Unconverted {
				if strings.HasPrefix(line, "object 2 ") {
					left = append(left, line)
				}
			}
			same(t, "left", c.left, left)
		})
	}
}

// TestCapsuleTenantResource checks that an object that a tenant wrote is not published, because
// a Publication uses the rights of the platform.
func TestCapsuleTenantResource(t *testing.T) {
	r := converted(t, "capsule", oil("nodeSelector: {}")+"---\n{ apiVersion: capsule.clastix.io/v1beta2, kind: "+
		"TenantResource, metadata: { name: x, namespace: a }, spec: { resources: [ { rawItems: [ { apiVersion: "+
		"rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: { name: x } } ] } ] } }\n")
	if r.Files[publicationsFile] != "" ||
		!strings.Contains(strings.Join(r.Unconverted, "\n"), "(TenantResource x): the whole "+
			"object: a tenant wrote it, and a Publication uses the rights of the platform") {
		t.Errorf("%q\n%s", r.Unconverted, r.Files[publicationsFile])
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// claim is an entry in the file that assigns a namespace to a Capsule Tenant.
type claim struct {
	node
	tenant string
}

// assignNamespaces assigns each namespace to the Tenant that claims it. A claim is in the
// Tenant's status, or in the Namespace's label or owner reference. A namespace that different
// Tenants claim is not assigned.
func (m *capsuleMigration) assignNamespaces() {
	claims := map[string][]claim{}
	var names []string
	add := func(namespace string, c claim) {
		if claims[namespace] == nil {
			names = append(names, namespace)
		}
		claims[namespace] = append(claims[namespace], c)
	}
	tenants := map[string]*capsuleTenant{}
	for _, t := range m.tenants {
		tenants[t.name] = t
		for _, item := range t.find("status.namespaces").items() {
			if name := item.text(); name != "" {
				add(name, claim{item, t.name})
			}
		}
		for _, item := range t.find("status.spaces").items() {
			if name := item.get("name"); name.text() != "" {
				add(name.text(), claim{name, t.name})
			}
		}
	}
	owners := map[string]string{}
	for _, n := range m.namespaces {
		m.readNamespace(n, owners, add)
	}
	slices.Sort(names)
	for _, name := range names {
		problem := namespaceProblem(name, claims[name], owners[name])
		t := tenants[claims[name][0].tenant]
		if problem == "" && t == nil {
			problem = "its tenant was not converted; migrate that tenant first"
		}
		if problem == "" {
			t.namespaces = append(t.namespaces, name)
			continue
		}
		for _, c := range claims[name] {
			c.reportUnconverted("namespace %s is not adopted: %s", name, problem)
		}
	}
}

// readNamespace adds the claims in a Namespace. If the Namespace already has the tenant label of
// this project, readNamespace adds that tenant to owners. It reports a cordoned Namespace. It
// ignores all other fields, because the migration does not change the Namespace.
func (m *capsuleMigration) readNamespace(n node, owners map[string]string, add func(string, claim)) {
	name := n.find("metadata.name").text()
	labels := n.find("metadata.labels")
	found := false
	for _, key := range []string{capsuleGroup + "/tenant", capsuleDomain + "/tenant"} {
		if label := labels.get(key); label.text() != "" {
			add(name, claim{label, label.text()})
			found = true
		}
	}
	for _, owner := range n.find("metadata.ownerReferences").items() {
		version, _ := owner.get("apiVersion").value.(string)
		if owner.get("kind").value == "Tenant" && strings.HasPrefix(version, capsuleGroup+"/") {
			add(name, claim{owner.get("name"), owner.get("name").text()})
			found = true
		}
	}
	if owner := labels.get(tenant.Label).text(); owner != "" {
		owners[name] = owner
	}
	if cordoned := labels.get(capsuleDomain + "/cordoned"); cordoned.isSet {
		cordoned.reportUnconverted("a single namespace cannot be cordoned; set spec.access of the Tenant to ReadOnly")
	}
	if !found {
		m.result.reportUnconverted(
			n.location,
			"it belongs to no Tenant of Capsule; remove it from the file, or assign it to a tenant with "+
				"kubectl tenant adopt",
		)
	}
}

// namespaceProblem returns why a namespace cannot be adopted, or "" if it can be adopted.
func namespaceProblem(name string, claims []claim, owner string) string {
	s := &configv1alpha1.Settings{}
	configv1alpha1.Default(s)
	system := append(slices.Clone(s.Authorization.SystemNamespaces), "capsule-system")
	for _, c := range claims {
		if c.tenant != claims[0].tenant {
			return fmt.Sprintf("the file names the tenants %s and %s for it; correct the Namespace in the cluster",
				claims[0].tenant, c.tenant)
		}
	}
	switch {
	case len(validation.IsDNS1123Label(name)) > 0:
		return "this is not a valid namespace name"
	case slices.Contains(system, name) || strings.HasPrefix(name, "kube-"):
		return "it is a system namespace; no tenant can own it"
	case owner != "" && owner != claims[0].tenant:
		return fmt.Sprintf("its label %s already names another tenant", tenant.Label)
	}
	return ""
}

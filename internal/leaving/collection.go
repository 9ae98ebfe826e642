// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/tenant"
)

// collection contains the findings about the objects of a cluster.
type collection struct {
	systemNamespaces []string
	found            []Finding
	bindings         map[string][]Finding // about RoleBindings, keyed by namespace
	owned            map[string]bool      // whether a namespace belongs to a tenant, keyed by name
}

func newCollection(systemNamespaces []string) *collection {
	return &collection{
		systemNamespaces: systemNamespaces,
		bindings:         map[string][]Finding{},
		owned:            map[string]bool{},
	}
}

// add adds the findings about an object. It ignores objects of kinds that are not checked.
func (c *collection) add(object runtime.Object) {
	switch object := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		c.found = append(c.found, CheckClusterRoleBinding(object)...)
	case *rbacv1.RoleBinding:
		c.bindings[object.Namespace] = append(c.bindings[object.Namespace], CheckRoleBinding(object)...)
	case *corev1.Namespace:
		c.found = append(c.found, CheckNamespace(object, c.systemNamespaces)...)
		label, labeled := object.Labels[tenant.Label]
		c.owned[object.Name] = labeled && label != tenant.System().String() &&
			!slices.Contains(c.systemNamespaces, object.Name)
	}
}

// findings returns all findings, sorted by object and without duplicates. Findings about
// RoleBindings in a tenant's namespace are summarized, because the tenant's callers can create
// any number of RoleBindings.
func (c *collection) findings() []Finding {
	for namespace, found := range c.bindings {
		if c.owned[namespace] {
			found = summarize(found)
		}
		c.found = append(c.found, found...)
	}
	slices.SortFunc(c.found, compare)
	return slices.Compact(c.found)
}

// summarize returns the first finding for each remedy. The Object of each returned finding
// includes the number of other findings with the same remedy.
func summarize(found []Finding) []Finding {
	slices.SortFunc(found, compare)
	found = slices.Compact(found)
	count := map[string]int{}
	var first []Finding
	for _, f := range found {
		if count[f.Remedy]++; count[f.Remedy] == 1 {
			first = append(first, f)
		}
	}
	for i := range first {
		if more := count[first[i].Remedy] - 1; more > 0 {
			first[i].Object += fmt.Sprintf(" and %d more in the namespace", more)
		}
	}
	return first
}

func compare(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason))
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package leaving finds the objects of a cluster that grant more access after kubetenant is
// removed. These are bindings that only kubetenant limits, bindings from earlier releases, and
// system namespaces with the label of a tenant. The same functions check a live cluster and
// exported objects.
package leaving

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubetenant/kubetenant/tenant"
)

// Finding is an object and one reason to report it. Each field is one line without control
// characters.
type Finding struct {
	Object string `json:"object"` // kind, namespace and name
	Reason string `json:"reason"` // the effect of the object on a server without kubetenant
	Remedy string `json:"remedy"` // the recommended action
}

// String returns the finding as one line.
func (f Finding) String() string { return f.Object + ": " + f.Reason + ": " + f.Remedy }

// formerAdmins is the name prefix of the ClusterRoleBindings that earlier releases created for
// the admins of a Tenant.
const formerAdmins = "kubetenant:admins:"

// CheckClusterRoleBinding returns the findings about a ClusterRoleBinding.
func CheckClusterRoleBinding(b *rbacv1.ClusterRoleBinding) []Finding {
	object := "ClusterRoleBinding " + printable(b.Name)
	grants := fmt.Sprintf("%s %q in the whole cluster", b.RoleRef.Kind, b.RoleRef.Name)
	var found []Finding
	if strings.HasPrefix(b.Name, formerAdmins) {
		found = append(found, Finding{
			object,
			"an earlier release created it for the admins of a Tenant, and a server without kubetenant grants them " + grants,
			"delete it, since spec.admins of the Tenant replaces it",
		})
	}
	if groups := tenantGroups(b.Subjects); len(groups) > 0 {
		found = append(found, Finding{
			object,
			fmt.Sprintf("a server without kubetenant grants %s %s", strings.Join(groups, ", "), grants),
			"replace it with spec.bindings of the Tenant, or delete it before such a server starts",
		})
	}
	return append(found, limitFindings(object, b.Annotations, grants)...)
}

// CheckRoleBinding returns the findings about a RoleBinding.
func CheckRoleBinding(b *rbacv1.RoleBinding) []Finding {
	object := "RoleBinding " + printable(b.Namespace) + "/" + printable(b.Name)
	return limitFindings(object, b.Annotations, fmt.Sprintf("%s %q in the namespace", b.RoleRef.Kind, b.RoleRef.Name))
}

// CheckNamespace returns a finding if a Namespace in systemNamespaces has the label of a tenant
// other than the system tenant.
func CheckNamespace(ns *corev1.Namespace, systemNamespaces []string) []Finding {
	label, labeled := ns.Labels[tenant.Label]
	if !labeled || label == tenant.System().String() || !slices.Contains(systemNamespaces, ns.Name) {
		return nil
	}
	reason := "the label " + tenant.Label + " of this system namespace is not a valid tenant name"
	if id, err := tenant.Parse(label); err == nil {
		reason = fmt.Sprintf("this system namespace belongs to tenant %s, "+
			"and a server without kubetenant keeps the bindings of that tenant in it", id)
	}
	return []Finding{{
		"Namespace " + printable(ns.Name), reason,
		"release it (kubectl tenant release), then check its RoleBindings and Secrets",
	}}
}

// limitFindings returns a finding for each annotation with which kubetenant limits a binding.
func limitFindings(object string, annotations map[string]string, grants string) []Finding {
	var found []Finding
	if _, limited := annotations[tenant.ScopeAnnotation]; limited {
		found = append(found, Finding{
			object,
			"a server without kubetenant ignores the annotation " + tenant.ScopeAnnotation + " and grants " + grants,
			"replace it with RoleBindings, or delete it before such a server starts",
		})
	}
	if _, ends := annotations[tenant.ExpiresAnnotation]; ends {
		found = append(found, Finding{
			object,
			"a server without kubetenant ignores the annotation " + tenant.ExpiresAnnotation +
				" and grants " + grants + " without an expiration time",
			"delete it when it has expired, or before such a server starts",
		})
	}
	return found
}

// tenantGroups returns the subjects that are groups of tenants. The names are quoted, sorted and
// without duplicates.
func tenantGroups(subjects []rbacv1.Subject) []string {
	var groups []string
	for _, s := range subjects {
		if s.Kind == rbacv1.GroupKind && strings.HasPrefix(s.Name, tenant.GroupPrefix) {
			groups = append(groups, fmt.Sprintf("group %q", s.Name))
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// printable returns a name. It quotes a name with characters that no API server would accept,
// such as spaces and control characters.
func printable(name string) string {
	if quoted := fmt.Sprintf("%+q", name); quoted != `"`+name+`"` || strings.Contains(name, " ") {
		return quoted
	}
	return name
}

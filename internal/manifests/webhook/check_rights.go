// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// roleGrant is a binding of a role to subjects.
type roleGrant struct {
	file, object string
	namespace    string // the namespace of a RoleBinding, or "" for a ClusterRoleBinding
	role         rbacv1.RoleRef
	subjects     []rbacv1.Subject
}

// uncheckedRight is a right that a tenant can use to bypass admission. kube-apiserver sends the
// tenant's request to no webhook or policy, or sends a later request under another caller's name.
type uncheckedRight struct {
	name, group string
	resources   []string // "*" for all resources of the group
	verbs       []string
	// serviceOnly specifies that the right is reported only in the namespace of the service.
	serviceOnly bool
}

// uncheckedRights returns all unchecked rights, except reads outside the namespace of the service.
// docs/gateway.md lists these rights for operators.
func uncheckedRights() []uncheckedRight {
	writes := []string{"create", "update", "patch", "delete", "deletecollection"}
	return []uncheckedRight{
		{
			name:      "impersonation",
			group:     corev1.GroupName,
			resources: []string{"users", "groups", "serviceaccounts"},
			verbs:     []string{"impersonate"},
		},
		{
			name:      "impersonation",
			group:     authenticationv1.GroupName,
			resources: []string{"userextras", "uids"},
			verbs:     []string{"impersonate"},
		},
		{
			name:      "tokens of service accounts",
			group:     corev1.GroupName,
			resources: []string{"serviceaccounts/token"},
			verbs:     []string{"create"},
		},
		{
			name:      "TokenReviews",
			group:     authenticationv1.GroupName,
			resources: []string{"tokenreviews"},
			verbs:     []string{"create"},
		},
		{
			name:      "SubjectAccessReviews",
			group:     authorizationv1.GroupName,
			resources: []string{"subjectaccessreviews", "localsubjectaccessreviews"},
			verbs:     []string{"create"},
		},
		{
			name:      "admission configurations",
			group:     admissionregistrationv1.GroupName,
			resources: []string{"*"},
			verbs:     writes,
		},
		{
			name:        "reads of the service's Secrets",
			group:       corev1.GroupName,
			resources:   []string{"secrets"},
			verbs:       []string{"get", "list", "watch"},
			serviceOnly: true,
		},
	}
}

// inRule reports whether a rule may contain the right.
func (u *uncheckedRight) inRule(rule *rbacv1.PolicyRule) bool {
	constrained := u.name == "impersonation" && slices.ContainsFunc(rule.Verbs, func(verb string) bool {
		return strings.HasPrefix(verb, "impersonate:")
	})
	contains := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, rbacv1.ResourceAll)
	}
	if !contains(rule.APIGroups, u.group) && (!constrained || !contains(rule.APIGroups, authenticationv1.GroupName)) ||
		!constrained && !slices.ContainsFunc(u.verbs, func(verb string) bool { return contains(rule.Verbs, verb) }) {
		return false
	}
	return slices.ContainsFunc(rule.Resources, func(resource string) bool {
		parent, subresource, _ := strings.Cut(resource, "/")
		return resource == rbacv1.ResourceAll || slices.Contains(u.resources, "*") ||
			slices.Contains(u.resources, resource) ||
			slices.Contains(u.resources, parent) && parent == "userextras" ||
			parent == "*" && slices.Contains(u.resources, "serviceaccounts/"+subresource)
	})
}

// rightsOf returns the names of the unchecked rights ([uncheckedRights]) of a role. A role that is
// not in the set has only the rights of [builtInRules].
func (c *checker) rightsOf(namespace string, ref rbacv1.RoleRef) (names []string) {
	rules, known := c.roles[ref.Kind+"/"+ref.Name]
	if ref.Kind == "Role" {
		rules, known = c.roles[ref.Kind+"/"+namespace+"/"+ref.Name]
	}
	if !known && ref.Kind == "ClusterRole" {
		rules = builtInRules(ref.Name)
	}
	for _, u := range uncheckedRights() {
		if u.serviceOnly && namespace != "" && namespace != c.namespace {
			continue
		}
		if slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return u.inRule(&rule) }) &&
			!slices.Contains(names, u.name) {
			names = append(names, u.name)
		}
	}
	return names
}

// builtInRules returns the rules of a built-in ClusterRole that contain unchecked rights
// (k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy, v1.37.1).
func builtInRules(name string) []rbacv1.PolicyRule {
	rule := func(group, verb string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: []string{verb}, Resources: resources}
	}
	edit := []rbacv1.PolicyRule{
		rule("", "impersonate", "serviceaccounts"),
		rule("", "create", "serviceaccounts/token"),
		rule("", "get", "secrets"),
	}
	review := rule(authorizationv1.GroupName, "create", "subjectaccessreviews")
	switch name {
	case "cluster-admin":
		return []rbacv1.PolicyRule{rule("*", "*", "*")}
	case "edit":
		return edit
	case "admin":
		return append(edit, rule(authorizationv1.GroupName, "create", "localsubjectaccessreviews"))
	case "system:auth-delegator":
		return []rbacv1.PolicyRule{rule(authenticationv1.GroupName, "create", "tokenreviews"), review}
	}
	return nil
}

// checkRights reports bindings that grant tenants unchecked rights outside their own namespaces.
func (c *checker) checkRights() {
	for _, b := range c.roleGrants {
		c.file = b.file
		names := c.rightsOf(b.namespace, b.role)
		if len(names) == 0 {
			continue
		}
		for _, s := range b.subjects {
			owners, isTenants := c.tenantOf(s)
			own := b.namespace != "" && owners != "" && c.ownerOf(b.namespace) == owners
			if isTenants && !own {
				c.report("%s gives %s %s of tenants %s: admission does not judge that (docs/gateway.md, callers that bypass "+
					"the gateway)", b.object, strings.ToLower(s.Kind), s.Name, strings.Join(names, ", "))
			}
		}
	}
}

// tenantOf returns the tenant of a subject, or "" if the subject includes callers of several
// tenants. belongs reports whether the subject includes callers of tenants. It is false for users,
// because the tenant of a user name is unknown.
func (c *checker) tenantOf(s rbacv1.Subject) (id string, belongs bool) {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		id = c.ownerOf(s.Namespace)
		return id, id != ""
	case rbacv1.GroupKind:
		if name, ok := strings.CutPrefix(s.Name, tenant.GroupPrefix); ok {
			return name, name != tenant.System().String()
		}
		if namespace, ok := strings.CutPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix); ok {
			id = c.ownerOf(namespace)
			return id, id != ""
		}
		return "", slices.Contains([]string{
			user.AllAuthenticated, user.AllUnauthenticated, serviceaccount.AllServiceAccountsGroup,
		}, s.Name)
	}
	return "", false
}

// ownerOf returns the tenant that owns a namespace, or "" if no tenant except the system tenant
// owns it. If the namespace is not in the set and prefixes are required, its prefix determines the
// tenant.
func (c *checker) ownerOf(namespace string) string {
	z := c.settings.Authorization
	labels, known := c.namespaces[namespace]
	owner := labels[tenant.Label]
	prefix, _, isPrefixed := strings.Cut(namespace, "--")
	if !known && isPrefixed && c.settings.Admission.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired {
		owner = prefix
	}
	if owner == tenant.System().String() || namespace == c.namespace || slices.Contains(z.SystemNamespaces, namespace) {
		return ""
	}
	return owner
}

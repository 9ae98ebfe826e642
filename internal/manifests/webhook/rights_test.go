// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"slices"
	"strings"
	"testing"
)

// TestCheckRights checks that Check reports the rights of tenants that admission does not check,
// for each right, each kind of binding and each kind of subject.
func TestCheckRights(t *testing.T) {
	t.Parallel()
	const (
		rbac    = "apiVersion: rbac.authorization.k8s.io/v1, "
		secrets = "reads of the service's Secrets"
		member  = "{kind: ServiceAccount, name: robot, namespace: acme--web}"
	)
	role := func(group, resource, verb string) string {
		return "{" + rbac + "kind: ClusterRole, metadata: {name: r}, rules: [{apiGroups: ['" + group + "'], resources: ['" +
			resource + "'], verbs: ['" + verb + "']}]}\n---\n"
	}
	bind := func(ref, subject string) string {
		return "{" + rbac + "kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {apiGroup: rbac.authorization.k8s.io, " +
			"kind: ClusterRole, name: '" + ref + "'}, subjects: [" + subject + "]}"
	}
	within := func(namespace, ref, subject string) string {
		return strings.Replace(bind(ref, subject), "kind: ClusterRoleBinding, metadata: {",
			"kind: RoleBinding, metadata: {namespace: '"+namespace+"', ", 1)
	}
	group := func(name string) string { return "{kind: Group, name: '" + name + "'}" }
	for name, c := range map[string]struct{ text, want string }{
		"edit":              {bind("edit", member), "impersonation, tokens of service accounts"},
		"admin":             {bind("admin", group("tenant:acme")), "SubjectAccessReviews"},
		"cluster-admin":     {bind("cluster-admin", member), "admission configurations"},
		"view":              {bind("view", member), ""},
		"a delegator":       {bind("system:auth-delegator", member), "TokenReviews, SubjectAccessReviews"},
		"impersonate users": {role("", "users", "impersonate") + bind("r", member), "impersonation"},
		"impersonate extras": {
			role("authentication.k8s.io", "userextras/x", "impersonate") + bind("r", member),
			"impersonation",
		},
		"impersonate within": {
			role("authentication.k8s.io", "users", "impersonate:user-info") + bind("r", member),
			"impersonation",
		},
		"any verb": {role("", "groups", "*") + bind("r", member), "impersonation"},
		"tokens": {
			role("", "serviceaccounts/token", "create") + bind("r", member),
			"tokens of service accounts",
		},
		"any token": {role("*", "*/token", "create") + bind("r", member), "tokens of service accounts"},
		"policies": {
			role("admissionregistration.k8s.io", "validatingadmissionpolicies", "delete") + bind("r", member),
			"admission configurations",
		},
		"secrets of all":      {role("", "secrets", "get") + bind("r", member), secrets},
		"any resource":        {role("*", "*", "list") + bind("r", member), secrets},
		"secrets, watched":    {role("", "secrets", "watch") + within("kubetenant-system", "r", member), secrets},
		"secrets, any verb":   {role("", "secrets", "*") + within("kubetenant-system", "r", member), secrets},
		"secrets, by a group": {role("", "secrets", "get") + within("kubetenant-system", "r", group("tenant:acme")), secrets},
		"secrets, edit":       {within("kubetenant-system", "edit", member), secrets},
		"secrets, admin":      {bind("admin", group("system:authenticated")), secrets},
		"secrets, view":       {within("kubetenant-system", "view", member), ""},
		"secrets, written":    {role("", "secrets", "create") + within("kubetenant-system", "r", member), ""},
		"secrets elsewhere":   {role("", "secrets", "get") + within("globex--web", "r", member), ""},
		"secrets, own account": {
			role("", "secrets", "get") +
				within("kubetenant-system", "r", "{kind: ServiceAccount, name: x, namespace: kubetenant-system}"),
			"",
		},
		"configmaps":        {role("", "configmaps", "get") + within("kubetenant-system", "r", member), ""},
		"reads of policies": {role("admissionregistration.k8s.io", "*", "list") + bind("r", member), ""},
		"service accounts":  {role("", "serviceaccounts", "create") + bind("r", member), ""},
		"all authenticated callers": {
			bind("system:auth-delegator", group("system:authenticated")),
			"group system:authenticated of tenants TokenReviews",
		},
		"accounts of a tenant":   {bind("edit", group("system:serviceaccounts:acme--web")), "impersonation"},
		"accounts of the system": {bind("edit", group("system:serviceaccounts:kube-system")), ""},
		"the system tenant":      {bind("cluster-admin", group("tenant:system")), ""},
		"own namespace":          {within("acme--web", "admin", group("tenant:acme")), ""},
		"another tenant's namespace": {
			within("globex--web", "edit", member),
			"RoleBinding b gives serviceaccount robot of tenants impersonation",
		},
		"the service's namespace": {within("kubetenant-system", "edit", member), "impersonation"},
	} {
		t.Run(name, func(t *testing.T) {
			all := findingsAfter(t, options(t), func(files map[string][]byte) { files["extra.yaml"] = []byte(c.text) })
			all = slices.DeleteFunc(all, func(s string) bool { return !strings.Contains(s, "admission does not judge") })
			expectFinding(t, name, all, c.want)
		})
	}
}

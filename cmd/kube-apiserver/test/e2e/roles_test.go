// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// rolesAreDefined checks that a tenant's admin can define a Role for all namespaces of the tenant
// with a TenantMembers object. The admin must have the Role's rights in each of these namespaces.
// The tenant can then bind the Role.
func rolesAreDefined(t *testing.T, s *server) {
	s.apply(t, `{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: { name: to-define }, rules: [ `+
		`{ apiGroups: [ "" ], resources: [ limitranges ], verbs: [ patch, update ] }, `+
		`{ apiGroups: [ rbac.authorization.k8s.io ], resources: [ rolebindings ], verbs: [ create, delete, get ] } ] }`)
	bind := func(namespace string) {
		s.apply(t, `{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: { name: to-define, namespace: `+
			namespace+` }, roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: to-define }, `+
			`subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ] }`)
	}
	defines := func(rule string) (string, error) {
		return s.kubectl(t, "acme", "apply", "-f", testFile(t, `{ apiVersion: kubetenant.dev/v1alpha1, `+
			`kind: TenantMembers, metadata: { name: acme }, `+
			`spec: { id: acme, roles: [ { name: writers, rules: [ { `+rule+` } ] } ] } }`))
	}
	const writes = `apiGroups: [ "" ], resources: [ limitranges ], verbs: [ patch, update ]`
	out, err := s.kubectl(t, "admin", "get", "namespaces", "-l", "kubetenant.dev/tenant=acme", "-o",
		`jsonpath={.items[?(@.status.phase=="Active")].metadata.name}`)
	namespaces := strings.Fields(out)
	if err != nil || len(namespaces) < 2 {
		t.Fatal(out)
	}
	last := namespaces[len(namespaces)-1]
	for _, namespace := range namespaces[:len(namespaces)-1] {
		bind(namespace)
	}
	s.awaitKubectl(t, "acme", "auth", "can-i", "patch", "limitranges", "-n", namespaces[0])
	lacks := "the caller may not patch limitranges in namespace " + last
	if out, err := defines(writes); err == nil || !strings.Contains(out, lacks) {
		t.Errorf("rights in most namespaces: %s", out)
	}
	bind(last)
	waittest.Until(t, func() error {
		if out, err := defines(writes); err != nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	for _, namespace := range namespaces {
		s.awaitOutput(t, "limitranges", "get", "role", "writers", "-n", namespace, "-o",
			"jsonpath={.rules[0].resources[0]}")
	}
	if out, err := s.kubectl(t, "acme", "create", "rolebinding", "writers", "--role=writers", "--group=interns", "-n",
		last); err != nil {
		t.Error(out)
	}
	for what, rule := range map[string]string{
		"may not delete limitranges": `apiGroups: [ "" ], resources: [ limitranges ], verbs: [ patch, update, delete ]`,
		"may not * limitranges":      `apiGroups: [ "" ], resources: [ limitranges ], verbs: [ "*" ]`,
		"may not get nodes/proxy":    `apiGroups: [ "" ], resources: [ nodes/proxy ], verbs: [ get ]`,
		"nonResourceURLs":            writes + `, nonResourceURLs: [ "/metrics" ]`,
	} {
		if out, err := defines(rule); err == nil || !strings.Contains(out, what) {
			t.Errorf("%s: %s", what, out)
		}
	}
	if out, err := s.kubectl(t, "admin", "delete", "role", "writers", "-n", last); err == nil ||
		!strings.Contains(out, "kubetenant.dev/managed") {
		t.Errorf("a deletion of the Role: %s", out)
	}
	for _, args := range [][]string{
		{"acme", "delete", "rolebinding", "writers", "-n", last},
		{"acme", "delete", "tenantmembers", "acme"},
		{"admin", "delete", "rolebinding", "-A", "--field-selector=metadata.name=to-define"},
	} {
		if out, err := s.kubectl(t, args[0], args[1:]...); err != nil {
			t.Error(out)
		}
	}
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "get", "roles", "-A", "-l", "kubetenant.dev/managed", "-o", "name")
		if err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("the Roles %s remain", out)
		}
		return nil
	})
}

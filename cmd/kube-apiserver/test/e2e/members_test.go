// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// membersGetRoles checks that a tenant's admin can assign the roles of spec.memberRoles to members
// with a TenantMembers object. The admin cannot assign other roles, reserved groups, or members of
// another tenant.
func membersGetRoles(t *testing.T, s *server) {
	s.mustKubectl(t, "admin", "patch", "tenant", "acme", "--type=merge", "-p",
		`{"spec":{"memberRoles":["view"]}}`)
	members := func(name, id, role, subject string) string {
		return testFile(t, `{ apiVersion: kubetenant.dev/v1alpha1, kind: TenantMembers, metadata: { name: `+name+
			` }, spec: { id: `+id+`, bindings: [ { clusterRole: `+role+`, subjects: [ { kind: Group, name: `+subject+
			` } ] } ] } }`)
	}
	// Until admission has observed the change.
	s.awaitKubectl(t, "acme", "apply", "-f", members("acme", "acme", "view", "interns"))
	awaitBindings := func(want string) error {
		out, err := s.kubectl(t, "admin", "get", "rolebinding", "kubetenant:members:view", "-n", "acme--web",
			"--ignore-not-found", "-o", "jsonpath={.subjects[*].name}")
		if err != nil || out != want {
			return fmt.Errorf("the bound groups are %q, want %q", out, want)
		}
		return nil
	}
	waittest.Until(t, func() error { return awaitBindings("interns") })
	if out, err := s.kubectl(t, "acme", "apply", "--server-side", "--force-conflicts", "-f",
		members("acme", "acme", "view", "trainees")); err != nil {
		t.Error(out)
	}
	waittest.Until(t, func() error { return awaitBindings("trainees") })
	for what, file := range map[string]string{
		"spec.bindings[0].clusterRole":  members("acme", "acme", "edit", "interns"),
		"spec.bindings[0].subjects[0]":  members("acme", "acme", "view", `"system:masters"`),
		"spec.bindings[0].subjects[0] ": members("acme", "acme", "view", `"tenant:globex"`),
		"spec.id":                       members("acme", "globex", "view", "interns"),
		"orbidden":                      members("globex", "globex", "view", "interns"),
	} {
		if out, err := s.kubectl(t, "acme", "apply", "-f", file); err == nil || !strings.Contains(out, what) {
			t.Errorf("%s: %v %s", what, err, out)
		}
	}
	if out, err := s.kubectl(t, "acme", "get", "tenantmembers", "acme", "-o",
		"jsonpath={.spec.bindings[0].subjects[0].name}"); err != nil || out != "trainees" {
		t.Errorf("TenantMembers of the caller's tenant: %s", out)
	}
	if out, err := s.kubectl(t, "globex", "get", "tenantmembers", "acme"); err == nil {
		t.Errorf("TenantMembers of another tenant: %s", out)
	}
	if out, err := s.kubectl(t, "acme", "delete", "tenantmembers", "acme"); err != nil {
		t.Error(out)
	}
	waittest.Until(t, func() error { return awaitBindings("") })
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const auditWebhookConfig = groupsConfig + "audit: { directory: audit }\n"

// auditRights contains the ClusterRole that allows callers to read their tenant's audit stream.
const auditRights = `{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole,
  metadata: { name: audit-readers }, rules: [ { nonResourceURLs: [/kubetenant/audit], verbs: [get] } ] }`

const auditBinding = `{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding,
  metadata: { name: audit-readers },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: audit-readers },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" },
    { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:globex" } ] }`

// recordsOf parses the audit records in the output of a command.
func recordsOf(t *testing.T, out string) (all []tenantaudit.Record) {
	t.Helper()
	for line := range strings.Lines(out) {
		var r tenantaudit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// find returns the record of the request with the given verb for the ConfigMap of
// [makeAuditedRequests]. It returns nil if no such request is recorded.
func find(all []tenantaudit.Record, verb string) *tenantaudit.Record {
	for i := range all {
		if r := &all[i]; r.Verb == verb && r.Resource == "configmaps" && r.Name == "audited" {
			return r
		}
	}
	return nil
}

// makeAuditedRequests sends a write of acme, a write of the system tenant, and a denied request of
// globex.
func makeAuditedRequests(t *testing.T, s *server) {
	t.Helper()
	admin := s.client(t, "admin")
	waittest.Until(t, func() error { // an event of the first seconds may belong to an earlier namespace of this name
		ns, err := admin.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
		if err == nil && authz.MayPrecede(time.Now().Add(-time.Second), ns.CreationTimestamp.Time) {
			err = errors.New("the namespace is too new")
		}
		return err
	})
	for _, args := range [][]string{
		{"acme", "create", "configmap", "audited", "-n", "acme--web"},
		{"admin", "label", "configmap", "audited", "-n", "acme--web", "by=admin"},
	} {
		s.mustKubectl(t, args[0], args[1:]...)
	}
	if out, err := s.kubectl(t, "globex", "delete", "configmap", "audited", "-n", "acme--web"); err == nil {
		t.Fatalf("globex deleted an object of acme: %s", out)
	}
}

// checkStream checks the records of acme's audit stream after [makeAuditedRequests].
func checkStream(all []tenantaudit.Record) error {
	created, labelled := find(all, "create"), find(all, "patch")
	switch {
	case created == nil || created.User == "" || created.Tenant != "acme" || created.Code != 201:
		return fmt.Errorf("acme's write is recorded as %+v", created)
	case labelled == nil || labelled.User != "" || labelled.Tenant != "system" || labelled.Code != 200:
		return fmt.Errorf("the write of the system tenant is recorded as %+v", labelled)
	}
	for i := range all {
		if r := &all[i]; r.Tenant == "globex" || r.Verb == "delete" && r.Name == "audited" {
			return fmt.Errorf("the stream has a denied request of another tenant: %+v", r)
		}
	}
	return nil
}

// tenantOutput runs a command of kubectl tenant, and returns its standard output. If the command
// fails, it returns the standard error instead.
func tenantOutput(t *testing.T, s *server, name string, args ...string) (string, error) {
	t.Helper()
	cmd := s.command(t.Context(), t, "kubectl-tenant", name, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return errs.String(), err
	}
	return string(out), nil
}

// auditStreamsAreIsolated checks that a tenant's callers can read their tenant's audit stream and
// no other, and that the admin can read all streams.
func auditStreamsAreIsolated(t *testing.T, s *server) {
	s.apply(t, auditRights)
	s.apply(t, auditBinding)
	makeAuditedRequests(t, s)
	read := func(name string, args ...string) (string, error) {
		return tenantOutput(t, s, name, append([]string{"audit", "-o", "json", "--since", "10m"}, args...)...)
	}
	waittest.Until(t, func() error {
		out, err := read("acme")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return checkStream(recordsOf(t, out))
	})
	waittest.Until(t, func() error {
		out, err := read("globex", "--denied")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if r := find(recordsOf(t, out), "delete"); r == nil || r.Code != 403 || r.User == "" {
			return fmt.Errorf("globex's denied request is recorded as %+v", r)
		}
		return nil
	})
	for _, id := range []string{"acme", "system", "nobody"} {
		if out, err := read("globex", "--tenant", id); err == nil {
			t.Errorf("globex reads the stream of %s: %s", id, out)
		}
	}
	out, err := read("admin", "--tenant", "acme")
	if err != nil {
		t.Fatal(out)
	}
	if err := checkStream(recordsOf(t, out)); err != nil {
		t.Errorf("the stream of acme, read by the admin: %v", err)
	}
	if out, err = read("admin"); err != nil {
		t.Fatal(out)
	}
	if r := find(recordsOf(t, out), "delete"); r == nil || r.Tenant != "globex" || r.User == "" {
		t.Errorf("the system tenant's stream has the denied request as %+v", r)
	}
}

// usageIsIsolated checks that the admin can read the usage of a tenant, and that another tenant
// cannot.
func usageIsIsolated(t *testing.T, s *server) {
	waittest.Until(t, func() error {
		out, err := tenantOutput(t, s, "admin", "usage", "acme", "-o", "json")
		if err != nil || !strings.Contains(out, `"requests"`) {
			return fmt.Errorf("the usage of acme: %w: %s", err, out)
		}
		return nil
	})
	if out, err := tenantOutput(t, s, "globex", "usage", "acme"); err == nil {
		t.Errorf("globex reads the usage of acme: %s", out)
	}
}

// TestWebhookAudit checks that the webhook service writes audit streams from the audit events that
// an unmodified kube-apiserver sends.
func TestWebhookAudit(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"tenancy.yaml": auditWebhookConfig}, "--webhook")
	prepareAudited(t, s)
	makeAuditedRequests(t, s)
	waittest.Until(t, func() error {
		out, err := tenantOutput(t, s, "admin", "audit", "-o", "json", "--from", filepath.Join(s.Dir, "audit"),
			"--uid", "id-acme")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return checkStream(recordsOf(t, out))
	})
}

// prepareAudited creates a namespace for each of two tenants, and binds the role admin there to the
// tenant's callers.
func prepareAudited(t *testing.T, s *server) {
	t.Helper()
	for _, id := range []string{"acme", "globex"} {
		namespace := id + "--web"
		s.namespace(t, namespace, id)
		s.apply(t, `{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,
  metadata: { name: users, namespace: `+namespace+` },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:`+id+`" } ] }`)
	}
}

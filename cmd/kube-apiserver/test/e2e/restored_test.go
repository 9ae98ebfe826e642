// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/waittest"
)

const restoredConfig = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  revocation: { path: revoked.yaml }
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
  - { name: cluster, serviceAccount: { issuer: https://kubernetes.default.svc, keyFiles: [pki/service-account.key] } }
`

// beforeBackup contains objects that exist when the backup is made.
const beforeBackup = `
apiVersion: kubetenant.dev/v1alpha1
kind: Tenant
metadata: { name: acme }
spec: { id: acme }
---
apiVersion: kubetenant.dev/v1alpha1
kind: Tenant
metadata: { name: globex }
spec: { id: globex }
---
apiVersion: kubetenant.dev/v1alpha1
kind: Tenant
metadata: { name: initech }
spec: { id: initech }
---
apiVersion: kubetenant.dev/v1alpha1
kind: AccessGrant
metadata: { name: read, namespace: acme--web }
spec:
  from: { tenant: globex, groups: [ "tenant:globex" ] }
  to: [ { apiGroups: [ "" ], resources: [ configmaps ], verbs: [ get ] } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: guest, namespace: acme--web }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: guest } ]
---
apiVersion: v1
kind: Namespace
metadata: { name: kubetenant-system }
---
apiVersion: v1
kind: Secret
metadata: { name: kubetenant-webhook-config, namespace: kubetenant-system }
stringData: { revoked.yaml: "first" }
`

// TestRestoredEtcd restores a copy of etcd's data. It checks that the changes after the copy are
// lost, as the table in docs/tasks/backup.md describes, and that "kubectl tenant validate
// --restored" lists these changes.
func TestRestoredEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	write("tenancy.yaml", restoredConfig)
	write("revoked.yaml", noRevocations)
	log := filepath.Join(dir, "audit.log")
	args := append([]string{"--"}, auditFlags(t, dir, auditPolicy+"omitStages: [RequestReceived]\n")...)
	s := newServer(t, dir, args...)
	s.prepare(t)
	s.awaitKubectl(t, "admin", "apply", "-f", write("objects.yaml", beforeBackup))
	uid := func(kind, name string) string {
		t.Helper()
		return s.awaitKubectl(t, "admin", "get", kind, name, "-o", "jsonpath={.metadata.uid}")
	}
	initech := uid("tenant", "initech")

	data, snapshot := filepath.Join(dir, "etcd", "data"), filepath.Join(dir, "snapshot")
	s.stop(t)
	if err := os.CopyFS(snapshot, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	s = newServer(t, dir, args...)
	waittest.Until(t, func() error { return changeAfterBackup(t, s, initech) })
	s.awaitKubectl(t, "admin", "apply", "-f", write("hooli.yaml",
		"{apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: {name: hooli}, spec: {id: hooli}}"))
	hooli := uid("tenant", "hooli")
	write("revoked.yaml", noRevocations+"users: [ { tenant: globex, name: bob } ]\n")
	usage := filepath.Join(dir, "records")
	records := usageOf("acme", uid("tenant", "acme")) + usageOf("hooli", hooli)
	if err := os.Mkdir(usage, 0o700); err != nil {
		t.Fatal(err)
	}
	write("records/usage.jsonl", records)
	check := []string{"validate", "--restored", "--audit-log", log, "--usage-records", usage}
	if code, out := exitCode(t, s, check...); code != 0 {
		t.Errorf("before the restore: exit code %d\n%s", code, out)
	}

	s.stop(t)
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(snapshot))); err != nil {
		t.Fatal(err)
	}
	s = newServer(t, dir, args...)
	checkRestored(t, s)
	if text, err := os.ReadFile(filepath.Join(dir, "revoked.yaml")); err != nil || !strings.Contains(string(text), "bob") {
		t.Errorf("the file of revocations on disk is %q, %v", text, err)
	}
	code, out := exitCode(t, s, check...)
	checkFindings(t, code, out, hooli)

	waittest.Until(t, func() error { return changeAfterBackup(t, s, initech) })
	s.awaitKubectl(t, "admin", "apply", "-f", filepath.Join(dir, "hooli.yaml"))
	_, out = exitCode(t, s, "validate", "--restored", "--audit-log", log)
	if strings.Contains(out, "fix: ") {
		t.Errorf("after the changes were repeated:\n%s", out)
	}
}

// checkFindings checks that the output of validate contains each lost change, and no other finding.
func checkFindings(t *testing.T, code int, out, hooli string) {
	t.Helper()
	if code != 1 {
		t.Errorf("after the restore: exit code %d", code)
	}
	for _, want := range []string{
		"Tenant initech: was deleted at ", "fix: kubectl tenant delete-tenant initech\n",
		"Tenant acme: was written at ", "a suspension may be missing",
		"Tenant hooli: was written at ", "tenant hooli: the usage records contain the UID " + hooli,
		"AccessGrant acme--web/read: was deleted at ", "fix: kubectl delete accessgrant read -n acme--web\n",
		"RoleBinding acme--web/guest: was deleted at ",
		"Secret kubetenant-system/kubetenant-webhook-config: was written at ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no finding %q in\n%s", want, out)
		}
	}
	if strings.Count(out, "\n  fix: ") != 7 || strings.Contains(out, "Tenant globex") {
		t.Errorf("other findings:\n%s", out)
	}
}

// changeAfterBackup makes changes that are lost when the backup is restored. It can be called
// repeatedly.
func changeAfterBackup(t *testing.T, s *server, initech string) error {
	t.Helper()
	for _, args := range [][]string{
		{"delete-tenant", "initech", "--yes", "--wait=false"},
		{"suspend", "acme", "--read-only"},
	} {
		if out, err := s.tenant(t, "admin", args...); err != nil {
			return fmt.Errorf("%v: %s", args, out)
		}
	}
	for _, args := range [][]string{
		{"delete", "accessgrant", "read", "-n", "acme--web", "--ignore-not-found"},
		{"delete", "rolebinding", "guest", "-n", "acme--web", "--ignore-not-found"},
		{
			"patch", "secret", "kubetenant-webhook-config", "-n", "kubetenant-system", "-p",
			`{"stringData":{"revoked.yaml":"second"}}`,
		},
		{"get", "retiredtenant", "initech-" + initech},
	} {
		if out, err := s.kubectl(t, "admin", args...); err != nil {
			return fmt.Errorf("%v: %s", args, out)
		}
	}
	return nil
}

// checkRestored checks that each change after the backup is lost.
func checkRestored(t *testing.T, s *server) {
	t.Helper()
	out := s.awaitKubectl(t, "admin", "get", "tenants", "-o",
		"jsonpath={range .items[*]}{.metadata.name} {.spec.suspension}{.metadata.deletionTimestamp},{end}")
	if out != "acme ,globex ,initech ," {
		t.Errorf("Tenants %q", out)
	}
	if out := s.awaitKubectl(t, "admin", "get", "retiredtenants", "-o", "name"); out != "" {
		t.Errorf("RetiredTenants %q", out)
	}
	if out := s.awaitKubectl(t, "admin", "get", "secret", "kubetenant-webhook-config", "-n", "kubetenant-system", "-o",
		`jsonpath={.data.revoked\.yaml}`); out != "Zmlyc3Q=" {
		t.Errorf("revocations %q", out)
	}
	s.awaitKubectl(t, "acme", "create", "configmap", "again", "-n", "acme--web")
	s.awaitKubectl(t, "globex", "get", "configmap", "again", "-n", "acme--web")
	s.awaitKubectl(t, "admin", "get", "rolebinding", "guest", "-n", "acme--web")
}

// exitCode runs a command of kubectl tenant as the admin. It returns the exit code and the output.
func exitCode(t *testing.T, s *server, args ...string) (code int, output string) {
	t.Helper()
	output, err := s.tenant(t, "admin", args...)
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return failed.ExitCode(), output
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, output
}

// usageOf returns a usage record of a tenant for the current hour.
func usageOf(id, uid string) string {
	const form = `{"server":"cp-0","started":"2026-01-01T00:00:00Z","uid":%q,"tenant":%q,"hour":%q,"requests":1}` + "\n"
	return fmt.Sprintf(form, uid, id, time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339))
}

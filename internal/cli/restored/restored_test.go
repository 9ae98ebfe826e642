// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package restored_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/kubetenant/kubetenant/internal/cli/restored"
	"github.com/kubetenant/kubetenant/internal/cli/validate"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	uidAcme = "5b2d5a3e-4a55-4c28-9a3c-2ad1b0f4f6a1"
	uidOld  = "0c1d5a3e-4a55-4c28-9a3c-2ad1b0f4f6a2"
	uidGone = "7f7d5a3e-4a55-4c28-9a3c-2ad1b0f4f6a3"
)

// backup is the time of the last change in the backup.
var backup = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return backup.Add(time.Duration(minutes) * time.Minute) }

func own(kind, name, uid string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       kind,
		"spec":       spec,
	}}
	u.SetName(name)
	u.SetUID(types.UID(uid))
	u.SetCreationTimestamp(metav1.NewTime(at(-60)))
	return u
}

// meta returns the metadata of an object that was last changed before the backup.
func meta(apiVersion, kind, name string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	if namespace, rest, found := strings.Cut(name, "/"); found {
		m.Namespace, name = namespace, rest
	}
	written := metav1.NewTime(backup)
	m.Name, m.CreationTimestamp = name, metav1.NewTime(at(-60))
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: &written}}
	return m
}

func labeled(m *metav1.PartialObjectMetadata, key, value string) *metav1.PartialObjectMetadata {
	m.Labels = map[string]string{key: value}
	return m
}

// cluster returns the clients of a restored cluster with the Tenant acme.
func cluster(t *testing.T, ours []runtime.Object, objects ...runtime.Object) restored.Clients {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for resource, kind := range map[string]string{
		v1alpha1.ResourceTenants:        v1alpha1.KindTenant,
		v1alpha1.ResourceRetiredTenants: v1alpha1.KindRetiredTenant,
	} {
		lists[v1alpha1.SchemeGroupVersion.WithResource(resource)] = kind + "List"
	}
	ours = append(ours, own(v1alpha1.KindTenant, "acme", uidAcme, map[string]any{"id": "acme"}))
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, meta(v1alpha1.GroupVersion, v1alpha1.KindTenant, "acme"))
	return restored.Clients{
		Dynamic:  dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, ours...),
		Metadata: metadatafake.NewSimpleMetadataClient(scheme, objects...),
	}
}

// auditEvent returns an event for a successful write by admin. minutes is the time after the
// backup.
func auditEvent(minutes int, verb, group, resource, name string) string {
	namespace := ""
	if ns, rest, found := strings.Cut(name, "/"); found {
		namespace, name = ns, rest
	}
	return auditEventBy("admin", at(minutes), verb, group, resource, namespace, name)
}

func auditEventBy(by string, when time.Time, verb, group, resource, namespace, name string) string {
	object := map[string]any{
		"apiGroup":  group,
		"resource":  resource,
		"namespace": namespace,
		"name":      name,
	}
	text, err := json.Marshal(map[string]any{
		"kind":                     "Event",
		"apiVersion":               "audit.k8s.io/v1",
		"level":                    "Metadata",
		"stage":                    "ResponseComplete",
		"requestURI":               "/apis",
		"verb":                     verb,
		"user":                     map[string]any{"username": by},
		"objectRef":                object,
		"responseStatus":           map[string]any{"code": 200},
		"requestReceivedTimestamp": when.Format(time.RFC3339Nano),
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// checked returns the findings and the errors from a check as text, one on each line.
func checked(t *testing.T, clients restored.Clients, o restored.Options) (findings, unread string, r *validate.Report) {
	t.Helper()
	o.Cluster, o.Namespace, o.Now = "prod", "kubetenant-system", at(600)
	r = &validate.Report{}
	if err := restored.Check(t.Context(), clients, o, r); err != nil {
		t.Fatal(err)
	}
	for i := range r.Findings {
		findings += r.Findings[i].String() + " | " + r.Findings[i].Fix + "\n"
	}
	for _, err := range r.Unread {
		unread += err.Error() + "\n"
	}
	return findings, unread, r
}

func file(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAuditLog checks the findings about writes that are in an audit log but not in the restored
// cluster.
func TestAuditLog(t *testing.T) {
	const ours, rbac = tenant.Domain, rbacv1.GroupName
	dry := strings.Replace(auditEvent(5, "delete", ours, "tenants", "acme"), `"/apis"`, `"/apis?dryRun=All"`, 1)
	failed := strings.Replace(auditEvent(5, "delete", ours, "tenants", "acme"), `"code":200`, `"code":403`, 1)
	status := strings.Replace(auditEvent(5, "update", ours, "tenants", "acme"), `"name"`,
		`"subresource":"status","name"`, 1)
	for name, c := range map[string]struct {
		events []string
		want   string // a part of the only finding, or "" if there is none
	}{
		"a deleted Tenant exists again": {
			[]string{auditEvent(5, "delete", ours, "tenants", "acme")},
			"Tenant acme: was deleted at 2026-11-28T12:05:00Z by admin, but exists: its callers have access again, and its " +
				"name is not reserved | kubectl tenant delete-tenant acme\n",
		},
		"a Tenant whose RetiredTenant is missing exists again": {
			[]string{auditEventBy("system:apiserver", at(5), "create", ours, "retiredtenants", "", "acme-"+uidAcme)},
			"Tenant acme: was deleted at 2026-11-28T12:05:00Z by system:apiserver, but exists",
		},
		"two events for a deleted Tenant": {
			[]string{
				auditEventBy("system:apiserver", at(5), "create", ours, "retiredtenants", "", "acme-"+uidAcme),
				auditEvent(5, "delete", ours, "tenants", "acme"),
			},
			"Tenant acme: was deleted at 2026-11-28T12:05:00Z by admin, but exists",
		},
		"a suspension is missing": {
			[]string{auditEvent(5, "patch", ours, "tenants", "acme")},
			"Tenant acme: was written at 2026-11-28T12:05:00Z by admin, but its last change is of 2026-11-28T12:00:00Z: a " +
				"suspension may be missing",
		},
		"a retired name is not reserved": {
			[]string{auditEventBy("system:apiserver", at(5), "create", ours, "retiredtenants", "", "gone-"+uidGone)},
			"RetiredTenant gone-" + uidGone + ": was created at 2026-11-28T12:05:00Z by system:apiserver, but does not exist: " +
				"the name of the deleted tenant is not reserved",
		},
		"a deleted grant is valid again": {
			[]string{auditEvent(5, "delete", ours, "accessgrants", "acme--web/read")},
			"AccessGrant acme--web/read: was deleted at 2026-11-28T12:05:00Z by admin, but exists: the grant is valid again | " +
				"kubectl delete accessgrant read -n acme--web\n",
		},
		"a name that needs quotes": {
			[]string{auditEvent(5, "delete", rbac, "rolebindings", "acme--web/a;b")},
			"| kubectl delete rolebinding 'a;b' -n acme--web\n",
		},
		"a revocation is missing": {
			[]string{auditEvent(5, "update", "", "secrets", "kubetenant-system/kubetenant-webhook-config")},
			"Secret kubetenant-system/kubetenant-webhook-config: was written at 2026-11-28T12:05:00Z by admin, but its last " +
				"change is of 2026-11-28T12:00:00Z: later revocations",
		},
		"Secrets of other namespaces are not compared": {
			[]string{auditEvent(5, "delete", "", "secrets", "acme--web/password")}, "",
		},
		"an object that was created and deleted": {
			[]string{
				auditEvent(6, "create", ours, "accessgrants", "acme--web/gone"),
				auditEvent(7, "delete", ours, "accessgrants", "acme--web/gone"),
			}, "",
		},
		"a missing object": {
			[]string{auditEvent(5, "create", rbac, "clusterrolebindings", "ops")},
			"ClusterRoleBinding ops: was written at 2026-11-28T12:05:00Z by admin, but does not exist",
		},
		"an object that was deleted with its namespace": {
			[]string{
				auditEvent(5, "create", rbac, "rolebindings", "acme--gone/a"),
				auditEventBy("admin", at(6), "delete", "", "namespaces", "acme--gone", "acme--gone"),
			}, "",
		},
		"a deleted namespace exists again": {
			[]string{auditEventBy("admin", at(6), "delete", "", "namespaces", "acme--web", "acme--web")},
			"Namespace acme--web: was deleted",
		},
		"an object of a controller": {
			[]string{auditEventBy("system:apiserver", at(5), "create", rbac, "rolebindings", "acme--web", "derived")}, "",
		},
		"the server repeats its own deletions": {
			[]string{auditEvent(5, "delete", rbac, "rolebindings", "acme--web/managed")}, "",
		},
		"a write before the backup":                {[]string{auditEvent(-1, "patch", ours, "tenants", "acme")}, ""},
		"a deletion before the object was created": {[]string{auditEvent(-70, "delete", ours, "tenants", "acme")}, ""},
		"a read":                           {[]string{auditEvent(5, "get", ours, "tenants", "acme")}, ""},
		"a dry run":                        {[]string{dry}, ""},
		"a write that the server rejected": {[]string{failed}, ""},
		"a write of the status":            {[]string{status}, ""},
		"a resource that is not compared":  {[]string{auditEvent(5, "delete", "", "pods", "acme--web/a")}, ""},
		"a new service account":            {[]string{auditEvent(5, "create", "", "serviceaccounts", "acme--web/b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clients := cluster(t, nil,
				labeled(meta("v1", "Namespace", "acme--web"), tenant.Label, "acme"),
				meta(v1alpha1.GroupVersion, v1alpha1.KindAccessGrant, "acme--web/read"),
				meta(rbacv1.SchemeGroupVersion.String(), "RoleBinding", "acme--web/a;b"),
				labeled(meta(rbacv1.SchemeGroupVersion.String(), "RoleBinding", "acme--web/managed"), tenant.ManagedLabel, "x"),
				meta("v1", "Secret", "kubetenant-system/kubetenant-webhook-config"),
				meta("v1", "Secret", "acme--web/password"),
			)
			log := file(t, "audit.log", c.events...)
			findings, unread, _ := checked(t, clients, restored.Options{AuditLogs: []string{log}})
			if unread != "" {
				t.Errorf("unread %s", unread)
			}
			if !strings.Contains(findings, c.want) || strings.Count(findings, "\n") != min(len(c.want), 1) {
				t.Errorf("findings %q, want %q", findings, c.want)
			}
		})
	}
}

// usageRecord returns a record for the hour that contains the given time.
func usageRecord(id, uid string, when time.Time) string {
	return fmt.Sprintf(`{"server":"cp-0","started":"2026-11-01T00:00:00Z","uid":%q,"tenant":%q,"hour":%q,"requests":1}`,
		uid, id, when.Truncate(time.Hour).Format(time.RFC3339))
}

// TestUsageRecords checks the findings about tenants that are in usage records but not in the
// restored cluster.
func TestUsageRecords(t *testing.T) {
	known := usageRecord("acme", uidAcme, at(60))
	for name, c := range map[string]struct{ record, want string }{
		"the Tenant exists": {known, ""},
		"the Tenant was created after the backup": {
			usageRecord("gone", uidGone, at(60)),
			"tenant gone: the usage records contain the UID " + uidGone + " until 2026-11-28T13:00:00Z, but the cluster has " +
				"neither a Tenant nor a RetiredTenant with this UID: its name is not reserved | if the tenant was not deleted, " +
				"apply its Tenant; otherwise create the RetiredTenant gone-" + uidGone + " with spec.id gone, spec.uid " + uidGone,
		},
		"the Tenant was replaced after the backup": {
			usageRecord("acme", uidGone, at(60)),
			"credentials of its former users are valid again | kubectl tenant delete-tenant acme, then create the tenant " +
				"again with --replaces " + uidAcme,
		},
		"an earlier Tenant":     {usageRecord("acme", uidGone, at(-600)), ""},
		"a retired Tenant":      {usageRecord("old", uidOld, at(-600)), ""},
		"a record of a gateway": {usageRecord("label-only", "", at(60)), ""},
		"requests without ID":   {usageRecord("(none)", "", at(60)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			old := own(v1alpha1.KindRetiredTenant, "old-"+uidOld, "", map[string]any{"id": "old", "uid": uidOld})
			dir := filepath.Dir(file(t, "usage.jsonl", known, c.record))
			findings, unread, _ := checked(t, cluster(t, []runtime.Object{old}), restored.Options{UsageRecords: dir})
			if unread != "" {
				t.Errorf("unread %s", unread)
			}
			if !strings.Contains(findings, c.want) || strings.Count(findings, "\n") != min(len(c.want), 1) {
				t.Errorf("findings %q, want %q", findings, c.want)
			}
		})
	}
}

// TestClusterAlone checks the findings without audit logs and usage records.
func TestClusterAlone(t *testing.T) {
	successor := own(v1alpha1.KindTenant, "next", uidGone, map[string]any{"id": "next", "replaces": uidOld})
	retired := own(v1alpha1.KindRetiredTenant, "next-"+uidOld, "", map[string]any{"id": "next", "uid": uidOld})
	for name, c := range map[string]struct {
		ours  []runtime.Object
		label string
		want  string
		fails bool
	}{
		"a consistent cluster": {nil, "acme", "", false},
		"the system tenant":    {nil, "system", "", false},
		"a successor without the RetiredTenant": {
			[]runtime.Object{successor},
			"acme",
			"Tenant next: replaces the Tenant with the UID " + uidOld + ", but no RetiredTenant has this UID: credentials of " +
				"the former tenant are valid | create the RetiredTenant next-" + uidOld,
			true,
		},
		"a successor with the RetiredTenant": {[]runtime.Object{successor, retired}, "acme", "", false},
		"a namespace without a Tenant": {
			nil,
			"lost",
			"warning: tenant lost: 1 namespaces, such as web, have the label of this tenant, which has no Tenant: its name " +
				"is not reserved",
			false,
		},
		"a namespace of a deleted tenant": {
			[]runtime.Object{retired}, "next", "which has no Tenant: the tenant was deleted", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			clients := cluster(t, c.ours, labeled(meta("v1", "Namespace", "web"), tenant.Label, c.label))
			findings, unread, r := checked(t, clients, restored.Options{})
			if unread != "" || r.Failed() != c.fails {
				t.Errorf("failed %t, unread %s", r.Failed(), unread)
			}
			if !strings.Contains(findings, c.want) || strings.Count(findings, "\n") != min(len(c.want), 1) {
				t.Errorf("findings %q, want %q", findings, c.want)
			}
			if valid := len(r.Valid) > 0; valid != (c.want == "") {
				t.Errorf("valid %v", r.Valid)
			}
		})
	}
}

// TestBadRecords checks that unusable records cause an error, and are not reported as valid.
func TestBadRecords(t *testing.T) {
	good := auditEvent(-1, "patch", tenant.Domain, "tenants", "acme")
	account := func(uid string) string {
		return strings.Replace(good, `"username":"admin"`,
			`"username":"system:serviceaccount:kube-system:node-controller","uid":"`+uid+`"`, 1)
	}
	known := usageRecord("acme", uidAcme, at(60))
	for name, c := range map[string]struct {
		audit []string // the lines of an audit log
		usage []string // the lines of usage records
		want  string   // "" if the records can be used
	}{
		"an empty audit log": {audit: []string{""}, want: "no audit events found"},
		"an audit log without responses": {
			audit: []string{strings.ReplaceAll(good, "Complete", "Started")}, want: "no audit",
		},
		"an incomplete line":               {audit: []string{good, good[:40]}, want: "1 lines are not audit events, so"},
		"a line that is not an event":      {audit: []string{good, "{}"}, want: "the first is "},
		"the audit log of another cluster": {audit: []string{account("other")}, want: "no service account of kube-system"},
		"the audit log of this cluster":    {audit: []string{account("own-uid")}},
		"an empty usage record":            {usage: []string{""}, want: "no record contains the UID of a Tenant"},
		"usage records of a gateway":       {usage: []string{usageRecord("acme", "", at(1))}, want: "not of a gateway"},
		"usage records of another cluster": {
			usage: []string{usageRecord("acme", uidGone, at(1))}, want: "they belong to another cluster",
		},
		"an incomplete usage record":    {usage: []string{known, known[:30]}, want: "1 lines or files could not be read"},
		"usage records of this cluster": {usage: []string{known}},
	} {
		t.Run(name, func(t *testing.T) {
			o := restored.Options{}
			if c.audit != nil {
				o.AuditLogs = []string{file(t, "audit.log", c.audit...)}
			}
			if c.usage != nil {
				o.UsageRecords = filepath.Dir(file(t, "usage.jsonl", c.usage...))
			}
			ours := meta("v1", "ServiceAccount", "kube-system/node-controller")
			ours.UID = "own-uid"
			findings, unread, r := checked(t, cluster(t, nil, ours), o)
			if findings != "" || !strings.Contains(unread, c.want) || (unread == "") != (c.want == "") {
				t.Errorf("findings %q, unread %q, want %q", findings, unread, c.want)
			}
			if valid := len(r.Valid) > 0; valid != (c.want == "") {
				t.Errorf("valid %v", r.Valid)
			}
			if strings.Contains(unread, `"username"`) {
				t.Errorf("the error contains the line: %s", unread)
			}
		})
	}
	t.Run("a missing file", func(t *testing.T) {
		missing := filepath.Join(t.TempDir(), "none")
		_, unread, _ := checked(t, cluster(t, nil), restored.Options{AuditLogs: []string{missing}, UsageRecords: missing})
		if strings.Count(unread, "no such file") != 2 {
			t.Errorf("unread %s", unread)
		}
	})
}

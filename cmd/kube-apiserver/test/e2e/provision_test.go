// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestProvision checks that the bindings, Roles, quotas, labels, template objects and publications
// of a Tenant are provisioned in its namespaces and cannot be changed. It also checks that bindings
// are deleted when the Tenant no longer specifies them, and with their namespace.
func TestProvision(t *testing.T) { testProvision(t, certificatesConfig) }

func TestWebhookProvision(t *testing.T) { testProvision(t, groupsConfig, "--webhook") }

func testProvision(t *testing.T, tenancy string, args ...string) {
	t.Parallel()
	s := startServer(t, map[string]string{"tenancy.yaml": tenancy}, args...)
	s.apply(t,
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: { name: ops },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: ops } ] }`)
	for _, namespace := range []string{"acme--web", "acme--db"} {
		s.namespace(t, namespace, "acme")
	}
	username := s.mustKubectl(t, "acme", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	applyTenant := func(spec string) {
		t.Helper()
		s.apply(t,
			`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: acme }, spec: { id: acme, `+spec+` } }`)
	}
	applyTenant(`admins: [ { kind: User, name: "` + username +
		`" } ], bindings: [ { clusterRole: view, subjects: [ { kind: Group, name: watchers } ] } ]`)
	awaitBindings := func(namespace string, want ...string) {
		t.Helper()
		waittest.Until(t, func() error {
			out, err := s.kubectl(t, "admin", "get", "rolebindings", "-n", namespace, "-l", "kubetenant.dev/managed", "-o",
				"jsonpath={.items[*].metadata.name}")
			if got := strings.Fields(out); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%s has %q, want %q", namespace, out, want)
			}
			return nil
		})
	}
	awaitBindings("acme--web", "kubetenant:admins", "kubetenant:binding:view")
	awaitBindings("acme--db", "kubetenant:admins", "kubetenant:binding:view")
	s.awaitKubectl(t, "acme", "create", "configmap", "its-own", "-n", "acme--web")
	s.awaitOutput(t, `{"failed":0,"prepared":2,"total":2} True`, "get", "tenant", "acme", "-o",
		`jsonpath={.status.namespaces} {.status.conditions[?(@.type=="Prepared")].status}`)
	if len(args) == 0 {
		t.Run("an admin creates namespaces", func(t *testing.T) { adminCreatesNamespaces(t, s) })
	} else { // the compiled-in controller has no user of its own
		t.Run("the controller's user is restricted", func(t *testing.T) { controllerUserIsRestricted(t, s) })
	}
	if out, err := s.kubectl(t, "admin", "get", "clusterrolebindings", "-l", "kubetenant.dev/managed",
		"-o", "name"); err != nil || out != "" {
		t.Errorf("ClusterRoleBindings that were created for a Tenant: %s", out)
	}
	if len(args) > 0 { // kube-apiserver's RBAC has no derived rights, so the cluster's admin grants this right
		s.apply(t,
			`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: { name: members-of-acme }, rules: [
  { apiGroups: [kubetenant.dev], resources: [tenantmembers], verbs: [create] },
  { apiGroups: [kubetenant.dev], resources: [tenantmembers], resourceNames: [acme], verbs: ["*"] } ] }`)
		s.apply(t,
			`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: { name: members-of-acme },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: members-of-acme },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: "`+username+`" } ] }`)
	}
	t.Run("an admin assigns roles to members", func(t *testing.T) { membersGetRoles(t, s) })
	t.Run("an admin defines Roles", func(t *testing.T) { rolesAreDefined(t, s) })
	t.Run("a TenantQuota is created", func(t *testing.T) { quotaIsCreated(t, s) })
	t.Run("the number of namespaces is limited", func(t *testing.T) { namespacesAreLimited(t, s) })
	t.Run("namespaces have the Tenant's labels", func(t *testing.T) { namespaceLabels(t, s) })
	t.Run("templates are applied", func(t *testing.T) { templatesAreApplied(t, s) })
	t.Run("objects are published", func(t *testing.T) { objectsArePublished(t, s) })
	t.Run("a Tenant is applied repeatedly", func(t *testing.T) { appliedAgain(t, s) })
	t.Run("provisioned objects cannot be changed", func(t *testing.T) { managedObjectsAreProtected(t, s) })
	t.Run("writers of Tenants bind only their own roles", func(t *testing.T) { writersBindOnlyTheirRoles(t, s) })

	s.namespace(t, "acme--later", "acme")
	awaitBindings("acme--later", "kubetenant:admins", "kubetenant:binding:view")
	applyTenant(`bindings: [ { clusterRole: edit, subjects: [ { kind: Group, name: watchers } ] } ]`)
	awaitBindings("acme--web", "kubetenant:binding:edit")
	waittest.Until(t, func() error {
		if out, err := s.kubectl(t, "acme", "create", "ns", "acme--more", "--dry-run=server"); err == nil {
			return fmt.Errorf("a former admin creates namespaces: %s", out)
		}
		return nil
	})
	waittest.Until(t, func() error {
		if out, err := s.kubectl(t, "acme", "get", "configmap", "its-own", "-n", "acme--web"); err == nil {
			return fmt.Errorf("a former admin reads a ConfigMap: %s", out)
		}
		return nil
	})
	if out, err := s.kubectl(t, "admin", "delete", "ns", "acme--later", "--timeout=2m"); err != nil {
		t.Errorf("a namespace with provisioned objects is not deleted: %s", out)
	}
	t.Run("deleted definitions are restored", func(t *testing.T) {
		definitionsAreRestored(t, s, len(args) > 0)
	})
	if out, err := s.kubectl(t, "admin", "delete", "tenant", "acme"); err == nil ||
		!strings.Contains(out, "spec.deletionPolicy is Protect") {
		t.Errorf("a protected Tenant is deleted: %s", out)
	}
	applyTenant(
		`deletionPolicy: Orphan, bindings: [ { clusterRole: edit, subjects: [ { kind: Group, name: watchers } ] } ]`,
	)
	s.mustKubectl(t, "admin", "delete", "tenant", "acme", "--timeout=3m")
	awaitBindings("acme--web")
	if out, err := s.kubectl(t, "acme", "get", "configmaps", "-n", "acme--web"); err == nil ||
		!strings.Contains(out, "the caller's tenant was deleted") {
		t.Errorf("callers of a deleted tenant: %s", out)
	}
}

// adminCreatesNamespaces checks that a tenant's admin can create and delete namespaces of its own
// tenant, but not of another tenant. A caller that is not an admin cannot create namespaces.
func adminCreatesNamespaces(t *testing.T, s *server) {
	s.awaitKubectl(t, "acme", "create", "ns", "acme--made")
	if out, err := s.kubectl(t, "acme", "auth", "can-i", "create", "namespaces"); err != nil ||
		!strings.HasSuffix(strings.TrimSpace(out), "yes") {
		t.Errorf("can-i create namespaces: %s", out)
	}
	if out, err := s.kubectl(t, "acme", "get", "ns", "acme--made", "-o",
		`jsonpath={.metadata.labels.kubetenant\.dev/tenant}`); err != nil || out != "acme" {
		t.Errorf("the namespace that an admin created belongs to %q", out)
	}
	for _, args := range [][]string{
		{"acme", "create", "ns", "globex--x"},
		{"globex", "create", "ns", "globex--x"},
		{"globex", "create", "ns", "acme--x"},
		{"acme", "create", "clusterrole", "x", "--verb=get", "--resource=pods"},
	} {
		if out, err := s.kubectl(t, args[0], args[1:]...); err == nil || !strings.Contains(out, "orbidden") {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
	if out, err := s.kubectl(t, "acme", "delete", "ns", "acme--made", "--wait=false"); err != nil {
		t.Errorf("an admin cannot delete its namespace: %s", out)
	}
}

// quotaIsCreated checks that the TenantQuota of a Tenant with spec.quota is created and enforced,
// cannot be changed, and is deleted when the Tenant no longer has a quota.
func quotaIsCreated(t *testing.T, s *server) {
	s.namespace(t, "umbrella--web", "umbrella")
	s.apply(t,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: umbrella }, `+
			`spec: { id: umbrella, quota: { count/secrets: 2 } } }`)
	s.awaitOutput(t, `{"count/secrets":"2"} {"count/secrets":"0"}`, "get", "tenantquota", "umbrella", "-o",
		`jsonpath={.spec.hard} {.status.used}`)
	for i, want := range []bool{true, true, false} {
		out, err := s.kubectl(t, "admin", "create", "secret", "generic", fmt.Sprint("s", i), "-n", "umbrella--web",
			"--as=ops", "--as-group=system:masters")
		if (err == nil) != want {
			t.Errorf("secret %d of 2: %s", i, out)
		}
	}
	if out, err := s.kubectl(t, "admin", "patch", "tenantquota", "umbrella", "--type=merge", "-p",
		`{"spec":{"hard":{"count/secrets":9}}}`); err == nil || !strings.Contains(out, "kubetenant.dev/managed") {
		t.Errorf("a provisioned TenantQuota was changed: %s", out)
	}
	s.apply(t,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: umbrella }, spec: { id: umbrella } }`)
	waittest.Until(t, func() error {
		if out, err := s.kubectl(t, "admin", "get", "tenantquota", "umbrella"); err == nil {
			return fmt.Errorf("the TenantQuota remains: %s", out)
		}
		return nil
	})
}

// namespacesAreLimited checks that concurrent requests create exactly spec.namespaces.max
// namespaces, that a deletion allows one more, and that invalid Tenants are rejected.
func namespacesAreLimited(t *testing.T, s *server) {
	const most, tries = 20, 50
	s.apply(t, fmt.Sprintf(`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: bounded }, `+
		`spec: { id: bounded, namespaces: { max: %d } } }`,
		most))
	s.awaitOutput(t, `{"count/namespaces":"20"} {"count/namespaces":"0"}`, "get", "tenantquota", "bounded", "-o",
		`jsonpath={.spec.hard} {.status.used}`)
	// The server calls the webhooks for requests of this user.
	admin := s.clientAs(t, "ops", "system:masters")
	another := func(i int) error {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name:   fmt.Sprint("bounded--", i),
				Labels: map[string]string{"kubetenant.dev/tenant": "bounded"},
			},
		}
		_, err := admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
		return err
	}
	var created atomic.Int32
	var running sync.WaitGroup
	for i := range tries {
		running.Go(func() {
			switch err := another(i); {
			case err == nil:
				created.Add(1)
			case !strings.Contains(err.Error(), "exceeded quota: bounded"):
				t.Errorf("namespace %d: %v", i, err)
			}
		})
	}
	if running.Wait(); created.Load() != most {
		t.Errorf("%d of %d namespaces were created, want %d", created.Load(), tries, most)
	}
	all, err := admin.CoreV1().Namespaces().List(t.Context(),
		metav1.ListOptions{LabelSelector: "kubetenant.dev/tenant=bounded"})
	if err != nil || len(all.Items) != most {
		t.Fatalf("%d namespaces, %v", len(all.Items), err)
	}
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), all.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error { return another(tries) }) // until the deletion has freed quota
	s.apply(t,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: bounded }, `+
			`spec: { id: bounded, namespaces: { max: 3 } } }`)
	s.awaitOutput(t, "TooManyNamespaces", "get", "tenant", "bounded", "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
	for spec, what := range map[string]string{
		`id: bounded, namespaces: { max: 1 }, quota: { count/namespaces: 2 }`: "spec.quota",
		`id: bounded, namespaces: { max: -1 }`:                                "spec.namespaces.max",
		`id: bounded, namespaces: { prefix: Sometimes }`:                      "spec.namespaces.prefix",
		`id: a--b, namespaces: { prefix: Required }`:                          "spec.namespaces.prefix",
		`id: bounded, namespaces: { templates: [ a, a ] }`:                    "spec.namespaces.templates",
		`id: bounded, namespaces: { templates: [ ../a ] }`:                    "spec.namespaces.templates",
		`id: bounded, memberRoles: [ "" ]`:                                    "spec.memberRoles",
	} {
		id, _, _ := strings.Cut(strings.TrimPrefix(spec, "id: "), ",")
		path := testFile(t,
			`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: `+id+` }, spec: { `+spec+` } }`)
		if out, err := s.kubectl(t, "admin", "apply", "-f", path); err == nil || !strings.Contains(out, what) {
			t.Errorf("%s: %s", spec, out)
		}
	}
}

// namespaceLabels checks that existing namespaces get the labels of spec.namespaces, and that new
// namespaces have these labels when they are created. Labels that the Tenant no longer specifies
// are removed.
func namespaceLabels(t *testing.T, s *server) {
	s.apply(t,
		`{ apiVersion: v1, kind: Namespace, metadata: { name: wayne--old, labels: { kubetenant.dev/tenant: wayne, `+
			`kept: by-somebody } } }`)
	applyTenant := func(namespaces string) {
		t.Helper()
		s.apply(t,
			`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: wayne }, spec: { id: wayne, namespaces: `+
				namespaces+` } }`)
	}
	applyTenant(`{ labels: { cost-centre: "42" }, podSecurity: restricted }`)
	labels := func(namespace, want string) error {
		out, err := s.kubectl(t, "admin", "get", "ns", namespace, "-o",
			`jsonpath={.metadata.labels.cost-centre} {.metadata.labels.pod-security\.kubernetes\.io/enforce} `+
				`{.metadata.labels.kept}`)
		if err != nil || out != want {
			return fmt.Errorf("%s has %q, want %q", namespace, out, want)
		}
		return nil
	}
	waittest.Until(t, func() error { return labels("wayne--old", "42 restricted by-somebody") })
	waittest.Until(t, func() error { // until admission has observed the Tenant
		_, _ = s.kubectl(t, "admin", "delete", "ns", "wayne--new", "--ignore-not-found")
		out, err := s.kubectl(t, "admin", append([]string{
			"create", "-o", `jsonpath={.metadata.labels.cost-centre}`, "-f",
			testFile(t,
				`{ apiVersion: v1, kind: Namespace, metadata: { name: wayne--new, labels: { kubetenant.dev/tenant: wayne } } }`),
		}, asOps...)...)
		if err != nil || out != "42" {
			return fmt.Errorf("a new namespace has %q", out)
		}
		return nil
	})
	s.mustKubectl(t, "admin",
		append([]string{"label", "ns", "wayne--old", "cost-centre=7", "--overwrite"}, asOps...)...)
	waittest.Until(t, func() error { return labels("wayne--old", "42 restricted by-somebody") })
	applyTenant(`{ labels: { other: x } }`)
	waittest.Until(t, func() error { return labels("wayne--old", "  by-somebody") })
	applyTenant(`{}`)
	s.awaitOutput(t, "", "get", "ns", "wayne--old", "-o",
		"jsonpath={.metadata.labels.other}")
	labelsAreRestored(t, s, applyTenant)
}

// labelsAreRestored checks that a label has its original value again when the Tenant no longer
// specifies it, even if another field manager also owns the label.
func labelsAreRestored(t *testing.T, s *server, applyTenant func(string)) {
	awaitLabels := func(want string) {
		t.Helper()
		s.awaitOutput(t, want, "get", "ns", "wayne--old", "-o",
			`jsonpath={.metadata.labels.resource\.kubernetes\.io/admin-access} `+
				`{.metadata.labels.pod-security\.kubernetes\.io/enforce} {.metadata.labels.kept}`)
	}
	for _, attack := range [][]string{
		{"patch", "ns", "wayne--old", "--type=merge", "-p", `{"metadata":{"managedFields":[{}]}}`},
		{
			"apply", "--server-side", "--field-manager=other", "-f", testFile(t, `{ apiVersion: v1, kind: Namespace, `+
				`metadata: { name: wayne--old, labels: { kept: given, resource.kubernetes.io/admin-access: "true", `+
				`pod-security.kubernetes.io/enforce: privileged } } }`),
		},
	} {
		applyTenant(`{ labels: { kept: given, resource.kubernetes.io/admin-access: "true" }, podSecurity: privileged }`)
		awaitLabels("true privileged given")
		s.mustKubectl(t, "admin", append(attack, asOps...)...)
		applyTenant(`{}`)
		awaitLabels("  by-somebody")
	}
}

// appliedAgain checks that repeated server-side applies of a Tenant change nothing after the server
// has written its status and finalizer.
func appliedAgain(t *testing.T, s *server) {
	manifest := testFile(t,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: hooli }, `+
			`spec: { id: hooli, access: Open, admins: [ { kind: User, name: gavin } ], quota: { pods: 5 }, `+
			`deletionPolicy: Protect } }`)
	var versions []string
	for range 3 {
		s.mustKubectl(t, "admin", "apply", "--server-side", "--field-manager=gitops", "-f", manifest)
		s.awaitOutput(t, `1 hooli ["kubetenant.dev/tenant"] True`, "get", "tenant", "hooli", "-o",
			`jsonpath={.status.observedGeneration} {.status.quota} {.metadata.finalizers} {.status.conditions[0].status}`)
		out := s.mustKubectl(t, "admin", "get", "tenant", "hooli", "-o", "jsonpath={.metadata.resourceVersion}")
		versions = append(versions, out)
	}
	if versions[0] != versions[1] || versions[1] != versions[2] {
		t.Errorf("an apply without changes updates the Tenant: %v", versions)
	}
}

// controllerUserIsRestricted checks that the controller's user cannot write objects that the
// controller does not maintain, even in the group system:masters.
func controllerUserIsRestricted(t *testing.T, s *server) {
	for what, args := range map[string][]string{
		"ConfigMap":                 {"create", "configmap", "x", "-n", "acme--web"},
		"binding with another name": {"create", "rolebinding", "x", "--clusterrole=view", "--user=x", "-n", "acme--web"},
		"binding in a namespace of the system tenant": {
			"create", "rolebinding", "kubetenant:x", "--clusterrole=cluster-admin", "--user=x", "-n", "kube-system",
		},
		"ClusterRoleBinding": {
			"create", "clusterrolebinding", "kubetenant:x", "--clusterrole=cluster-admin", "--user=x",
		},
		"ClusterRoleBinding with an admins name": {
			"create", "clusterrolebinding", "kubetenant:admins:x", "--clusterrole=kubetenant:tenant-admin", "--user=x",
		},
		"create a namespace":          {"create", "namespace", "x"},
		"label of a system namespace": {"label", "namespace", "default", "x=y"},
		"label of another tenant":     {"label", "namespace", "acme--web", "kubetenant.dev/tenant=globex", "--overwrite"},
		"annotation of a namespace":   {"annotate", "namespace", "acme--web", "x=y"},
		"owner of a system namespace": {"label", "namespace", "default", "kubetenant.dev/tenant=acme"},
		"delete a system namespace":   {"delete", "namespace", "default"},
		"delete a ClusterRoleBinding": {"delete", "clusterrolebinding", "cluster-admin"},
		"binding of a tenant's group": {"create", "clusterrolebinding", "x", "--clusterrole=view", "--group=tenant:acme"},
		"finalizer of a Tenant": {
			"patch", "tenant", "acme", "--type=merge", "-p",
			`{"metadata":{"finalizers":["kubetenant.dev/tenant","x.example/y"]}}`,
		},
		"label of a Tenant":         {"label", "tenant", "acme", "x=y"},
		"delete a Tenant":           {"delete", "tenant", "acme"},
		"spec of a Tenant":          {"patch", "tenant", "acme", "--type=merge", "-p", `{"spec":{"access":"Closed"}}`},
		"delete other RoleBindings": {"delete", "rolebinding", "-n", "kube-system", "--all"},
		"other Event":               {"create", "-n", "acme--web", "-f", "testdata/event.yaml"},
	} {
		out, err := s.kubectl(t, "admin", append(args, "--as=system:kubetenant:tenants", "--as-group=system:masters")...)
		if err == nil || !strings.Contains(out, "orbidden") {
			t.Errorf("%s: %s", what, out)
		}
	}
}

// managedObjectsAreProtected checks that the cluster's admin cannot change, delete or imitate a
// binding that a Tenant provisions.
func managedObjectsAreProtected(t *testing.T, s *server) {
	const name = "kubetenant:admins"
	for what, args := range map[string][]string{
		"merge patch": {"patch", "rolebinding", name, "--type=merge", "-p", `{"subjects":[]}`},
		"JSON patch":  {"patch", "rolebinding", name, "--type=json", "-p", `[{"op":"remove","path":"/subjects"}]`},
		"strategic patch": {
			"patch", "rolebinding", name, "--type=strategic", "-p", `{"metadata":{"finalizers":["x.example/y"]}}`,
		},
		"owner reference": {
			"patch", "rolebinding", name, "--type=merge", "-p",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u"}]}}`,
		},
		"added label":                 {"label", "rolebinding", name, "x=y"},
		"removed label":               {"label", "rolebinding", name, "kubetenant.dev/managed-"},
		"annotation":                  {"annotate", "rolebinding", name, "kubetenant.dev/expires=2020-01-01T00:00:00Z"},
		"deletion":                    {"delete", "rolebinding", name},
		"delete all":                  {"delete", "rolebindings", "--all"},
		"create with a reserved name": {"create", "rolebinding", "kubetenant:x", "--clusterrole=view", "--user=x"},
	} {
		out, err := s.kubectl(t, "admin", append(args, "-n", "acme--web")...)
		if err == nil || !strings.Contains(out, "kubetenant") || !strings.Contains(out, "orbidden") {
			t.Errorf("%s: %s", what, out)
		}
	}
	out, err := s.kubectl(t, "admin", "get", "rolebindings", "-n", "acme--web", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil || out != "kubetenant:admins kubetenant:binding:view" {
		t.Errorf("the RoleBindings are %s", out)
	}
	// The annotation of a prepared namespace is still there.
	out, err = s.kubectl(t, "admin", "get", "ns", "acme--web", "-o",
		`jsonpath={.metadata.annotations.kubetenant\.dev/prepared}`)
	if err != nil || out == "" {
		t.Errorf("prepared: %q", out)
	}
}

// writersBindOnlyTheirRoles checks that the writer of a Tenant can specify only objects that it
// may write itself, such as bindings of roles that it may bind. It also checks that invalid
// fields are rejected.
func writersBindOnlyTheirRoles(t *testing.T, s *server) {
	s.apply(t, `{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: { name: tenant-writer }, rules: [
  { apiGroups: [kubetenant.dev], resources: [tenants], verbs: ["*"] },
  { apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [view], verbs: [bind] } ] }`)
	s.apply(t,
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: { name: tenant-writer },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenant-writer },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: writer },
  { kind: ServiceAccount, name: writer, namespace: kube-system } ] }`)
	writers := map[string]rest.ImpersonationConfig{
		"user of the system tenant": {UserName: "writer", Extra: map[string][]string{tenant.ExtraKey: {"system"}}},
		"service account of kube-system": {
			UserName: "system:serviceaccount:kube-system:writer",
			Groups:   []string{"system:serviceaccounts"},
		},
	}
	for name, writer := range writers {
		t.Run(name, func(t *testing.T) { writerBindsOnlyItsRoles(t, s, writer) })
	}
}

func writerBindsOnlyItsRoles(t *testing.T, s *server, writer rest.ImpersonationConfig) {
	client := dynamicClient(t, s.impersonate(t, writer))
	write := func(spec string) error {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: initech }, `+
			`spec: { id: initech, `+spec+` } }`), &u.Object); err != nil {
			t.Fatal(err)
		}
		_, err := client.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).Create(t.Context(), u,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	waittest.Until(t, func() error {
		return write(`bindings: [ { clusterRole: view, subjects: [ { kind: User, name: x } ] } ]`)
	})
	for what, c := range map[string]struct{ spec, want string }{
		"admins": {`admins: [ { kind: User, name: x } ]`, "may not bind the ClusterRole admin"},
		"another role": {
			`bindings: [ { clusterRole: cluster-admin, subjects: [ { kind: User, name: x } ] } ]`,
			"may not bind the ClusterRole cluster-admin",
		},
		"reserved name": {
			`bindings: [ { clusterRole: view, subjects: [ { kind: Group, name: "system:masters" } ] } ]`,
			"spec.bindings[0].subjects[0] is a reserved name",
		},
		"two bindings of one role": {
			`bindings: [ { clusterRole: view, subjects: [ { kind: User, name: x } ] }, ` +
				`{ clusterRole: view, subjects: [ { kind: User, name: z } ] } ]`,
			"must not contain two bindings with the same ClusterRole",
		},
		"invalid role name": {
			`bindings: [ { clusterRole: a/b, subjects: [ { kind: User, name: x } ] } ]`, "must be a valid ClusterRole name",
		},
		"no subjects":          {`bindings: [ { clusterRole: view, subjects: [] } ]`, "spec.bindings[0].subjects"},
		"invalid kind":         {`admins: [ { kind: Robot, name: x } ]`, "spec.admins[0].kind"},
		"user without a name":  {`admins: [ { kind: User, name: "" } ]`, "spec.admins[0].name"},
		"no account namespace": {`admins: [ { kind: ServiceAccount, name: x } ]`, "spec.admins[0].namespace"},
		"invalid service account name": {
			`admins: [ { kind: ServiceAccount, name: Robot_1, namespace: acme--web } ]`, "spec.admins[0].name",
		},
		"user with a namespace": {`admins: [ { kind: User, name: x, namespace: y } ]`, "spec.admins[0].namespace"},
		"another API group":     {`admins: [ { kind: User, name: x, apiGroup: example.com } ]`, "spec.admins[0].apiGroup"},
		"invalid podSecurity":   {`namespaces: { podSecurity: lax }`, "spec.namespaces.podSecurity"},
		"invalid label key":     {`namespaces: { labels: { "a b": x } }`, "keys must be valid label keys"},
		"invalid label value":   {`namespaces: { labels: { a: "x y" } }`, "spec.namespaces.labels"},
		"tenant label": {
			`namespaces: { labels: { kubetenant.dev/tenant: globex } }`, "keys must not begin with kubetenant.dev/",
		},
		"podSecurity as a label": {
			`namespaces: { labels: { pod-security.kubernetes.io/enforce: privileged } }`, "(use podSecurity)",
		},
		"labels": {
			`namespaces: { labels: { resource.kubernetes.io/admin-access: "true" } }`,
			"spec.namespaces.labels: the caller may not update namespaces in the whole cluster",
		},
		"podSecurity": {
			`namespaces: { podSecurity: privileged }`,
			"spec.namespaces.podSecurity: the caller may not update namespaces in the whole cluster",
		},
		"maximum of namespaces": {
			`namespaces: { max: 3 }`, "spec.namespaces.max: the caller may not create tenantquotas.kubetenant.dev",
		},
		"quota":            {`quota: { pods: "3" }`, "spec.quota: the caller may not create tenantquotas.kubetenant.dev"},
		"policy Delete":    {`deletionPolicy: Delete`, "spec.deletionPolicy: the caller may not delete namespaces"},
		"policy Orphan":    {`deletionPolicy: Orphan`, "spec.deletionPolicy: the caller may not delete clusterrolebindings"},
		"invalid quantity": {`quota: { pods: many }`, "spec.quota"},
		"invalid policy":   {`deletionPolicy: Maybe`, "spec.deletionPolicy"},
		"acceptUndated":    {`acceptUndated: perhaps`, "spec.acceptUndated"},
		"unknown Tenant":   {`replaces: 0f0f0f0f-0000-0000-0000-000000000000`, "no Tenant with this ID was deleted"},
		"misspelled field": {`admin: [ { kind: User, name: x } ]`, "spec.admin"},
	} {
		if err := write(c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
}

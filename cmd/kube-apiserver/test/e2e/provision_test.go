// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const provisionConfig = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
`

const webhookProvisionConfig = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication: { sources: [] }
authorization: { subject: { fromGroups: true } }
`

// TestProvision checks that the bindings of a Tenant are in its namespaces and cannot be changed.
// They are deleted when the Tenant no longer has them, and with their namespace.
func TestProvision(t *testing.T) { testProvision(t, provisionConfig) }

func TestWebhookProvision(t *testing.T) { testProvision(t, webhookProvisionConfig, "--webhook") }

func testProvision(t *testing.T, tenancy string, args ...string) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tenancy.yaml"), []byte(tenancy), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, args...)
	apply(t, s,
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: { name: ops },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: ops } ] }`)
	for _, namespace := range []string{"acme--web", "acme--db"} {
		apply(t, s,
			`{ apiVersion: v1, kind: Namespace, metadata: { name: `+namespace+`, labels: { kubetenant.dev/tenant: acme } } }`)
	}
	username, err := kubectl(t, s, "acme", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if err != nil {
		t.Fatal(username)
	}
	applyTenant := func(spec string) {
		t.Helper()
		apply(t, s,
			`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: acme }, spec: { id: acme, `+spec+` } }`)
	}
	applyTenant(`admins: [ { kind: User, name: "` + username +
		`" } ], bindings: [ { clusterRole: view, subjects: [ { kind: Group, name: watchers } ] } ]`)
	awaitBindings := func(namespace string, want ...string) {
		t.Helper()
		waittest.Until(t, func() error {
			out, err := kubectl(t, s, "admin", "get", "rolebindings", "-n", namespace, "-l", "kubetenant.dev/managed", "-o",
				"jsonpath={.items[*].metadata.name}")
			if got := strings.Fields(out); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%s has %q, want %q", namespace, out, want)
			}
			return nil
		})
	}
	awaitBindings("acme--web", "kubetenant:admins", "kubetenant:binding:view")
	awaitBindings("acme--db", "kubetenant:admins", "kubetenant:binding:view")
	waittest.Until(t, func() error {
		if out, err := kubectl(t, s, "acme", "create", "configmap", "its-own", "-n", "acme--web"); err != nil {
			return fmt.Errorf("an admin may not: %s", out)
		}
		return nil
	})
	waittest.Until(t, func() error {
		out, err := kubectl(t, s, "admin", "get", "tenant", "acme", "-o",
			`jsonpath={.status.namespaces} {.status.conditions[?(@.type=="Prepared")].status}`)
		if err != nil || out != `{"failed":0,"prepared":2,"total":2} True` {
			return fmt.Errorf("the status: %s", out)
		}
		return nil
	})
	if len(args) == 0 {
		t.Run("an admin makes namespaces", func(t *testing.T) { adminCreatesNamespaces(t, s) })
	} else { // the compiled-in controller has no account
		t.Run("who gives it writes nothing else", func(t *testing.T) { controllerUserIsRestricted(t, s) })
	}
	if out, err := kubectl(t, s, "admin", "get", "clusterrolebindings", "-l", "kubetenant.dev/managed",
		"-o", "name"); err != nil || out != "" {
		t.Errorf("ClusterRoleBindings that a Tenant gave: %s", out)
	}
	if len(args) > 0 { // kube-apiserver's RBAC derives no right, so the cluster's admin grants it
		apply(t, s,
			`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: { name: members-of-acme }, rules: [
  { apiGroups: [kubetenant.dev], resources: [tenantmembers], verbs: [create] },
  { apiGroups: [kubetenant.dev], resources: [tenantmembers], resourceNames: [acme], verbs: ["*"] } ] }`)
		apply(t, s,
			`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: { name: members-of-acme },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: members-of-acme },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: "`+username+`" } ] }`)
	}
	t.Run("an admin says who its members are", func(t *testing.T) { membersGetRoles(t, s) })
	t.Run("an admin defines Roles", func(t *testing.T) { rolesAreDefined(t, s) })
	t.Run("what it may use becomes its quota", func(t *testing.T) { quotaIsCreated(t, s) })
	t.Run("it has no more namespaces than it may", func(t *testing.T) { namespacesAreLimited(t, s) })
	t.Run("what its namespaces are like", func(t *testing.T) { namespaceLabels(t, s) })
	t.Run("what templates say is in them", func(t *testing.T) { templatesAreApplied(t, s) })
	t.Run("objects are published to them", func(t *testing.T) { objectsArePublished(t, s) })
	t.Run("a tool that applies it again changes nothing", func(t *testing.T) { appliedAgain(t, s) })
	t.Run("nobody changes it", func(t *testing.T) { managedObjectsAreProtected(t, s) })
	t.Run("who may write Tenants gives no more than his own", func(t *testing.T) { writersBindOnlyTheirRoles(t, s) })

	apply(t, s,
		`{ apiVersion: v1, kind: Namespace, metadata: { name: acme--later, labels: { kubetenant.dev/tenant: acme } } }`)
	awaitBindings("acme--later", "kubetenant:admins", "kubetenant:binding:view")
	applyTenant(`bindings: [ { clusterRole: edit, subjects: [ { kind: Group, name: watchers } ] } ]`)
	awaitBindings("acme--web", "kubetenant:binding:edit")
	waittest.Until(t, func() error {
		if out, err := kubectl(t, s, "acme", "create", "ns", "acme--more", "--dry-run=server"); err == nil {
			return fmt.Errorf("who is no admin any more makes namespaces: %s", out)
		}
		return nil
	})
	waittest.Until(t, func() error {
		if out, err := kubectl(t, s, "acme", "get", "configmap", "its-own", "-n", "acme--web"); err == nil {
			return fmt.Errorf("who is no admin any more may: %s", out)
		}
		return nil
	})
	if out, err := kubectl(t, s, "admin", "delete", "ns", "acme--later", "--timeout=2m"); err != nil {
		t.Errorf("a namespace with what is given does not go: %s", out)
	}
	t.Run("definitions that were deleted come back", func(t *testing.T) {
		definitionsAreRestored(t, s, len(args) > 0)
	})
	if out, err := kubectl(t, s, "admin", "delete", "tenant", "acme"); err == nil ||
		!strings.Contains(out, "spec.deletionPolicy is Protect") {
		t.Errorf("a Tenant that is protected is deleted: %s", out)
	}
	applyTenant(
		`deletionPolicy: Orphan, bindings: [ { clusterRole: edit, subjects: [ { kind: Group, name: watchers } ] } ]`,
	)
	if out, err := kubectl(t, s, "admin", "delete", "tenant", "acme", "--timeout=3m"); err != nil {
		t.Fatal(out)
	}
	awaitBindings("acme--web")
	if out, err := kubectl(t, s, "acme", "get", "configmaps", "-n", "acme--web"); err == nil ||
		!strings.Contains(out, "the caller's tenant was deleted") {
		t.Errorf("callers of a tenant that was deleted: %s", out)
	}
}

// adminCreatesNamespaces checks that an admin creates namespaces of its own tenant only. Other
// callers create none.
func adminCreatesNamespaces(t *testing.T, s *localserver.Server) {
	waittest.Until(t, func() error {
		if out, err := kubectl(t, s, "acme", "create", "ns", "acme--made"); err != nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if out, err := kubectl(t, s, "acme", "auth", "can-i", "create", "namespaces"); err != nil ||
		!strings.HasSuffix(strings.TrimSpace(out), "yes") {
		t.Errorf("a review of a right that follows from the Tenant: %s", out)
	}
	if out, err := kubectl(t, s, "acme", "get", "ns", "acme--made", "-o",
		`jsonpath={.metadata.labels.kubetenant\.dev/tenant}`); err != nil || out != "acme" {
		t.Errorf("what an admin makes is of %s", out)
	}
	for _, args := range [][]string{
		{"acme", "create", "ns", "globex--x"},
		{"globex", "create", "ns", "globex--x"},
		{"globex", "create", "ns", "acme--x"},
		{"acme", "create", "clusterrole", "x", "--verb=get", "--resource=pods"},
	} {
		if out, err := kubectl(t, s, args[0], args[1:]...); err == nil || !strings.Contains(out, "orbidden") {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
	if out, err := kubectl(t, s, "acme", "delete", "ns", "acme--made", "--wait=false"); err != nil {
		t.Errorf("an admin does not delete what he made: %s", out)
	}
}

// quotaIsCreated checks the quota of tenant umbrella, which has one namespace.
func quotaIsCreated(t *testing.T, s *localserver.Server) {
	apply(t, s,
		`{ apiVersion: v1, kind: Namespace, metadata: { name: umbrella--web, labels: { kubetenant.dev/tenant: umbrella } } }`)
	apply(t, s,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: umbrella }, `+
			`spec: { id: umbrella, quota: { count/secrets: 2 } } }`)
	waittest.Until(t, func() error {
		out, err := kubectl(t, s, "admin", "get", "tenantquota", "umbrella", "-o", `jsonpath={.spec.hard} {.status.used}`)
		if err != nil || out != `{"count/secrets":"2"} {"count/secrets":"0"}` {
			return fmt.Errorf("its quota: %s", out)
		}
		return nil
	})
	for i, want := range []bool{true, true, false} {
		out, err := kubectl(t, s, "admin", "create", "secret", "generic", fmt.Sprint("s", i), "-n", "umbrella--web",
			"--as=ops", "--as-group=system:masters")
		if (err == nil) != want {
			t.Errorf("secret %d of 2: %s", i, out)
		}
	}
	if out, err := kubectl(t, s, "admin", "patch", "tenantquota", "umbrella", "--type=merge", "-p",
		`{"spec":{"hard":{"count/secrets":9}}}`); err == nil || !strings.Contains(out, "kubetenant.dev/managed") {
		t.Errorf("a quota that a Tenant gives is changed: %s", out)
	}
	apply(t, s,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: umbrella }, spec: { id: umbrella } }`)
	waittest.Until(t, func() error {
		if out, err := kubectl(t, s, "admin", "get", "tenantquota", "umbrella"); err == nil {
			return fmt.Errorf("its quota stays: %s", out)
		}
		return nil
	})
}

// namespacesAreLimited creates 50 namespaces at the same time. The limit must apply.
func namespacesAreLimited(t *testing.T, s *localserver.Server) {
	const most, tries = 20, 50
	apply(t, s, fmt.Sprintf(`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: bounded }, `+
		`spec: { id: bounded, namespaces: { max: %d } } }`,
		most))
	waittest.Until(t, func() error {
		out, err := kubectl(t, s, "admin", "get", "tenantquota", "bounded", "-o", `jsonpath={.spec.hard} {.status.used}`)
		if err != nil || out != `{"count/namespaces":"20"} {"count/namespaces":"0"}` {
			return fmt.Errorf("its quota: %s", out)
		}
		return nil
	})
	as := config(t, s, "admin")
	// The server calls the webhooks for this user.
	as.Impersonate = rest.ImpersonationConfig{UserName: "ops", Groups: []string{"system:masters"}}
	admin := client(t, as)
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
		t.Errorf("%d of %d namespaces were made, %d may be", created.Load(), tries, most)
	}
	all, err := admin.CoreV1().Namespaces().List(t.Context(),
		metav1.ListOptions{LabelSelector: "kubetenant.dev/tenant=bounded"})
	if err != nil || len(all.Items) != most {
		t.Fatalf("%d namespaces, %v", len(all.Items), err)
	}
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), all.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error { return another(tries) }) // after the deletion
	apply(t, s,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: bounded }, `+
			`spec: { id: bounded, namespaces: { max: 3 } } }`)
	waittest.Until(t, func() error {
		out, err := kubectl(t, s, "admin", "get", "tenant", "bounded", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
		if err != nil || out != "TooManyNamespaces" {
			return fmt.Errorf("Ready: %s", out)
		}
		return nil
	})
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
		if out, err := kubectl(t, s, "admin", "apply", "-f", path); err == nil || !strings.Contains(out, what) {
			t.Errorf("%s: %s", spec, out)
		}
	}
}

// namespaceLabels checks that existing namespaces get their labels, and that new ones have them when
// they are created.
func namespaceLabels(t *testing.T, s *localserver.Server) {
	apply(t, s,
		`{ apiVersion: v1, kind: Namespace, metadata: { name: wayne--old, labels: { kubetenant.dev/tenant: wayne, `+
			`kept: by-somebody } } }`)
	applyTenant := func(namespaces string) {
		t.Helper()
		apply(t, s,
			`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: wayne }, spec: { id: wayne, namespaces: `+
				namespaces+` } }`)
	}
	applyTenant(`{ labels: { cost-centre: "42" }, podSecurity: restricted }`)
	labels := func(namespace, want string) error {
		out, err := kubectl(t, s, "admin", "get", "ns", namespace, "-o",
			`jsonpath={.metadata.labels.cost-centre} {.metadata.labels.pod-security\.kubernetes\.io/enforce} `+
				`{.metadata.labels.kept}`)
		if err != nil || out != want {
			return fmt.Errorf("%s has %q, want %q", namespace, out, want)
		}
		return nil
	}
	waittest.Until(t, func() error { return labels("wayne--old", "42 restricted by-somebody") })
	waittest.Until(t, func() error { // until admission has observed the Tenant
		_, _ = kubectl(t, s, "admin", "delete", "ns", "wayne--new", "--ignore-not-found")
		out, err := kubectl(t, s, "admin", append([]string{
			"create", "-o", `jsonpath={.metadata.labels.cost-centre}`, "-f",
			testFile(t,
				`{ apiVersion: v1, kind: Namespace, metadata: { name: wayne--new, labels: { kubetenant.dev/tenant: wayne } } }`),
		}, asOps...)...)
		if err != nil || out != "42" {
			return fmt.Errorf("a new namespace has %q", out)
		}
		return nil
	})
	if out, err := kubectl(t, s, "admin",
		append([]string{"label", "ns", "wayne--old", "cost-centre=7", "--overwrite"}, asOps...)...); err != nil {
		t.Fatal(out)
	}
	waittest.Until(t, func() error { return labels("wayne--old", "42 restricted by-somebody") })
	applyTenant(`{ labels: { other: x } }`)
	waittest.Until(t, func() error { return labels("wayne--old", "  by-somebody") })
	applyTenant(`{}`)
	waittest.Until(t, func() error {
		if out, err := kubectl(t, s, "admin", "get", "ns", "wayne--old", "-o",
			"jsonpath={.metadata.labels.other}"); err != nil || out != "" {
			return fmt.Errorf("what is not given any more stays: %s", out)
		}
		return nil
	})
	labelsAreRestored(t, s, applyTenant)
}

// labelsAreRestored checks that labels return to their values from before the Tenant, even if
// another field manager owns them.
func labelsAreRestored(t *testing.T, s *localserver.Server, applyTenant func(string)) {
	awaitLabels := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			out, err := kubectl(t, s, "admin", "get", "ns", "wayne--old", "-o",
				`jsonpath={.metadata.labels.resource\.kubernetes\.io/admin-access} `+
					`{.metadata.labels.pod-security\.kubernetes\.io/enforce} {.metadata.labels.kept}`)
			if err != nil || out != want {
				return fmt.Errorf("the labels are %q, want %q", out, want)
			}
			return nil
		})
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
		if out, err := kubectl(t, s, "admin", append(attack, asOps...)...); err != nil {
			t.Fatal(out)
		}
		applyTenant(`{}`)
		awaitLabels("  by-somebody")
	}
}

// appliedAgain applies a Tenant as a GitOps tool does, while the server writes its status and
// finalizer. Neither reverts the other.
func appliedAgain(t *testing.T, s *localserver.Server) {
	manifest := testFile(t,
		`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: hooli }, `+
			`spec: { id: hooli, access: Open, admins: [ { kind: User, name: gavin } ], quota: { pods: 5 }, `+
			`deletionPolicy: Protect } }`)
	var versions []string
	for range 3 {
		if out, err := kubectl(t, s, "admin", "apply", "--server-side", "--field-manager=gitops",
			"-f", manifest); err != nil {
			t.Fatal(out)
		}
		waittest.Until(t, func() error {
			out, err := kubectl(t, s, "admin", "get", "tenant", "hooli", "-o",
				`jsonpath={.status.observedGeneration} {.status.quota} {.metadata.finalizers} {.status.conditions[0].status}`)
			if err != nil || out != `1 hooli ["kubetenant.dev/tenant"] True` {
				return fmt.Errorf("its status: %s", out)
			}
			return nil
		})
		out, err := kubectl(t, s, "admin", "get", "tenant", "hooli", "-o", "jsonpath={.metadata.resourceVersion}")
		if err != nil {
			t.Fatal(out)
		}
		versions = append(versions, out)
	}
	if versions[0] != versions[1] || versions[1] != versions[2] {
		t.Errorf("what is applied again is written: %v", versions)
	}
}

// controllerUserIsRestricted checks that the controller's user may do nothing else, even with all rights.
func controllerUserIsRestricted(t *testing.T, s *localserver.Server) {
	for what, args := range map[string][]string{
		"another kind":              {"create", "configmap", "x", "-n", "acme--web"},
		"a binding of another name": {"create", "rolebinding", "x", "--clusterrole=view", "--user=x", "-n", "acme--web"},
		"one in the system's space": {
			"create", "rolebinding", "kubetenant:x", "--clusterrole=cluster-admin", "--user=x", "-n", "kube-system",
		},
		"one in the whole cluster": {
			"create", "clusterrolebinding", "kubetenant:x", "--clusterrole=cluster-admin", "--user=x",
		},
		"one of the admins' name": {
			"create", "clusterrolebinding", "kubetenant:admins:x", "--clusterrole=kubetenant:tenant-admin", "--user=x",
		},
		"a namespace":                   {"create", "namespace", "x"},
		"the label of a system's":       {"label", "namespace", "default", "x=y"},
		"whose a namespace is":          {"label", "namespace", "acme--web", "kubetenant.dev/tenant=globex", "--overwrite"},
		"another annotation":            {"annotate", "namespace", "acme--web", "x=y"},
		"a namespace's owner":           {"label", "namespace", "default", "kubetenant.dev/tenant=acme"},
		"the end of the system's space": {"delete", "namespace", "default"},
		"the end of others' bindings":   {"delete", "clusterrolebinding", "cluster-admin"},
		"a new binding of a tenant's":   {"create", "clusterrolebinding", "x", "--clusterrole=view", "--group=tenant:acme"},
		"another finalizer": {
			"patch", "tenant", "acme", "--type=merge", "-p",
			`{"metadata":{"finalizers":["kubetenant.dev/tenant","x.example/y"]}}`,
		},
		"a Tenant's labels":              {"label", "tenant", "acme", "x=y"},
		"the end of a Tenant":            {"delete", "tenant", "acme"},
		"a Tenant":                       {"patch", "tenant", "acme", "--type=merge", "-p", `{"spec":{"access":"Closed"}}`},
		"somebody else's binding":        {"delete", "rolebinding", "-n", "kube-system", "--all"},
		"an event beside those it makes": {"create", "-n", "acme--web", "-f", "testdata/event.yaml"},
	} {
		out, err := kubectl(t, s, "admin", append(args, "--as=system:kubetenant:tenants", "--as-group=system:masters")...)
		if err == nil || !strings.Contains(out, "orbidden") {
			t.Errorf("%s: %s", what, out)
		}
	}
}

// managedObjectsAreProtected tries every way to change a binding of a Tenant, as the cluster's admin.
func managedObjectsAreProtected(t *testing.T, s *localserver.Server) {
	const name = "kubetenant:admins"
	for what, args := range map[string][]string{
		"merge patch": {"patch", "rolebinding", name, "--type=merge", "-p", `{"subjects":[]}`},
		"JSON patch":  {"patch", "rolebinding", name, "--type=json", "-p", `[{"op":"remove","path":"/subjects"}]`},
		"strategic patch": {
			"patch", "rolebinding", name, "--type=strategic", "-p", `{"metadata":{"finalizers":["x.example/y"]}}`,
		},
		"an owner": {
			"patch", "rolebinding", name, "--type=merge", "-p",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u"}]}}`,
		},
		"another label":     {"label", "rolebinding", name, "x=y"},
		"without its label": {"label", "rolebinding", name, "kubetenant.dev/managed-"},
		"an annotation":     {"annotate", "rolebinding", name, "kubetenant.dev/expires=2020-01-01T00:00:00Z"},
		"deleted":           {"delete", "rolebinding", name},
		"all deleted":       {"delete", "rolebindings", "--all"},
		"one of its kind":   {"create", "rolebinding", "kubetenant:x", "--clusterrole=view", "--user=x"},
	} {
		out, err := kubectl(t, s, "admin", append(args, "-n", "acme--web")...)
		if err == nil || !strings.Contains(out, "kubetenant") || !strings.Contains(out, "orbidden") {
			t.Errorf("%s: %s", what, out)
		}
	}
	out, err := kubectl(t, s, "admin", "get", "rolebindings", "-n", "acme--web", "-o",
		"jsonpath={.items[*].metadata.name}")
	if err != nil || out != "kubetenant:admins kubetenant:binding:view" {
		t.Errorf("afterwards there is %s", out)
	}
	// The annotation of a prepared namespace is still there.
	out, err = kubectl(t, s, "admin", "get", "ns", "acme--web", "-o",
		`jsonpath={.metadata.annotations.kubetenant\.dev/prepared}`)
	if err != nil || out == "" {
		t.Errorf("prepared: %q", out)
	}
}

// writersBindOnlyTheirRoles checks that the writer of a Tenant can bind in it only the roles that it
// may bind itself. The subjects must be those that a tenant may bind.
func writersBindOnlyTheirRoles(t *testing.T, s *localserver.Server) {
	apply(t, s, `{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: { name: tenant-writer }, rules: [
  { apiGroups: [kubetenant.dev], resources: [tenants], verbs: ["*"] },
  { apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [view], verbs: [bind] } ] }`)
	apply(t, s,
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: { name: tenant-writer },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenant-writer },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: writer },
  { kind: ServiceAccount, name: writer, namespace: kube-system } ] }`)
	writers := map[string]rest.ImpersonationConfig{
		"one of the system tenant": {UserName: "writer", Extra: map[string][]string{tenant.ExtraKey: {"system"}}},
		"one of the control plane's": {
			UserName: "system:serviceaccount:kube-system:writer",
			Groups:   []string{"system:serviceaccounts"},
		},
	}
	for name, writer := range writers {
		t.Run(name, func(t *testing.T) { writerBindsOnlyItsRoles(t, s, writer) })
	}
}

func writerBindsOnlyItsRoles(t *testing.T, s *localserver.Server, writer rest.ImpersonationConfig) {
	as := config(t, s, "admin")
	as.Impersonate = writer
	client, err := dynamic.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
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
		"a reserved name": {
			`bindings: [ { clusterRole: view, subjects: [ { kind: Group, name: "system:masters" } ] } ]`,
			"spec.bindings[0].subjects[0] is a reserved name",
		},
		"a role twice": {
			`bindings: [ { clusterRole: view, subjects: [ { kind: User, name: x } ] }, ` +
				`{ clusterRole: view, subjects: [ { kind: User, name: z } ] } ]`,
			"must not contain two bindings with the same ClusterRole",
		},
		"no role": {
			`bindings: [ { clusterRole: a/b, subjects: [ { kind: User, name: x } ] } ]`, "must be a valid ClusterRole name",
		},
		"nobody":             {`bindings: [ { clusterRole: view, subjects: [] } ]`, "spec.bindings[0].subjects"},
		"another kind":       {`admins: [ { kind: Robot, name: x } ]`, "spec.admins[0].kind"},
		"a user without one": {`admins: [ { kind: User, name: "" } ]`, "spec.admins[0].name"},
		"an account nowhere": {`admins: [ { kind: ServiceAccount, name: x } ]`, "spec.admins[0].namespace"},
		"no account's name": {
			`admins: [ { kind: ServiceAccount, name: Robot_1, namespace: acme--web } ]`, "spec.admins[0].name",
		},
		"a user somewhere": {`admins: [ { kind: User, name: x, namespace: y } ]`, "spec.admins[0].namespace"},
		"another group":    {`admins: [ { kind: User, name: x, apiGroup: example.com } ]`, "spec.admins[0].apiGroup"},
		"no level":         {`namespaces: { podSecurity: lax }`, "spec.namespaces.podSecurity"},
		"no label's key":   {`namespaces: { labels: { "a b": x } }`, "keys must be valid label keys"},
		"no label's value": {`namespaces: { labels: { a: "x y" } }`, "spec.namespaces.labels"},
		"whose it is": {
			`namespaces: { labels: { kubetenant.dev/tenant: globex } }`, "keys must not begin with kubetenant.dev/",
		},
		"a level as a label": {
			`namespaces: { labels: { pod-security.kubernetes.io/enforce: privileged } }`, "(use podSecurity)",
		},
		"labels": {
			`namespaces: { labels: { resource.kubernetes.io/admin-access: "true" } }`,
			"spec.namespaces.labels: the caller may not update namespaces in the whole cluster",
		},
		"a level": {
			`namespaces: { podSecurity: privileged }`,
			"spec.namespaces.podSecurity: the caller may not update namespaces in the whole cluster",
		},
		"a number": {
			`namespaces: { max: 3 }`, "spec.namespaces.max: the caller may not create tenantquotas.kubetenant.dev",
		},
		"a quota":          {`quota: { pods: "3" }`, "spec.quota: the caller may not create tenantquotas.kubetenant.dev"},
		"a deletion":       {`deletionPolicy: Delete`, "spec.deletionPolicy: the caller may not delete namespaces"},
		"orphaned":         {`deletionPolicy: Orphan`, "spec.deletionPolicy: the caller may not delete clusterrolebindings"},
		"no quantity":      {`quota: { pods: many }`, "spec.quota"},
		"no policy":        {`deletionPolicy: Maybe`, "spec.deletionPolicy"},
		"undated perhaps":  {`acceptUndated: perhaps`, "spec.acceptUndated"},
		"no former Tenant": {`replaces: 0f0f0f0f-0000-0000-0000-000000000000`, "no Tenant with this ID was deleted"},
		"a misspelt field": {`admin: [ { kind: User, name: x } ]`, "spec.admin"},
	} {
		if err := write(c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// load reads a snapshot from a file that contains text.
func load(t *testing.T, text string) (*simulator.Snapshot, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return simulator.Load(path)
}

const objects = `
{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: web, labels: ` +
	`{kubetenant.dev/tenant: acme, team: x}}}, {apiVersion: v1, kind: Namespace, metadata: {name: plain}}]}
---
# nothing
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r, labels: {a: b}}, rules: [{verbs: ` +
	`[get], apiGroups: [""], resources: [pods]}], aggregationRule: {clusterRoleSelectors: [{matchLabels: {c: d}}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: web}, rules: [{verbs: [list], ` +
	`apiGroups: [""], resources: [pods]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b, annotations: ` +
	`{kubetenant.dev/scope: acme}}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: web, annotations: ` +
	`{kubetenant.dev/scope: acme}}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}
---
{apiVersion: kubetenant.dev/v1alpha1, kind: AccessGrant, metadata: {name: g, namespace: web}}
---
{apiVersion: kubetenant.dev/v1alpha1, kind: TenantQuota, metadata: {name: q}, spec: {tenant: acme}}
---
{apiVersion: kubetenant.dev/v1alpha1, kind: TenantQuota, metadata: {name: bad}, spec: {tenant: "NO/"}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: w.x.io}, spec: {group: x.io, ` +
	`names: {plural: w}, scope: Namespaced}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: h}, webhooks: ` +
	`[{name: h.x.io, namespaceSelector: {matchLabels: {team: x}}}]}
---
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: web}}
---
{apiVersion: other.io/v1, kind: Namespace, metadata: {name: impostor}}
`

// TestLoad checks that Load stores the objects of all documents and Lists, and ignores irrelevant
// objects.
func TestLoad(t *testing.T) {
	s, err := load(t, objects)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Namespaces) != 2 || s.Owner("web") != tenanttest.ID(t, "acme") || len(s.Namespaces["web"].Labels) != 1 ||
		s.Namespaces["plain"].Labels != nil {
		t.Errorf("namespaces %v", s.Namespaces)
	}
	role, local := s.Roles[simulator.Key{Name: "r"}], s.Roles[simulator.Key{Namespace: "web", Name: "r"}]
	if len(s.Roles) != 2 || role.Rules[0].Verbs[0] != "get" || role.Labels["a"] != "b" || len(role.Aggregates) != 1 ||
		local.Rules[0].Verbs[0] != "list" {
		t.Errorf("roles %v", s.Roles)
	}
	if len(s.Bindings) != 2 || !s.Bindings[0].Limited || s.Bindings[0].Scope != "acme" || s.Bindings[1].Limited ||
		s.Bindings[1].Namespace != "web" {
		t.Errorf("bindings %+v", s.Bindings)
	}
	if s.Bindings[0].Kind() != "ClusterRoleBinding" || s.Bindings[1].Kind() != "RoleBinding" ||
		s.Roles[s.Bindings[0].RoleKey()] != role || s.Roles[s.Bindings[1].RoleKey()] != local {
		t.Errorf("the bindings' roles are %v and %v", s.Bindings[0].RoleKey(), s.Bindings[1].RoleKey())
	}
	if of, known := s.Quotas["bad"]; len(s.Grants) != 1 || s.Quotas["q"] != tenanttest.ID(t, "acme") || !known ||
		!of.IsZero() {
		t.Errorf("grants %v, quotas %v", s.Grants, s.Quotas)
	}
	w := schema.GroupResource{Group: "x.io", Resource: "w"}
	if s.CustomScope(w) != authz.ScopeNamespaced || s.SelectedLabel("team") == "" || s.SelectedLabel("a") != "" {
		t.Errorf("scope %v, team selects: %s", s.CustomScope(w), s.SelectedLabel("team"))
	}
	if !s.Owner("missing").IsZero() || !s.Owner("plain").IsSystem() {
		t.Errorf("owner of a missing namespace: %v, of a namespace without a label: %v", s.Owner("missing"), s.Owner("plain"))
	}
}

// TestLoadRefuses checks that an invalid object is an error that names the file.
func TestLoadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"not YAML": "a: [",
		"malformed rules": "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: web}, " +
			"rules: text}",
		"in a List": "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: " +
			"web, labels: [1]}}]}",
		"an unknown version": "{apiVersion: rbac.authorization.k8s.io/v9, kind: Role, metadata: {name: r, namespace: web}}",
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := load(t, text); err == nil || s != nil || !strings.Contains(err.Error(), "objects.yaml") {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
	if _, err := simulator.Load(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}

// TestWithCopiesTheSnapshot checks that With does not change the original snapshot.
func TestWithCopiesTheSnapshot(t *testing.T) {
	before, err := load(t, objects)
	if err != nil {
		t.Fatal(err)
	}
	before.Bindings = append(make([]*simulator.Binding, 0, 10), before.Bindings...)
	before.Grants = append(make([]*unstructured.Unstructured, 0, 10), before.Grants...)
	custom := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kubetenant.dev/v1alpha1",
			"kind":       kind,
			"metadata":   map[string]any{"name": name},
			"spec":       spec,
		}}
	}
	binding := func(name string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "web"}}
	}
	crd := custom("CustomResourceDefinition", "y",
		map[string]any{"group": "y.io", "names": map[string]any{"plural": "y"}, "scope": "Cluster"})
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	hook := custom("MutatingWebhookConfiguration", "h", nil)
	hook.SetAPIVersion("admissionregistration.k8s.io/v1")
	hook.Object["webhooks"] = []any{
		map[string]any{"name": "h", "namespaceSelector": map[string]any{"matchLabels": map[string]any{"more": "x"}}},
	}
	after, err := before.With(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{tenant.Label: "globex"}},
	}, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "more"}},
		binding("one"), custom("AccessGrant", "one", nil), custom("TenantQuota", "more", map[string]any{"tenant": "acme"}),
		crd, hook)
	if err != nil {
		t.Fatal(err)
	}
	other, err := before.With(binding("two"), custom("AccessGrant", "two", nil))
	if err != nil {
		t.Fatal(err)
	}
	y := schema.GroupResource{Group: "y.io", Resource: "y"}
	if before.Owner("web") != tenanttest.ID(t, "acme") || len(before.Roles) != 2 || len(before.Quotas) != 2 ||
		before.CustomScope(y) == authz.ScopeCluster || before.SelectedLabel("more") != "" {
		t.Errorf("before: %+v", before)
	}
	if after.Owner("web") != tenanttest.ID(t, "globex") || len(after.Roles) != 3 || len(after.Quotas) != 3 ||
		after.CustomScope(y) != authz.ScopeCluster || after.SelectedLabel("more") == "" {
		t.Errorf("after: %+v", after)
	}
	if after.Bindings[2].Name != "one" || other.Bindings[2].Name != "two" || after.Grants[1].GetName() != "one" ||
		other.Grants[1].GetName() != "two" {
		t.Error("two copies share the added objects")
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessmap_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/accessmap"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

// roleWithRule returns a role that allows one verb on one resource.
func roleWithRule(verb, group, resource string, names ...string) *simulator.Role {
	return &simulator.Role{Rules: []rbacv1.PolicyRule{{
		Verbs:         []string{verb},
		APIGroups:     []string{group},
		Resources:     []string{resource},
		ResourceNames: names,
	}}}
}

// cellsOf returns the map of a cluster with the namespaces acme--web, globex--shop and
// kube-system, and its cells as text. puts adds more objects to the cluster.
func cellsOf(t *testing.T, puts func(*simulator.Snapshot)) (*accessmap.Map, []string) {
	t.Helper()
	klog.SetLogger(logr.Discard())
	var namespaces []*corev1.Namespace
	for name, owner := range map[string]string{"acme--web": "acme", "globex--shop": "globex", "kube-system": ""} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if owner != "" {
			ns.Labels = map[string]string{tenant.Label: owner}
		}
		namespaces = append(namespaces, ns)
	}
	p, err := simulator.NewSnapshot().With(namespaces[0], namespaces[1], namespaces[2])
	if err != nil {
		t.Fatal(err)
	}
	puts(p)
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	m, err := accessmap.New(klog.NewContext(t.Context(), logr.Discard()), p, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range m.Cells {
		i := m.Identities[c.Identity]
		got = append(got, strings.Join([]string{
			i.Kind, i.Name, i.Tenant, m.Namespaces[c.Namespace].Name, m.Groups[c.Group].Name, c.Access, c.Why,
		}, " "))
	}
	return m, got
}

// bind adds a role, and a binding of the user to this role.
func bind(p *simulator.Snapshot, namespace, user string, role *simulator.Role) {
	name := fmt.Sprintf("r%d", len(p.Roles))
	p.Roles[simulator.Key{Name: name}] = role
	p.Bindings = append(p.Bindings, &simulator.Binding{
		Namespace: namespace,
		Name:      name,
		RoleRef:   rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:  []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

// TestGroups checks that access to one resource of a group sets only the cell of this group. The
// cell's access is write if a verb changes objects, otherwise read. Access to one named object
// is enough.
func TestGroups(t *testing.T) {
	for name, c := range map[string]struct {
		role *simulator.Role
		want []string
	}{
		"list deployments":              {roleWithRule("list", "apps", "deployments"), []string{"workloads read"}},
		"exec in Pods":                  {roleWithRule("create", "", "pods/exec"), []string{"workloads write"}},
		"exec in any resource":          {roleWithRule("create", "", "*/exec"), []string{"workloads write"}},
		"delete Secrets":                {roleWithRule("delete", "", "secrets"), []string{"secrets write"}},
		"watch LimitRanges":             {roleWithRule("watch", "", "limitranges"), []string{"configuration read"}},
		"patch Ingresses":               {roleWithRule("patch", "networking.k8s.io", "ingresses"), []string{"network write"}},
		"update PersistentVolumeClaims": {roleWithRule("update", "", "persistentvolumeclaims"), []string{"storage write"}},
		"create tokens":                 {roleWithRule("create", "", "serviceaccounts/token"), []string{"access write"}},
		"create AccessGrants":           {roleWithRule("create", "kubetenant.dev", "accessgrants"), []string{"access write"}},
		"get one named Secret":          {roleWithRule("get", "", "secrets", "s"), []string{"secrets read"}},
		"resource in no group":          {roleWithRule("get", "example.com", "widgets"), nil},
		"resource in another API group": {roleWithRule("get", "extensions", "deployments"), nil},
		"all verbs and resources": {
			roleWithRule("*", "*", "*"),
			[]string{
				"workloads write", "secrets write", "configuration write", "network write", "storage write", "access write",
			},
		},
		"verb that neither reads nor writes": {roleWithRule("bind", "rbac.authorization.k8s.io", "roles"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := cellsOf(t, func(p *simulator.Snapshot) { bind(p, "acme--web", "alice", c.role) })
			var want []string
			for _, text := range c.want {
				want = append(want, "User alice acme acme--web "+text+" own")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestRows checks the order of rows and columns. Rows are sorted by tenant, kind and name. A
// user has one row for each tenant that owns a namespace with a binding of the user. The columns
// of one owner's namespaces are adjacent.
//
// An identity without access has a row, but no cell.
func TestRows(t *testing.T) {
	m, cells := cellsOf(t, func(p *simulator.Snapshot) {
		bind(p, "globex--shop", "alice", roleWithRule("get", "", "secrets"))
		bind(p, "acme--web", "zoe", roleWithRule("get", "", "secrets"))
		bind(p, "acme--web", "alice", roleWithRule("get", "", "secrets"))
		bind(p, "acme--web", "eve", roleWithRule("get", "example.com", "widgets"))
	})
	var rows, columns []string
	for _, i := range m.Identities {
		rows = append(rows, i.Tenant+" "+i.Kind+" "+i.Name)
	}
	for _, n := range m.Namespaces {
		columns = append(columns, n.Owner+" "+n.Name)
	}
	if diff := cmp.Diff([]string{
		"acme Group tenant:acme", "acme User alice", "acme User eve", "acme User zoe", "globex Group tenant:globex",
		"globex User alice",
	}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"acme acme--web", "globex globex--shop", "system *", "system kube-system"},
		columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if want := []string{
		"User alice acme acme--web secrets read own", "User zoe acme acme--web secrets read own",
		"User alice globex globex--shop secrets read own",
	}; !slices.Equal(cells, want) {
		t.Errorf("cells %v, want %v", cells, want)
	}
}

// TestGrantsByName checks that the reason of a cell lists every AccessGrant for the identity,
// instead of the authorizer's reason. A grant of one named object is enough for a cell.
func TestGrantsByName(t *testing.T) {
	m, cells := cellsOf(t, func(p *simulator.Snapshot) {
		for name, names := range map[string][]any{"one": {"settings"}, "two": nil} {
			to := map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"get"}}
			if names == nil {
				to["resources"] = []any{"secrets"}
			} else {
				to["resourceNames"] = names
			}
			p.Grants = append(p.Grants, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "kubetenant.dev/v1alpha1",
				"kind":       "AccessGrant",
				"metadata":   map[string]any{"name": name, "namespace": "globex--shop"},
				"spec": map[string]any{
					"from":    map[string]any{"tenant": "acme", "users": []any{"alice"}},
					"to":      []any{to},
					"grantor": map[string]any{"owner": "globex", "tenant": "globex", "user": "admin"},
				},
			}})
		}
	})
	if want := []string{
		"User alice acme globex--shop secrets read grant", "User alice acme globex--shop configuration read grant",
	}; !slices.Equal(cells, want) {
		t.Errorf("cells %v, want %v", cells, want)
	}
	if len(m.Reasons) != 1 || !strings.Contains(m.Reasons[0], "AccessGrant globex--shop/one") ||
		!strings.Contains(m.Reasons[0], "AccessGrant globex--shop/two") {
		t.Errorf("reasons %q", m.Reasons)
	}
}

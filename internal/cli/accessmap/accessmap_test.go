// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessmap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/accessmap"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

func newMap(t *testing.T) *accessmap.Map {
	t.Helper()
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	o, err := simulator.Load("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	m, err := accessmap.New(ctx, o, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Cluster, m.Made = "test", time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	return m
}

// TestAllServiceAccounts checks that a ClusterRoleBinding of the group of all service accounts
// results in cells for the system tenant and for each other tenant.
func TestAllServiceAccounts(t *testing.T) {
	klog.SetLogger(logr.Discard())
	snapshot, err := simulator.NewSnapshot().With(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme--web", Labels: map[string]string{tenant.Label: "acme"}}})
	if err != nil {
		t.Fatal(err)
	}
	snapshot.Roles[simulator.Key{Name: "all"}] = &simulator.Role{
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	}
	snapshot.Bindings = []*simulator.Binding{{
		Name:     "all",
		RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"}},
	}}
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	m, err := accessmap.New(klog.NewContext(t.Context(), logr.Discard()), snapshot, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	cells := map[string]int{}
	for _, c := range m.Cells {
		cells[m.Identities[c.Identity].Tenant+" in "+m.Namespaces[c.Namespace].Name]++
	}
	if want := map[string]int{"system in *": len(m.Groups), "* in acme--web": len(m.Groups)}; !maps.Equal(cells, want) {
		t.Errorf("cells %v, want %v", cells, want)
	}
}

// TestCells checks that the map contains the expected cells, and no cell for access that the
// server denies.
func TestCells(t *testing.T) {
	m := newMap(t)
	var got []string
	for _, c := range m.Cells {
		i, n := m.Identities[c.Identity], m.Namespaces[c.Namespace]
		got = append(got,
			strings.Join([]string{i.Kind, i.Name, i.Tenant, n.Name, m.Groups[c.Group].Name, c.Access, c.Why}, " "))
	}
	for _, want := range []string{
		"User alice acme acme--web workloads write own",
		"User alice acme acme--web secrets write own",
		"ServiceAccount acme--web/robot acme globex--shop configuration read grant",
		"ServiceAccount acme--web/robot acme acme--web configuration read own",
		"Group system:masters system * access write system",
		"Group auditors * acme--web workloads read own",
		"Group auditors * globex--shop workloads read own",
		"Group auditors system * workloads read system",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no cell %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	for _, cell := range got {
		switch {
		case strings.HasPrefix(cell, "User alice acme globex--shop"), // a caller of another tenant needs a grant
			strings.Contains(cell, "expired"),
			// a service account of another tenant, which the boundary denies in spite of its
			// binding
			strings.HasPrefix(cell, "ServiceAccount globex--shop/foreign globex acme--web"):
			t.Errorf("cell %q", cell)
		}
	}
	data, err := json.Marshal(m)
	if err != nil || len(data) == 0 {
		t.Error(err)
	}
}

// TestInBrowser opens the page in headless Chromium and clicks through it.
func TestInBrowser(t *testing.T) {
	tools := os.Getenv("KUBETENANT_BROWSER")
	if tools == "" {
		t.Skip("KUBETENANT_BROWSER is not set: run make test-browser, which installs a browser")
	}
	var page bytes.Buffer
	if err := newMap(t).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "map.html")
	if err := os.WriteFile(path, page.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../../test/browser/accessmap.mjs")
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(tools, "accessmap.mjs") // the script finds its packages in its own directory
	if err := os.WriteFile(installed, script, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(tools, "node_modules", ".bin", "node"), installed,
		chromium, path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "passed") {
		t.Errorf("%v\n%s", err, out)
	}
}

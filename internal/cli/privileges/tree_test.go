// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

func brief() *privileges.Listing {
	l := listing()
	l.Brief()
	return l
}

func listing() *privileges.Listing {
	return &privileges.Listing{
		Cluster: "c",
		Server:  "https://example.com",
		Identity: &privileges.Identity{
			Kind:   "User",
			Name:   "alice",
			Tenant: "acme",
			Groups: []string{"dev", "system:authenticated"},
		},
		Roles: []privileges.IdentityRole{{
			Kind: "ClusterRole",
			Name: "edit",
			Rules: []rbacv1.PolicyRule{
				{
					Verbs:     []string{"get", "list"},
					APIGroups: []string{"apps"},
					Resources: []string{"deployments", "statefulsets", "daemonsets"},
				},
			},
			Bindings: []privileges.IdentityBinding{{
				Kind:      "RoleBinding",
				Namespace: "acme--web",
				Name:      "b",
				Subject:   "user alice",
				Scope:     "namespace acme--web",
			}},
		}},
	}
}

// TestNarrow checks that the tree contains the same text at any width, and that no line is longer
// than necessary.
func TestNarrow(t *testing.T) {
	words := func(text string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "├─", " ", "└─", " ").Replace(text)), " ")
	}
	want := ""
	for _, width := range []int{1000, 200, 80, 40, 24, 20, 10, 1, 0, -5} {
		var b bytes.Buffer
		if err := brief().WriteTree(&output.Screen{Writer: &b, Width: width}); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = words(b.String())
		}
		if got := words(b.String()); got != want {
			t.Errorf("width %d: got\n%s\nwant\n%s", width, got, want)
		}
		for line := range strings.Lines(b.String()) {
			// The minimum width of a text, plus the prefix of the tree.
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > max(width, 24+16) &&
				strings.Count(strings.TrimLeft(line, " │├└─"), " ") > 0 {
				t.Errorf("width %d: %d columns: %q", width, n, line)
			}
		}
	}
}

// TestColours checks that colors are printed only on a screen with colors.
func TestColours(t *testing.T) {
	var b bytes.Buffer
	if err := brief().WriteTree(&output.Screen{
		Writer:   &b,
		Width:    80,
		Terminal: true,
		Color:    true,
	}); err != nil || !strings.Contains(b.String(), "\x1b[") {
		t.Errorf("missing colors: %q, %v", b.String(), err)
	}
	b.Reset()
	if err := brief().WriteTree(output.NewScreen(&b)); err != nil || strings.Contains(b.String(), "\x1b") {
		t.Errorf("unexpected colors: %q, %v", b.String(), err)
	}
}

// TestOrder checks that the order of the output does not depend on the random order of Go maps.
func TestOrder(t *testing.T) {
	snapshot := simulator.NewSnapshot()
	for _, name := range []string{"d", "b", "a", "c"} {
		for _, ns := range []string{"y", "x", ""} {
			snapshot.Bindings = append(snapshot.Bindings, &simulator.Binding{
				Namespace: ns,
				Name:      name,
				RoleRef:   rbacv1.RoleRef{Kind: "ClusterRole", Name: name},
				Subjects:  []rbacv1.Subject{{Kind: "User", Name: "alice"}},
			})
		}
	}
	first := ""
	for range 20 {
		l := privileges.List(snapshot, &privileges.Identity{User: "alice"}, time.Now())
		var b bytes.Buffer
		l.Identity.Kind = "User"
		if err := l.WriteTree(output.NewScreen(&b)); err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = b.String()
		}
		if b.String() != first {
			t.Fatalf("another order:\n%s\n%s", b.String(), first)
		}
	}
}

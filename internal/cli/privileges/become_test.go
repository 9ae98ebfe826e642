// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// boundary returns a boundary with the default configuration, for a snapshot with additional
// objects.
func boundary(t *testing.T, snapshot *simulator.Snapshot, more ...runtime.Object) *privileges.Boundary {
	t.Helper()
	klog.SetLogger(logr.Discard())
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	if snapshot, err = snapshot.With(more...); err != nil {
		t.Fatal(err)
	}
	b, err := privileges.NewBoundary(klog.NewContext(t.Context(), logr.Discard()), snapshot, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// roleAndBinding returns a ClusterRole with the given rules and its binding to a user. If
// namespace is empty, the binding is a ClusterRoleBinding.
func roleAndBinding(name, user, namespace string, rules ...rbacv1.PolicyRule) []runtime.Object {
	ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: name}
	to := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if namespace == "" {
		return []runtime.Object{role, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: to}}
	}
	return []runtime.Object{role, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: to}}
}

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs:         []string{verb},
		APIGroups:     []string{group},
		Resources:     []string{resource},
		ResourceNames: names,
	}
}

// pathsOf returns "<path>: <subject>" for each subject that can act as the user, without
// duplicates.
func pathsOf(t *testing.T, b *privileges.Boundary, user string, owner tenant.ID) []string {
	t.Helper()
	var all []string
	for _, a := range b.WhoCanBecome(t.Context(), privileges.PathsTo(user), owner) {
		text := a.Path + ": " + a.Name
		if a.SystemOnly {
			text += " system only"
		}
		if a.Across {
			text += " across"
		}
		all = append(all, text)
	}
	return slices.Compact(all)
}

// TestBecomeAccount checks that each right that allows acting as a service account is a separate
// path. The right must apply in the namespace of the account, and to its name. A path with two
// actions requires both.
func TestBecomeAccount(t *testing.T) {
	const robot = "system:serviceaccount:acme--web:robot"
	for name, c := range map[string]struct {
		namespace string
		rules     []rbacv1.PolicyRule
		want      []string
	}{
		"impersonation": {
			"acme--web", []rbacv1.PolicyRule{rule("impersonate", "", "serviceaccounts")}, []string{"impersonate: eve"},
		},
		"impersonation of its name": {
			"acme--web", []rbacv1.PolicyRule{rule("impersonate", "", "serviceaccounts", "robot")}, []string{"impersonate: eve"},
		},
		"impersonation of another name": {
			"acme--web", []rbacv1.PolicyRule{rule("impersonate", "", "serviceaccounts", "other")}, nil,
		},
		"in another namespace": {"globex--shop", []rbacv1.PolicyRule{rule("impersonate", "", "serviceaccounts")}, nil},
		"constrained": {
			"acme--web",
			[]rbacv1.PolicyRule{rule("impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts")},
			[]string{"impersonate (constrained): eve"},
		},
		"token": {
			"acme--web",
			[]rbacv1.PolicyRule{rule("create", "", "serviceaccounts/token")},
			[]string{"request a token for it: eve"},
		},
		"create service accounts": {"acme--web", []rbacv1.PolicyRule{rule("create", "", "serviceaccounts")}, nil},
		"create Secrets":          {"acme--web", []rbacv1.PolicyRule{rule("create", "", "secrets")}, nil},
		"get Secrets": {
			"acme--web",
			[]rbacv1.PolicyRule{rule("get", "", "secrets")},
			[]string{"read its token Secret, if one exists: eve"},
		},
		"create and get Secrets": {
			"acme--web",
			[]rbacv1.PolicyRule{rule("get", "", "secrets"), rule("create", "", "secrets")},
			[]string{"create and read a token Secret for it: eve", "read its token Secret, if one exists: eve"},
		},
		"exec with get": {
			"acme--web", []rbacv1.PolicyRule{rule("get", "", "pods/exec")}, []string{"exec into its pods: eve"},
		},
		"ephemeral containers": {
			"acme--web", []rbacv1.PolicyRule{rule("patch", "", "pods/ephemeralcontainers")}, []string{"debug its pods: eve"},
		},
		"deployments": {
			"acme--web",
			[]rbacv1.PolicyRule{rule("update", "apps", "deployments")},
			[]string{"run a pod as it (deployments.apps): eve"},
		},
		"pods": {"acme--web", []rbacv1.PolicyRule{rule("create", "", "pods")}, []string{"run a pod as it (pods): eve"}},
		"bind": {
			"acme--web",
			[]rbacv1.PolicyRule{rule("bind", "rbac.authorization.k8s.io", "roles")},
			[]string{"bind its roles: eve"},
		},
		"escalate": {
			"acme--web",
			[]rbacv1.PolicyRule{rule("escalate", "rbac.authorization.k8s.io", "roles")},
			[]string{"escalate its roles: eve"},
		},
		"get pods": {"acme--web", []rbacv1.PolicyRule{rule("get", "", "pods")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := pathsOf(
				t,
				boundary(t, shop(t), roleAndBinding("eves", "eve", c.namespace, c.rules...)...),
				robot,
				tenant.ID{},
			)
			// carol may read Secrets in the fixture.
			got = slices.DeleteFunc(got, func(text string) bool {
				return text == "read its token Secret, if one exists: carol"
			})
			if !slices.Equal(got, c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestBecomeUser checks the paths to a user: impersonation, and approving or signing a
// certificate. To approve or sign, a subject needs rights to the request and to the signer.
func TestBecomeUser(t *testing.T) {
	const group, signer = "certificates.k8s.io", "kubernetes.io/kube-apiserver-client"
	for name, c := range map[string]struct {
		rules []rbacv1.PolicyRule
		want  []string
	}{
		"impersonation": {
			[]rbacv1.PolicyRule{rule("impersonate", "", "users", "alice")}, []string{"impersonate: eve"},
		},
		"impersonation of another user": {[]rbacv1.PolicyRule{rule("impersonate", "", "users", "bob")}, nil},
		"constrained": {
			[]rbacv1.PolicyRule{rule("impersonate:user-info", "authentication.k8s.io", "users")},
			[]string{"impersonate (constrained): eve"},
		},
		"approval without the signer": {
			[]rbacv1.PolicyRule{rule("update", group, "certificatesigningrequests/approval")}, nil,
		},
		"approval with the signer": {
			[]rbacv1.PolicyRule{
				rule("update", group, "certificatesigningrequests/approval"), rule("approve", group, "signers", signer),
			},
			[]string{"approve a certificate for it: eve"},
		},
		"approval with another signer": {
			[]rbacv1.PolicyRule{
				rule("update", group, "certificatesigningrequests/approval"), rule("approve", group, "signers", "example.com/x"),
			},
			nil,
		},
		"signature": {
			[]rbacv1.PolicyRule{rule("patch", group, "certificatesigningrequests/status"), rule("sign", group, "signers")},
			[]string{"sign a certificate for it: eve"},
		},
		"bind and escalate": {
			[]rbacv1.PolicyRule{
				rule("bind", "rbac.authorization.k8s.io", "clusterroles"),
				rule("escalate", "rbac.authorization.k8s.io", "clusterroles"),
			},
			[]string{"bind its roles: eve", "escalate its roles: eve"},
		},
		"service account token": {[]rbacv1.PolicyRule{rule("create", "", "serviceaccounts/token")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pathsOf(t, boundary(t, shop(t), roleAndBinding("eves", "eve", "", c.rules...)...),
				"alice", tenant.ID{}); !slices.Equal(got, c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
	// If two subjects each have one of the two rights, neither can use the path.
	halves := append(roleAndBinding("approves", "eve", "", rule("update", group, "certificatesigningrequests/approval")),
		roleAndBinding("signs", "mallory", "", rule("approve", group, "signers"))...)
	if got := pathsOf(t, boundary(t, shop(t), halves...), "alice", tenant.ID{}); len(got) > 0 {
		t.Errorf("one right each: %q", got)
	}
}

// TestBecomeAcross checks that Across is true if the subject may belong to another tenant than the
// target, and SystemOnly if it may only belong to the system tenant. Both are false if the tenant
// of the target is unknown.
func TestBecomeAcross(t *testing.T) {
	const robot = "system:serviceaccount:acme--web:robot"
	b := boundary(t, shop(t), roleAndBinding("eves", "eve", "", rule("create", "", "serviceaccounts/token"))...)
	for owner, want := range map[tenant.ID]string{
		{}:                       "request a token for it: eve",
		tenanttest.ID(t, "acme"): "request a token for it: eve system only",
	} {
		if got := pathsOf(t, b, robot, owner); !slices.Contains(got, want) {
			t.Errorf("of %s: %q; want %q", owner, got, want)
		}
	}
	s := shop(t)
	for name, c := range map[string]struct {
		group              string
		across, systemOnly bool
	}{
		"a group of another tenant":    {"tenant:globex", true, false},
		"a group of the system tenant": {"tenant:system", false, true},
		"a group of the same tenant":   {"tenant:acme", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			role := &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "tokens"},
				Rules:      []rbacv1.PolicyRule{rule("create", "", "serviceaccounts/token")},
			}
			bound := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "tokens"},
				RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "tokens"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: c.group}},
			}
			answers := boundary(t, s, role, bound).
				WhoCanBecome(t.Context(), privileges.PathsTo(robot), tenanttest.ID(t, "acme"))
			found := false
			for _, a := range answers {
				if found = a.Name == c.group; found {
					if a.Across != c.across || a.SystemOnly != c.systemOnly {
						t.Errorf("%s: Across %t, system only %t", c.group, a.Across, a.SystemOnly)
					}
					break
				}
			}
			if !found && c.group != "tenant:globex" { // the boundary denies callers of another tenant
				t.Errorf("%s is missing in %v", c.group, answers)
			}
		})
	}
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "own"},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "tokens"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "tenant:acme"}},
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "tokens"},
		Rules:      []rbacv1.PolicyRule{rule("create", "", "serviceaccounts/token")},
	}
	if got := pathsOf(t, boundary(t, shop(t), role, bound), robot, tenanttest.ID(t, "acme")); !slices.Contains(got,
		"request a token for it: tenant:acme") {
		t.Errorf("subject of the same tenant: %q", got)
	}
}

// TestActionsSelection checks that the selection includes the bindings to each role that allows an
// action of a path.
func TestActionsSelection(t *testing.T) {
	paths := privileges.PathsTo("alice")
	n := 0
	for _, p := range paths {
		n += len(p.All)
	}
	actions := privileges.Actions(paths)
	keep := privileges.ForActions("", actions).KeepBinding
	s := simulator.NewSnapshot()
	s.Roles[simulator.Key{Name: "signer"}] = &simulator.Role{
		Rules: []rbacv1.PolicyRule{rule("approve", "certificates.k8s.io", "signers")},
	}
	s.Roles[simulator.Key{Name: "reader"}] = &simulator.Role{Rules: []rbacv1.PolicyRule{rule("get", "", "pods")}}
	for role, want := range map[string]bool{"signer": true, "reader": false, "missing": false} {
		t.Run(role, func(t *testing.T) {
			for range 2 { // the first call caches the result
				if got := keep(s, &simulator.Binding{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}}); got != want {
					t.Errorf("KeepBinding for a binding to %s: %t; want %t", role, got, want)
				}
			}
		})
	}
	if len(actions) != n || n <= len(paths) {
		t.Errorf("%d actions; want %d", len(actions), n)
	}
}

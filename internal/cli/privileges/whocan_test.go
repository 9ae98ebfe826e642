// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/provision"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// shop returns a cluster with two tenants, and with bindings that allow several subjects to read
// Pods.
func shop(t *testing.T) *simulator.Snapshot {
	t.Helper()
	namespace := func(name string, labels map[string]string) runtime.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	role := func(name, verb, resource string) runtime.Object {
		return &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{resource}}},
		}
	}
	ref := func(name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: "ClusterRole", Name: name} }
	subject := func(kind, name string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: kind, Name: name}} }
	bound := func(name, role string, to []rbacv1.Subject) runtime.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref(role), Subjects: to}
	}
	s, err := simulator.NewSnapshot().With(
		namespace("acme--web", map[string]string{tenant.Label: "acme"}),
		namespace("globex--shop", map[string]string{tenant.Label: "globex"}),
		namespace("nobodys", map[string]string{tenant.Label: ""}), namespace("kube-system", nil),
		role("view", "get", "pods"), role("secrets", "get", "secrets"),
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "alice"},
			RoleRef:    ref("view"),
			Subjects:   subject(rbacv1.UserKind, "alice"),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "robot"},
			RoleRef:    ref("view"),
			Subjects:   subject(rbacv1.ServiceAccountKind, "robot"),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "foreign"},
			RoleRef:    ref("view"),
			Subjects:   subject(rbacv1.GroupKind, "system:serviceaccounts:globex--shop"),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "other"},
			RoleRef:    ref("secrets"),
			Subjects:   subject(rbacv1.UserKind, "carol"),
		},
		bound("auditors", "view", subject(rbacv1.GroupKind, "auditors")),
		bound("acme", "view", subject(rbacv1.GroupKind, "tenant:acme")),
		bound("accounts", "view", subject(rbacv1.GroupKind, "system:serviceaccounts:nobodys")),
		// A server rejects this subject, but a file may contain it.
		bound("homeless", "view", subject(rbacv1.ServiceAccountKind, "robot")),
		bound("lost", "missing", subject(rbacv1.UserKind, "dave")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhoCan checks the answers for bound subjects and their possible tenants, in one namespace
// and in each namespace. Subjects that the boundary denies are omitted.
func TestWhoCan(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	b, err := privileges.NewBoundary(ctx, shop(t), config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		namespace  string
		everywhere bool
		want       []string
	}{
		"one namespace": {
			"acme--web",
			false,
			[]string{
				"Group auditors of acme,system by ClusterRoleBinding auditors",
				"Group tenant:acme of acme by ClusterRoleBinding acme",
				"ServiceAccount acme--web/robot of acme by RoleBinding acme--web/robot",
				"User alice of acme,system by RoleBinding acme--web/alice",
			},
		},
		"another tenant's namespace": {
			"globex--shop", false, []string{"Group auditors of globex,system by ClusterRoleBinding auditors"},
		},
		"unowned namespace": {"nobodys", false, []string{"Group auditors of system by ClusterRoleBinding auditors"}},
		"each namespace": {
			"",
			true,
			[]string{
				"Group auditors of system,any (in its own namespaces) by ClusterRoleBinding auditors",
				"Group tenant:acme of acme by ClusterRoleBinding acme",
				"ServiceAccount acme--web/robot of acme by RoleBinding acme--web/robot",
				"User alice of acme,system by RoleBinding acme--web/alice",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := &privileges.Action{
				Everywhere: c.everywhere,
				AttributesRecord: authorizer.AttributesRecord{
					Verb:            "get",
					APIVersion:      "v1",
					Resource:        "pods",
					Namespace:       c.namespace,
					ResourceRequest: true,
				},
			}
			var got []string
			for _, a := range b.WhoCan(ctx, q) {
				got = append(got, a.Kind+" "+a.Name+" of "+strings.Join(a.Tenants, ",")+" by "+a.By)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestWhoCanAcrossNamespaces checks a request over all namespaces, which the server limits to the
// caller's tenant. It requires a ClusterRoleBinding.
func TestWhoCanAcrossNamespaces(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	rules := []rbacv1.PolicyRule{
		{Verbs: []string{"list", "delete"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		{Verbs: []string{"list", "delete"}, APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/version", "/metrics"}},
	}
	subject := func(kind, name string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: kind, Name: name}} }
	ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"}
	cluster, err := shop(t).With(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "all"},
			RoleRef:    ref,
			Subjects:   subject(rbacv1.UserKind, "erin"),
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "all"},
			RoleRef:    ref,
			Subjects:   append(subject(rbacv1.UserKind, "bob"), subject(rbacv1.GroupKind, "tenant:acme")...),
		})
	if err != nil {
		t.Fatal(err)
	}
	b, err := privileges.NewBoundary(ctx, cluster, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		request authorizer.AttributesRecord
		want    []string
	}{
		"list": {
			authorizer.AttributesRecord{Verb: "list", Resource: "pods", ResourceRequest: true},
			[]string{
				"Group tenant:acme of acme in all namespaces of the tenant",
				"User bob of system,any (in its own namespaces) in the whole cluster",
			},
		},
		"namespaced object without a namespace": {
			authorizer.AttributesRecord{
				Verb:            "delete",
				Resource:        "pods",
				Name:            "web-1",
				ResourceRequest: true,
			},
			[]string{"User bob of system in the whole cluster"},
		},
		"shared resource": {
			authorizer.AttributesRecord{
				Verb:            "list",
				APIGroup:        "storage.k8s.io",
				Resource:        "storageclasses",
				ResourceRequest: true,
			},
			[]string{"Group tenant:acme of acme in the whole cluster", "User bob of system,any in the whole cluster"},
		},
		"write of a shared resource": {
			authorizer.AttributesRecord{
				Verb:            "delete",
				APIGroup:        "storage.k8s.io",
				Resource:        "storageclasses",
				ResourceRequest: true,
			},
			[]string{"User bob of system in the whole cluster"},
		},
		"path": {
			authorizer.AttributesRecord{Verb: "get", Path: "/version"},
			[]string{"Group tenant:acme of acme in the whole cluster", "User bob of system,any in the whole cluster"},
		},
		"path for the system tenant only": {
			authorizer.AttributesRecord{Verb: "get", Path: "/metrics"},
			[]string{"User bob of system in the whole cluster"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.request.APIVersion = "*"
			var got []string
			for _, a := range b.WhoCan(ctx, &privileges.Action{AttributesRecord: c.request}) {
				got = append(got, a.Kind+" "+a.Name+" of "+strings.Join(a.Tenants, ",")+" in "+a.Scope)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestAccountsWithoutNamespace checks that a service account without a namespace has no tenant.
// This also applies to service accounts of an unowned or unknown namespace.
func TestAccountsWithoutNamespace(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	snapshot := shop(t)
	stack, err := simulator.New(ctx, config, snapshot, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []rbacv1.Subject{
		{Kind: rbacv1.ServiceAccountKind, Name: "robot"},
		{Kind: rbacv1.ServiceAccountKind, Namespace: "nobodys", Name: "robot"},
		{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:"},
		{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:missing"},
	} {
		if all, anybodys := privileges.SubjectOf(s, "").Candidates(ctx, stack, snapshot, ""); len(all) > 0 || anybodys {
			t.Errorf("%+v: %v, %t", s, all, anybodys)
		}
	}
}

// TestWhoCanByLimits checks that a binding that is limited to some tenants applies only in their
// namespaces, and that an expired binding does not apply. A server with upstream's RBAC evaluator
// ignores both annotations.
func TestWhoCanByLimits(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	everybody := privileges.AnyTenant
	for name, c := range map[string]struct {
		annotations    map[string]string
		web, all, free string // answers in acme--web, over all namespaces, and with upstream's evaluator
	}{
		"no limit": {
			nil,
			"erin of acme,system in namespace acme--web",
			"erin of system," + everybody + " in the whole cluster",
			"erin of acme,system in namespace acme--web",
		},
		"limited to the tenant": {
			map[string]string{tenant.ScopeAnnotation: "acme"},
			"erin of acme,system in namespace acme--web, limited to acme",
			"erin of system,acme in the whole cluster, limited to acme",
			"erin of acme,system in namespace acme--web",
		},
		"limited to another tenant": {
			map[string]string{tenant.ScopeAnnotation: "globex"},
			"",
			"erin of system,globex in the whole cluster, limited to globex",
			"erin of acme,system in namespace acme--web",
		},
		"limited to own namespaces": {
			map[string]string{tenant.ScopeAnnotation: "Tenanted"},
			"erin of acme in namespace acme--web",
			"erin of system," + everybody + " in the whole cluster, limited to Tenanted",
			"erin of acme,system in namespace acme--web",
		},
		"invalid limit": {
			map[string]string{tenant.ScopeAnnotation: "acme globex"},
			"",
			"erin of system in the whole cluster, limited to acme globex",
			"erin of acme,system in namespace acme--web",
		},
		"expired": {
			map[string]string{tenant.ExpiresAnnotation: "2020-01-01T00:00:00Z"},
			"",
			"",
			"erin of acme,system in namespace acme--web",
		},
		"invalid expiry": {
			map[string]string{tenant.ExpiresAnnotation: "soon"}, "", "", "erin of acme,system in namespace acme--web",
		},
		"limited, not yet expired": {
			map[string]string{tenant.ExpiresAnnotation: "2199-01-01T00:00:00Z", tenant.ScopeAnnotation: "globex"},
			"",
			"erin of system,globex in the whole cluster, limited to globex",
			"erin of acme,system in namespace acme--web",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := shop(t).With(&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "erin", Annotations: c.annotations},
				RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "secrets"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "erin"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for evaluator, want := range map[configv1alpha1.Evaluator][2]string{
				configv1alpha1.EvaluatorIndexed:  {c.web, c.all},
				configv1alpha1.EvaluatorUpstream: {c.free, "erin of system," + everybody + " in the whole cluster"},
			} {
				config, err := (&configv1alpha1.Settings{}).Complete()
				if err != nil {
					t.Fatal(err)
				}
				config.Authorization.RBAC.Evaluator = evaluator
				b, err := privileges.NewBoundary(ctx, s, config, nil)
				if err != nil {
					t.Fatal(err)
				}
				for i, namespace := range []string{"acme--web", ""} {
					q := &privileges.Action{
						AttributesRecord: authorizer.AttributesRecord{
							Verb:            "get",
							Resource:        "secrets",
							Namespace:       namespace,
							ResourceRequest: true,
						},
						Everywhere: namespace == "",
					}
					got := ""
					for _, a := range b.WhoCan(ctx, q) {
						if a.Name == "erin" {
							got += a.Name + " of " + strings.Join(a.Tenants, ",") + " in " + a.Scope
						}
					}
					if got != want[i] {
						t.Errorf("%s, %s, in %q: %q; want %q", name, evaluator, namespace, got, want[i])
					}
				}
			}
		})
	}
}

// TestWhoCanByTenants checks that a right that a server derives from a Tenant applies only to that
// tenant, and that the answer names the Tenant. A server derives no rights if it uses upstream's
// evaluator, if its boundary is not enforced, or if kube-apiserver evaluates RBAC.
func TestWhoCanByTenants(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	admins := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"metadata":   map[string]any{"name": "acme"},
		"spec":       map[string]any{"id": "acme", "admins": []any{map[string]any{"kind": "User", "name": "erin"}}},
	}}
	s, err := shop(t).With(admins, provision.NamespacesRole(), provision.MemberRole(nil))
	if err != nil {
		t.Fatal(err)
	}
	const (
		erin   = "User erin of acme by Tenant acme"
		member = "Group tenant:acme of acme by Tenant acme"
	)
	for _, c := range []struct {
		name, verb, namespace string
		change                func(*configv1alpha1.Settings, *simulator.Snapshot)
		want                  []string
	}{
		{"an admin", "delete", "acme--web", nil, []string{erin}},
		{"a member", "get", "acme--web", nil, []string{member, erin}},
		{"another tenant's namespace", "delete", "globex--shop", nil, nil},
		{"upstream's evaluator", "delete", "acme--web", func(s *configv1alpha1.Settings, _ *simulator.Snapshot) {
			s.Authorization.RBAC.Evaluator = configv1alpha1.EvaluatorUpstream
		}, nil},
		{"Shadow mode", "delete", "acme--web", func(s *configv1alpha1.Settings, _ *simulator.Snapshot) {
			s.Authorization.Mode = configv1alpha1.ModeShadow
		}, nil},
		{"kube-apiserver evaluates RBAC", "delete", "acme--web", func(_ *configv1alpha1.Settings, s *simulator.Snapshot) {
			s.RightsElsewhere = true
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := (&configv1alpha1.Settings{}).Complete()
			if err != nil {
				t.Fatal(err)
			}
			of := *s
			if c.change != nil {
				c.change(config, &of)
			}
			b, err := privileges.NewBoundary(ctx, &of, config, nil)
			if err != nil {
				t.Fatal(err)
			}
			q := &privileges.Action{AttributesRecord: authorizer.AttributesRecord{
				Verb:            c.verb,
				Resource:        "namespaces",
				Namespace:       c.namespace,
				Name:            c.namespace,
				ResourceRequest: true,
			}}
			var got []string
			for _, a := range b.WhoCan(ctx, q) {
				if strings.HasPrefix(a.By, v1alpha1.KindTenant+" ") {
					got = append(got, a.Kind+" "+a.Name+" of "+strings.Join(a.Tenants, ",")+" by "+a.By)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("WhoCan() = %q, want %q", got, c.want)
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz/abac"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// secretsIn returns the action to get a Secret with the given name, or any Secret if name is
// empty.
func secretsIn(namespace, name string) *privileges.Action {
	return &privileges.Action{AttributesRecord: authorizer.AttributesRecord{
		Verb:            "get",
		APIVersion:      "v1",
		Resource:        "secrets",
		Namespace:       namespace,
		Name:            name,
		ResourceRequest: true,
	}}
}

// answers returns "<subject> by <source> in <scope> only <objects>" for each answer. It omits the
// answers for carol, who may read Secrets in the fixture.
func answers(t *testing.T, b *privileges.Boundary, q *privileges.Action) []string {
	t.Helper()
	var all []string
	for _, a := range b.WhoCan(klog.NewContext(t.Context(), logr.Discard()), q) {
		if a.Name != "carol" {
			all = append(all, a.Name+" by "+a.By+" in "+a.Scope+" only "+a.Only)
		}
	}
	return all
}

// TestOnlyNamed checks that a right to named objects is an answer with these names. It is not an
// answer to a request for another object.
func TestOnlyNamed(t *testing.T) {
	named := roleAndBinding(
		"named",
		"eve",
		"acme--web",
		rule("get", "", "secrets", "a", "b"),
		rule("get", "", "configmaps", "c"),
	)
	const eves = "eve by RoleBinding acme--web/named in namespace acme--web only "
	for name, c := range map[string]struct {
		q    *privileges.Action
		want []string
	}{
		"any object":                 {secretsIn("acme--web", ""), []string{eves + "a, b"}},
		"named object":               {secretsIn("acme--web", "b"), []string{eves}},
		"another object":             {secretsIn("acme--web", "c"), nil},
		"another tenant's namespace": {secretsIn("globex--shop", "a"), nil},
		"path": {
			&privileges.Action{AttributesRecord: authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answers(t, boundary(t, shop(t), named...), c.q); !slices.Equal(got, c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestPathsNeedClusterRoleBindings checks that a rule for a path applies only with a
// ClusterRoleBinding, not with a RoleBinding.
func TestPathsNeedClusterRoleBindings(t *testing.T) {
	metrics := rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}
	q := &privileges.Action{Everywhere: true, AttributesRecord: authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}}
	b := boundary(
		t,
		shop(t),
		append(roleAndBinding("all", "eve", "", metrics), roleAndBinding("one", "mallory", "acme--web", metrics)...)...)
	if got, want := answers(t, b, q),
		[]string{"eve by ClusterRoleBinding all in the whole cluster only "}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestGranted checks that a valid grant is an answer in its namespace, in which the boundary
// denies other callers of the tenant. An expired grant and a grant for other objects are not
// answers.
func TestGranted(t *testing.T) {
	const alices = "alice by AccessGrant globex--shop/g in namespace globex--shop only "
	to := func(resource string, names ...string) func(*v1alpha1.AccessGrant) {
		return func(g *v1alpha1.AccessGrant) {
			g.Spec.To[0].Resources, g.Spec.To[0].ResourceNames = []string{resource}, names
		}
	}
	everywhere := secretsIn("", "")
	everywhere.Everywhere = true
	for name, c := range map[string]struct {
		change func(*v1alpha1.AccessGrant)
		q      *privileges.Action
		want   []string
	}{
		"granted":              {to("secrets"), secretsIn("globex--shop", ""), []string{alices}},
		"everywhere":           {to("secrets"), everywhere, []string{alices}},
		"in another namespace": {to("secrets"), secretsIn("acme--web", ""), nil},
		"no namespace":         {to("secrets"), secretsIn("", ""), nil},
		"another resource":     {to("pods"), secretsIn("globex--shop", ""), nil},
		"named objects":        {to("secrets", "a"), secretsIn("globex--shop", ""), []string{alices + "a"}},
		"named object":         {to("secrets", "a"), secretsIn("globex--shop", "a"), []string{alices}},
		"another object":       {to("secrets", "a"), secretsIn("globex--shop", "b"), nil},
		"expired": {func(g *v1alpha1.AccessGrant) {
			to("secrets")(g)
			g.Spec.Expires = &metav1.Time{}
			g.Spec.Expires.Time = g.Spec.Expires.AddDate(2000, 0, 0)
		}, secretsIn("globex--shop", ""), nil},
		"former owner": {
			func(g *v1alpha1.AccessGrant) { to("secrets")(g); g.Spec.Grantor.Owner = "initech" },
			secretsIn("globex--shop", ""),
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answers(t, boundary(t, shop(t), grant(t, "g", c.change)), c.q); !slices.Equal(got, c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestByPolicy checks that a policy line that allows the action is an answer. It is for callers of
// the tenant in the line, or of the tenant that owns the namespace if the line is for any tenant.
func TestByPolicy(t *testing.T) {
	line := func(spec string) string {
		return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{` + spec + `}}`
	}
	policy, err := abac.Parse([]byte(strings.Join([]string{
		line(`"user":"alice","tenant":"acme","space":"globex","apiGroup":"","resource":"secrets",` +
			`"namespace":"globex--shop","readonly":true`),
		line(`"group":"auditors","tenant":"*","space":"*","apiGroup":"","resource":"secrets","namespace":"*",` +
			`"readonly":true`),
		line(`"user":"bob","tenant":"acme","space":"globex","apiGroup":"","resource":"pods","namespace":"globex--shop"`),
		line(`"user":"alice","tenant":"acme","space":"globex","apiGroup":"","resource":"*","namespace":"globex--shop"`),
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	ctx := klog.NewContext(t.Context(), logr.Discard())
	b, err := privileges.NewBoundary(ctx, shop(t), config, policy)
	if err != nil {
		t.Fatal(err)
	}
	everywhere := secretsIn("", "")
	everywhere.Everywhere = true
	const auditors, alice = "auditors of any (in its own namespaces) by line 2 of the policy file in ",
		"alice of acme by line 1 of the policy file in "
	for name, c := range map[string]struct {
		q    *privileges.Action
		want []string
	}{
		"two lines": {
			secretsIn("globex--shop", ""), []string{auditors + "namespace globex--shop", alice + "namespace globex--shop"},
		},
		"one line":          {secretsIn("acme--web", ""), []string{auditors + "namespace acme--web"}},
		"no namespace":      {secretsIn("", ""), []string{auditors + "the whole cluster"}},
		"unowned namespace": {secretsIn("nobodys", ""), nil},
		"everywhere": {
			everywhere,
			[]string{
				auditors + "namespace acme--web", auditors + "namespace globex--shop", auditors + "namespace kube-system",
				alice + "namespace globex--shop",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range b.WhoCan(ctx, c.q) {
				if strings.HasPrefix(a.By, "line ") {
					got = append(got, a.Name+" of "+strings.Join(a.Tenants, ",")+" by "+a.By+" in "+a.Scope)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestScopeOfAnswers checks that a ClusterRoleBinding applies in the tenant's own namespaces, and
// in the whole cluster only for callers of the system tenant. The answer contains the limit in the
// binding's annotation.
func TestScopeOfAnswers(t *testing.T) {
	q := secretsIn("", "")
	q.Everywhere = true
	for _, c := range []struct{ kind, name, scope, want string }{
		{rbacv1.UserKind, "eve", "", "in the whole cluster only "},
		{rbacv1.GroupKind, "tenant:acme", "", "in all namespaces of the tenant only "},
		{rbacv1.UserKind, "eve", "acme", ", limited to acme only "},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "b"},
				RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "secrets"},
				Subjects:   []rbacv1.Subject{{Kind: c.kind, Name: c.name}},
			}
			if c.scope != "" {
				b.Annotations = map[string]string{tenant.ScopeAnnotation: c.scope}
			}
			if got := answers(t, boundary(t, shop(t), b), q); len(got) != 1 || !strings.HasSuffix(got[0], c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package leaving_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/leaving"
)

var systemNamespaces = []string{"kube-system", "monitoring"}

func clusterRoleBinding(name string, annotations map[string]string, groups ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
	}
	for _, g := range groups {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "Group", Name: g})
	}
	return b
}

func roleBinding(name string, annotations map[string]string, groups ...string) *rbacv1.RoleBinding {
	b := clusterRoleBinding(name, annotations, groups...)
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "acme--web", Annotations: annotations},
		RoleRef:    b.RoleRef,
		Subjects:   b.Subjects,
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
}

func label(value string) map[string]string { return map[string]string{"kubetenant.dev/tenant": value} }

// cases contains an object for each case, and the beginning of each finding about it.
var cases = map[string]struct {
	object runtime.Object
	want   []string
}{
	"a group without the prefix": {clusterRoleBinding("b", nil, "tenants:acme", "dev", "system:tenant:acme"), nil},
	"a tenant's group": {
		clusterRoleBinding("b", nil, "tenant:acme"),
		[]string{
			`ClusterRoleBinding b: a server without kubetenant grants group "tenant:acme" ClusterRole "view" in the whole ` +
				`cluster: replace`,
		},
	},
	"several groups": {
		clusterRoleBinding("b", nil, "tenant:b", "dev", "tenant:a", "tenant:b"),
		[]string{`ClusterRoleBinding b: a server without kubetenant grants group "tenant:a", group "tenant:b" ClusterRole`},
	},
	"a group without a tenant name": {
		clusterRoleBinding("b", nil, "tenant:"),
		[]string{`ClusterRoleBinding b: a server without kubetenant grants group "tenant:" ClusterRole`},
	},
	"control characters in a group": {
		clusterRoleBinding("b", nil, "tenant:a\nx: \x1b[31m"),
		[]string{`ClusterRoleBinding b: a server without kubetenant grants group "tenant:a\nx: \x1b[31m" ClusterRole`},
	},
	"control characters": {clusterRoleBinding("b\nx", nil, "tenant:a"), []string{`ClusterRoleBinding "b\nx": a server`}},
	"a scope annotation": {
		clusterRoleBinding("b", map[string]string{"kubetenant.dev/scope": "Tenanted"}),
		[]string{
			`ClusterRoleBinding b: a server without kubetenant ignores the annotation kubetenant.dev/scope and grants ` +
				`ClusterRole "view" in the whole cluster: replace`,
		},
	},
	"an empty scope annotation": {
		clusterRoleBinding("b", map[string]string{"kubetenant.dev/scope": ""}),
		[]string{"ClusterRoleBinding b: a server without kubetenant ignores the annotation kubetenant.dev/scope"},
	},
	"an expiration annotation": {
		clusterRoleBinding("b", map[string]string{"kubetenant.dev/expires": "x"}),
		[]string{
			`ClusterRoleBinding b: a server without kubetenant ignores the annotation kubetenant.dev/expires and grants ` +
				`ClusterRole "view" in the whole cluster without an expiration time: delete`,
		},
	},
	"other annotations": {
		clusterRoleBinding("b", map[string]string{"kubetenant.dev/other": "", "example.com/scope": ""}), nil,
	},
	"a binding from an earlier release": {
		clusterRoleBinding("kubetenant:admins:acme", nil, "ops"),
		[]string{"ClusterRoleBinding kubetenant:admins:acme: an earlier release created it"},
	},
	"all findings": {
		clusterRoleBinding("kubetenant:admins:a",
			map[string]string{"kubetenant.dev/scope": "a", "kubetenant.dev/expires": "x"}, "tenant:a"),
		[]string{
			"ClusterRoleBinding kubetenant:admins:a: a server without kubetenant grants",
			"ClusterRoleBinding kubetenant:admins:a: a server without kubetenant ignores the annotation kubetenant.dev/expires",
			"ClusterRoleBinding kubetenant:admins:a: a server without kubetenant ignores the annotation kubetenant.dev/scope",
			"ClusterRoleBinding kubetenant:admins:a: an earlier",
		},
	},
	"a RoleBinding of a tenant's group": {roleBinding("kubetenant:admins:a", nil, "tenant:acme"), nil},
	"a RoleBinding with an expiration annotation": {
		roleBinding("b", map[string]string{"kubetenant.dev/expires": "2030-01-31T18:00:00Z"}),
		[]string{
			`RoleBinding acme--web/b: a server without kubetenant ignores the annotation kubetenant.dev/expires and grants ` +
				`ClusterRole "view" in the namespace without an expiration time`,
		},
	},
	"a RoleBinding with a scope annotation": {
		roleBinding("b", map[string]string{"kubetenant.dev/scope": "a"}),
		[]string{
			`RoleBinding acme--web/b: a server without kubetenant ignores the annotation kubetenant.dev/scope and grants ` +
				`ClusterRole "view" in the namespace`,
		},
	},
	"a tenant's namespace":                    {namespace("acme--web", label("acme")), nil},
	"a system namespace without a label":      {namespace("kube-system", nil), nil},
	"a system namespace of the system tenant": {namespace("kube-system", label("system")), nil},
	"a system namespace of a tenant": {
		namespace("kube-system", label("acme")),
		[]string{"Namespace kube-system: this system namespace belongs to tenant acme"},
	},
	"a system namespace with an empty label": {
		namespace("monitoring", label("")),
		[]string{"Namespace monitoring: the label kubetenant.dev/tenant of this system namespace is not a valid tenant name"},
	},
	"a label in upper case": {
		namespace("kube-system", label("System")),
		[]string{"Namespace kube-system: the label kubetenant.dev/tenant of this system namespace is not a valid tenant " +
			"name"},
	},
	"the namespace default, not a system namespace": {namespace("default", label("acme")), nil},
}

func checkFindings(t *testing.T, name string, found []leaving.Finding, want []string) {
	t.Helper()
	if len(found) != len(want) {
		t.Fatalf("%s: %d findings, want %d: %v", name, len(found), len(want), found)
	}
	for i, f := range found {
		if !strings.HasPrefix(f.String(), want[i]) || strings.ContainsAny(f.String(), "\n\x1b") || f.Reason == "" ||
			f.Remedy == "" {
			t.Errorf("%s: %s; want %s", name, f, want[i])
		}
	}
}

// TestFindings checks the findings about each case, and that a live cluster and exported files
// have the same findings.
func TestFindings(t *testing.T) {
	for name, c := range cases {
		live, unchecked := leaving.FindingsInCluster(t.Context(), fake.NewClientset(c.object), systemNamespaces)
		if unchecked != nil {
			t.Fatal(name, unchecked)
		}
		checkFindings(t, name, live, c.want)
		text, err := yaml.Marshal(c.object)
		if err != nil {
			t.Fatal(err)
		}
		exported, err := leaving.FindingsInExport(text, systemNamespaces)
		if diff := cmp.Diff(live, exported); err != nil || diff != "" {
			t.Errorf("%s: %v, %s", name, err, diff)
		}
		list := "kind: List\napiVersion: v1\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ") +
			"\n"
		exported, err = leaving.FindingsInExport([]byte(list), systemNamespaces)
		if diff := cmp.Diff(live, exported); err != nil || diff != "" {
			t.Errorf("%s in a list: %v, %s", name, err, diff)
		}
	}
}

// TestClusterIsReadInPages checks that the findings of every page are returned in order, and that
// nothing is written.
func TestClusterIsReadInPages(t *testing.T) {
	k := fake.NewClientset()
	k.PrependReactor("list", "clusterrolebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		page := 3
		if o.Continue != "" {
			_, _ = fmt.Sscanf(o.Continue, "%d", &page)
		}
		list := &rbacv1.ClusterRoleBindingList{
			Items: []rbacv1.ClusterRoleBinding{*clusterRoleBinding(fmt.Sprintf("b%d", page), nil, "tenant:a")},
		}
		if page > 1 {
			list.Continue = fmt.Sprint(page - 1)
		}
		if o.Limit == 0 {
			t.Error("a list without a limit")
		}
		return true, list, nil
	})
	found, unchecked := leaving.FindingsInCluster(t.Context(), k, systemNamespaces)
	if unchecked != nil {
		t.Fatal(unchecked)
	}
	checkFindings(
		t,
		"three pages",
		found,
		[]string{"ClusterRoleBinding b1:", "ClusterRoleBinding b2:", "ClusterRoleBinding b3:"},
	)
	for _, a := range k.Actions() {
		if a.GetVerb() != "list" {
			t.Errorf("%s of %s", a.GetVerb(), a.GetResource())
		}
	}
}

// TestForbiddenKindsAreReported checks that a kind is reported if listing it is forbidden, and that
// findings about other kinds are returned.
func TestForbiddenKindsAreReported(t *testing.T) {
	for resource, kind := range map[string]string{
		"clusterrolebindings": "ClusterRoleBindings",
		"rolebindings":        "RoleBindings",
		"namespaces":          "Namespaces",
	} {
		t.Run(resource, func(t *testing.T) {
			k := fake.NewClientset(clusterRoleBinding("b", nil, "tenant:a"),
				roleBinding("b", map[string]string{"kubetenant.dev/scope": ""}), namespace("kube-system", label("a")))
			k.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", context.Canceled)
			})
			found, unchecked := leaving.FindingsInCluster(t.Context(), k, systemNamespaces)
			if len(found) != 2 || len(unchecked) != 1 ||
				!strings.HasPrefix(unchecked[0].Error(), kind+" could not be checked: ") || apierrors.IsForbidden(unchecked[0]) {
				t.Errorf("%v, %v", found, unchecked)
			}
		})
	}
}

// TestExports checks which files IsExport recognizes as output of "kubectl get", and for which
// files FindingsInExport fails.
func TestExports(t *testing.T) {
	binding := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: b }\n"
	for name, c := range map[string]struct {
		text   string
		export bool
		err    string
	}{
		"a binding":           {binding, true, ""},
		"as JSON":             {`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, true, ""},
		"another API group":   {"apiVersion: example.com/v1\nkind: ClusterRoleBinding\n", false, "no ClusterRoleBinding"},
		"an empty list":       {"apiVersion: v1\nkind: List\nitems: []\n", true, "no ClusterRoleBinding"},
		"other objects first": {"apiVersion: v1\nkind: Secret\n---\n" + binding, true, ""},
		"a configuration": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n", false, "no ClusterRoleBinding",
		},
		"with a configuration": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n---\n" + binding, false, "",
		},
		"with a revocation":   {binding + "---\napiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n", false, ""},
		"an empty file":       {"", false, "no ClusterRoleBinding"},
		"not YAML":            {"{", false, "EOF"},
		"broken 2nd document": {binding + "---\n{", false, "yaml"},
		"a wrong type":        {strings.Replace(binding, "{ name: b }", "[]", 1), true, "ClusterRoleBinding: json"},
		"a typed list":        {"apiVersion: v1\nkind: NamespaceList\nitems: [ { metadata: { name: a } } ]\n", true, ""},
		"a number as items":   {"apiVersion: v1\nkind: List\nitems: 1\n", true, "List: json"},
		"a number as an item": {"apiVersion: v1\nkind: List\nitems: [ 1 ]\n", true, "List: json"},
		"null":                {"null\n---\n" + binding, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := leaving.IsExport([]byte(c.text)); got != c.export {
				t.Errorf("IsExport() = %t", got)
			}
			if _, err := leaving.FindingsInExport([]byte(c.text), nil); (err == nil) != (c.err == "") ||
				err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v; want %q", err, c.err)
			}
		})
	}
}

// TestTenantFindingsAreSummarized checks that expiring RoleBindings in a tenant's namespace are
// summarized in one finding, because a tenant can create any number of them. In other namespaces,
// there is one finding for each RoleBinding.
func TestTenantFindingsAreSummarized(t *testing.T) {
	ends := map[string]string{"kubetenant.dev/expires": "x"}
	objects := []runtime.Object{
		namespace("acme--web", label("acme")), namespace("kube-system", label("acme")),
		namespace("plain", nil),
	}
	for i := range 5 {
		objects = append(objects, roleBinding(fmt.Sprintf("b%d", i), ends))
	}
	for _, in := range []string{"kube-system", "plain"} { // a system namespace, and one without a tenant
		for i := range 2 {
			b := roleBinding(fmt.Sprintf("b%d", i), ends)
			b.Namespace = in
			objects = append(objects, b)
		}
	}
	scoped := roleBinding("scoped", map[string]string{"kubetenant.dev/scope": "a"})
	objects = append(objects, scoped)
	want := []string{
		"Namespace kube-system: this system namespace", "RoleBinding acme--web/b0 and 4 more in the namespace: a " +
			"server without kubetenant ignores the annotation kubetenant.dev/expires", "RoleBinding acme--web/scoped: ",
		"RoleBinding kube-system/b0: ", "RoleBinding kube-system/b1: ", "RoleBinding plain/b0: ", "RoleBinding plain/b1: ",
	}
	live, unchecked := leaving.FindingsInCluster(t.Context(), fake.NewClientset(objects...), systemNamespaces)
	if unchecked != nil {
		t.Fatal(unchecked)
	}
	checkFindings(t, "live", live, want)
	var text strings.Builder
	for _, object := range objects {
		document, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(document))
	}
	exported, err := leaving.FindingsInExport([]byte(text.String()), systemNamespaces)
	if diff := cmp.Diff(live, exported); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
}

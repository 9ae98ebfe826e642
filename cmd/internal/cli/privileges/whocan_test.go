package privileges_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// shop is a cluster of two tenants in which pods may be read by many.
func shop(t *testing.T) *simulator.Snapshot {
	t.Helper()
	namespace := func(name string, labels map[string]string) runtime.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	role := func(name, verb, resource string) runtime.Object {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{resource}}}}
	}
	ref := func(name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: "ClusterRole", Name: name} }
	subject := func(kind, name string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: kind, Name: name}} }
	bound := func(name, role string, to []rbacv1.Subject) runtime.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref(role), Subjects: to}
	}
	s, err := simulator.NewSnapshot().With(
		namespace("acme--web", map[string]string{tenant.Label: "acme"}), namespace("globex--shop", map[string]string{tenant.Label: "globex"}),
		namespace("nobodys", map[string]string{tenant.Label: ""}), namespace("kube-system", nil),
		role("view", "get", "pods"), role("secrets", "get", "secrets"),
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "alice"}, RoleRef: ref("view"), Subjects: subject(rbacv1.UserKind, "alice")},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "robot"}, RoleRef: ref("view"), Subjects: subject(rbacv1.ServiceAccountKind, "robot")},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "foreign"}, RoleRef: ref("view"),
			Subjects: subject(rbacv1.GroupKind, "system:serviceaccounts:globex--shop")},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "acme--web", Name: "other"}, RoleRef: ref("secrets"), Subjects: subject(rbacv1.UserKind, "carol")},
		bound("auditors", "view", subject(rbacv1.GroupKind, "auditors")), bound("acme", "view", subject(rbacv1.GroupKind, "tenant:acme")),
		bound("accounts", "view", subject(rbacv1.GroupKind, "system:serviceaccounts:nobodys")),
		bound("homeless", "view", subject(rbacv1.ServiceAccountKind, "robot")), // a server refuses such a subject; a file may hold it
		bound("lost", "missing", subject(rbacv1.UserKind, "dave")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhoCan: in a namespace, and over all of them, who is bound and of which tenants that may be; nobody whom the boundary
// holds back.
func TestWhoCan(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	config, err := (&v1alpha1.Settings{}).Complete()
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
		"in a namespace": {"acme--web", false, []string{
			"Group auditors of acme,system by ClusterRoleBinding auditors",
			"Group tenant:acme of acme by ClusterRoleBinding acme",
			"ServiceAccount acme--web/robot of acme by RoleBinding acme--web/robot",
			"User alice of acme,system by RoleBinding acme--web/alice"}},
		"in another's": {"globex--shop", false, []string{"Group auditors of globex,system by ClusterRoleBinding auditors"}},
		"in nobody's":  {"nobodys", false, []string{"Group auditors of system by ClusterRoleBinding auditors"}},
		"everywhere": {"", true, []string{
			"Group auditors of system,any (in its own namespaces) by ClusterRoleBinding auditors",
			"Group tenant:acme of acme by ClusterRoleBinding acme",
			"ServiceAccount acme--web/robot of acme by RoleBinding acme--web/robot",
			"User alice of acme,system by RoleBinding acme--web/alice"}},
	} {
		q := &privileges.Question{Everywhere: c.everywhere, AttributesRecord: authorizer.AttributesRecord{Verb: "get", APIVersion: "v1",
			Resource: "pods", Namespace: c.namespace, ResourceRequest: true}}
		var got []string
		for _, a := range b.WhoCan(ctx, q) {
			got = append(got, a.Kind+" "+a.Name+" of "+strings.Join(a.Tenants, ",")+" by "+a.By)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestNobodysAccounts: a service account without a namespace, and those of a namespace that is nobody's or unknown, are of
// no tenant, and not of any either.
func TestNobodysAccounts(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	config, err := (&v1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	snapshot := shop(t)
	stack, err := simulator.New(ctx, config, snapshot, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "robot"}, {Kind: rbacv1.ServiceAccountKind, Namespace: "nobodys", Name: "robot"},
		{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:"}, {Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:missing"}} {
		if all, anybodys := privileges.SubjectOf(s, "").Candidates(ctx, stack, snapshot, ""); len(all) > 0 || anybodys {
			t.Errorf("%+v: %v, %t", s, all, anybodys)
		}
	}
}

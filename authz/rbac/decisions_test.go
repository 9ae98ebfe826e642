// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// attributes wraps a request, so that the evaluator cannot read the fields of AttributesRecord
// directly.
type attributes struct{ authorizer.Attributes }

// TestRules checks which requests a rule allows. A request is "verb resource[/subresource][.group]
// [name]", or "verb /path".
func TestRules(t *testing.T) {
	type rule = rbacv1.PolicyRule
	for _, c := range []struct {
		rule    rule
		yes, no string // separated by commas
	}{
		{
			rule{Verbs: []string{"get", "list"}, APIGroups: []string{"", "apps"}, Resources: []string{"pods", "deployments"}},
			"get pods,list pods,get deployments.apps,get pods x",
			"watch pods,get pods.batch,get secrets,get pods/log,get /pods,get po",
		},
		{
			rule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			"get pods,anything pods",
			"get secrets,get pods.apps",
		},
		{
			rule{Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"pods"}},
			"get pods,get pods.example.com",
			"get secrets,list pods",
		},
		{
			rule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"*"}},
			"get pods,get secrets,get pods/log",
			"get pods.apps,list pods,get /x",
		},
		{rule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, "get pods,x y/z.w", "get /x"},
		{
			rule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods/log"}},
			"get pods/log",
			"get pods,get pods/exec,get pods/lo,get pods/logs,get podsx/log",
		},
		{
			rule{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"*/scale"}},
			"get deployments/scale.apps",
			"get deployments.apps,get deployments/status.apps,get scale.apps,get rcs/scale",
		},
		{rule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"*/"}}, "", "get pods"},
		{
			rule{
				Verbs:         []string{"get"},
				APIGroups:     []string{""},
				Resources:     []string{"pods"},
				ResourceNames: []string{"x", "y"},
			},
			"get pods x,get pods y",
			"get pods,get pods z",
		},
		{
			rule{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/logs/*"}},
			"get /healthz,get /logs/,get /logs/x/y",
			"get /logs,get /healthz/x,post /healthz,get pods,get /",
		},
		{rule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}, "get /,post /x", "get pods"},
		{rule{}, "", "get pods,get /"},
	} {
		x := rbac.NewIndex()
		for i := range 8 { // the masks of these other roles must not affect the result
			x.Set(role(fmt.Sprintf("other-%d", i), fmt.Sprintf("verb-%d", i)))
		}
		x.Set(&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Rules:      []rule{{Verbs: []string{"never"}, APIGroups: []string{"never"}, Resources: []string{"never"}}, c.rule},
		})
		x.Set(binding("b", "r", "alice"))
		e := rbac.New(x, rbac.Options{})
		for list, want := range map[string]bool{c.yes: true, c.no: false} {
			t.Run(list, func(t *testing.T) {
				for text := range strings.SplitSeq(list, ",") {
					if text == "" {
						continue
					}
					a := parseRequest(text)
					if allows(t, e, a) != want || allows(t, e, attributes{a}) != want || rbac.Allows([]rule{{}, c.rule}, a) != want {
						t.Errorf("%+v: %s", c.rule, text)
					}
				}
			})
		}
	}
}

func parseRequest(text string) *authorizer.AttributesRecord {
	words := append(strings.Fields(text), "")
	a := &authorizer.AttributesRecord{
		User:      &user.DefaultInfo{Name: "alice"},
		Verb:      words[0],
		Namespace: "n",
		Name:      words[2],
	}
	if strings.HasPrefix(words[1], "/") {
		a.Path = words[1]
		return a
	}
	a.ResourceRequest = true
	resource, group, _ := strings.Cut(words[1], ".")
	a.Resource, a.Subresource, _ = strings.Cut(resource, "/")
	a.APIGroup = group
	return a
}

// bindSubject returns a binding of a role to the given subject and one other user. If namespace is
// empty, it is a ClusterRoleBinding.
func bindSubject(namespace, kind, role string, s rbacv1.Subject) any {
	ref, subjects := rbacv1.RoleRef{Kind: kind, Name: role}, []rbacv1.Subject{{Kind: "User", Name: "somebody"}, s}
	if namespace == "" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: ref, Subjects: subjects}
	}
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: namespace},
		RoleRef:    ref,
		Subjects:   subjects,
	}
}

func roleInN(verbs ...string) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "n"}, Rules: role("r", verbs...).Rules}
}

// TestBindings checks to which users and in which namespaces a binding applies, and the reason of
// the decision. A missing role allows nothing, and the reason contains an error about the role.
func TestBindings(t *testing.T) {
	named := func(kind, namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: kind, Namespace: namespace, Name: name}
	}
	robot := &user.DefaultInfo{Name: "system:serviceaccount:n:robot"}
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"ops", "dev"}}
	for name, c := range map[string]struct {
		binding any
		by      user.Info
		in      string // namespaces in which the binding allows pods; "-" is no namespace
		reason  string // the reason of the first decision that has one
	}{
		"User in a ClusterRoleBinding": {
			bindSubject("", "ClusterRole", "r", named("User", "", "alice")),
			alice,
			"n m -",
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "alice"`,
		},
		"Group in a ClusterRoleBinding": {
			bindSubject("", "ClusterRole", "r", named("Group", "", "dev")),
			alice,
			"n m -",
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "dev"`,
		},
		"Group with the name of a user": {bindSubject("", "ClusterRole", "r", named("Group", "", "alice")), alice, "", ""},
		"User with the name of a group": {bindSubject("", "ClusterRole", "r", named("User", "", "dev")), alice, "", ""},
		"User in a RoleBinding": {
			bindSubject("n", "ClusterRole", "r", named("User", "", "alice")),
			alice,
			"n",
			`RBAC: allowed by RoleBinding "b/n" of ClusterRole "r" to User "alice"`,
		},
		"RoleBinding of a Role": {
			bindSubject("n", "Role", "r", named("Group", "", "ops")),
			alice,
			"n",
			`RBAC: allowed by RoleBinding "b/n" of Role "r" to Group "ops"`,
		},
		"Role in another namespace": {
			bindSubject("m", "Role", "r", named("User", "", "alice")),
			alice,
			"",
			`RBAC: role.rbac.authorization.k8s.io "r" not found`,
		},
		"service account": {
			bindSubject("m", "ClusterRole", "r", named("ServiceAccount", "n", "robot")),
			robot,
			"m",
			`RBAC: allowed by RoleBinding "b/m" of ClusterRole "r" to ServiceAccount "robot/n"`,
		},
		"service account in the binding's namespace": {
			bindSubject("n", "ClusterRole", "r", named("ServiceAccount", "", "robot")),
			robot,
			"n",
			`RBAC: allowed by RoleBinding "b/n" of ClusterRole "r" to ServiceAccount "robot/n"`,
		},
		"service account in another namespace": {
			bindSubject("m", "ClusterRole", "r", named("ServiceAccount", "", "robot")),
			robot,
			"",
			"",
		},
		"service account without a namespace": {
			bindSubject("", "ClusterRole", "r", named("ServiceAccount", "", "robot")),
			&user.DefaultInfo{Name: "system:serviceaccount::robot"},
			"",
			"",
		},
		"subject without a kind": {bindSubject("", "ClusterRole", "r", named("", "", "alice")), alice, "", ""},
		"missing ClusterRole": {
			bindSubject("", "ClusterRole", "gone", named("User", "", "alice")),
			alice,
			"",
			`RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`,
		},
		"missing Role": {
			bindSubject("n", "Role", "gone", named("User", "", "alice")),
			alice,
			"",
			`RBAC: role.rbac.authorization.k8s.io "gone" not found`,
		},
		"ClusterRoleBinding of a Role": {
			bindSubject("", "Role", "r", named("User", "", "alice")),
			alice,
			"",
			`RBAC: role.rbac.authorization.k8s.io "r" not found`,
		},
		"role of an unknown kind": {
			bindSubject("", "Robot", "r", named("User", "", "alice")),
			alice,
			"",
			`RBAC: unsupported role reference kind: "Robot"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := rbac.NewIndex()
			x.Set(role("r", "get"))
			x.Set(roleInN("get"))
			x.Set(c.binding)
			if in, reason := allowed(t, name, rbac.New(x, rbac.Options{}), c.by); in != c.in || reason != c.reason {
				t.Errorf("allowed in %q, reason %s", in, reason)
			}
		})
	}
}

// allowed returns the names of those namespaces n and m in which a user may get pods, and "-" if
// the user may get pods without a namespace. It also returns the first reason.
func allowed(t *testing.T, name string, e *rbac.Evaluator, by user.Info) (in, reason string) {
	t.Helper()
	var all []string
	for _, namespace := range []string{"n", "m", "-"} {
		a := parseRequest("get pods")
		a.User, a.Namespace = by, strings.TrimPrefix(namespace, "-")
		d, gotReason, err := e.Authorize(t.Context(), a)
		if err != nil {
			t.Errorf("%s in %s: %v", name, namespace, err)
		}
		if d == authorizer.DecisionAllow {
			all = append(all, namespace)
		}
		if reason == "" {
			reason = gotReason
		}
		rules, _, incomplete, err := e.RulesFor(t.Context(), by, a.Namespace)
		if (len(rules) > 0) != (d == authorizer.DecisionAllow) || incomplete ||
			(err != nil) != (gotReason != "" && d != authorizer.DecisionAllow) {
			t.Errorf("%s in %s: rules %v, incomplete %t, %v", name, namespace, rules, incomplete, err)
		}
	}
	return strings.Join(all, " "), reason
}

// followingIndex returns an index that follows the informers of a client.
func followingIndex(t *testing.T, client kubernetes.Interface) *rbac.Index {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	x := rbac.NewIndex()
	if _, err := x.Follow(factory.Rbac().V1()); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return x
}

// TestIndexFollowsChanges checks that the index follows changes of each kind of object. If a role
// is created again, its bindings apply again.
func TestIndexFollowsChanges(t *testing.T) {
	ctx, client := t.Context(), fake.NewClientset(role("c", "get"), roleInN("list"), binding("b", "c", "alice"))
	x := followingIndex(t, client)
	e, c := rbac.New(x, rbac.Options{}), client.RbacV1()
	own := bindSubject("n", "Role", "r", rbacv1.Subject{Kind: "User", Name: "alice"}).(*rbacv1.RoleBinding)
	for _, step := range []struct {
		name  string
		do    func() error
		verbs string // the verbs that alice may use in n
	}{
		{"at the start", func() error { return nil }, "get"},
		{
			"a RoleBinding",
			func() error { _, err := c.RoleBindings("n").Create(ctx, own, metav1.CreateOptions{}); return err },
			"get list",
		},
		{"its Role changes", func() error {
			_, err := c.Roles("n").Update(ctx, roleInN("watch"), metav1.UpdateOptions{})
			return err
		}, "get watch"},
		{"its Role is deleted", func() error { return c.Roles("n").Delete(ctx, "r", metav1.DeleteOptions{}) }, "get"},
		{"its Role is created again", func() error {
			_, err := c.Roles("n").Create(ctx, roleInN("list"), metav1.CreateOptions{})
			return err
		}, "get list"},
		{"the ClusterRole changes", func() error {
			_, err := c.ClusterRoles().Update(ctx, role("c", "watch"), metav1.UpdateOptions{})
			return err
		}, "list watch"},
		{
			"the RoleBinding is deleted",
			func() error { return c.RoleBindings("n").Delete(ctx, "b", metav1.DeleteOptions{}) },
			"watch",
		},
		{"the ClusterRoleBinding names only bob", func() error {
			_, err := c.ClusterRoleBindings().Update(ctx, binding("b", "c", "bob"), metav1.UpdateOptions{})
			return err
		}, ""},
		{"the ClusterRoleBinding names alice again", func() error {
			_, err := c.ClusterRoleBindings().Update(ctx, binding("b", "c", "bob", "alice"), metav1.UpdateOptions{})
			return err
		}, "watch"},
		{"the ClusterRole is deleted", func() error { return c.ClusterRoles().Delete(ctx, "c", metav1.DeleteOptions{}) }, ""},
		{"the ClusterRole is created again", func() error {
			_, err := c.ClusterRoles().Create(ctx, role("c", "get"), metav1.CreateOptions{})
			return err
		}, "get"},
		{
			"the ClusterRoleBinding is deleted",
			func() error { return c.ClusterRoleBindings().Delete(ctx, "b", metav1.DeleteOptions{}) },
			"",
		},
	} {
		t.Run(step.name, func(t *testing.T) {
			if err := step.do(); err != nil {
				t.Fatal(step.name, err)
			}
			waittest.Until(t, func() error {
				var gotVerbs []string
				for _, verb := range []string{"get", "list", "watch"} {
					if allows(t, e, podRequest("alice", verb, "n")) {
						gotVerbs = append(gotVerbs, verb)
					}
				}
				if got := strings.Join(gotVerbs, " "); got != step.verbs {
					return fmt.Errorf("%q, want %q", got, step.verbs)
				}
				return nil
			})
		})
	}
}

// TestRequestsAreDeniedUntilSynced checks that DenyLimited denies every request until the index
// contains all bindings.
func TestRequestsAreDeniedUntilSynced(t *testing.T) {
	x := rbac.NewIndex()
	x.Set(role("r", "get"))
	x.Set(binding("b", "r", "alice"))
	for name, c := range map[string]struct {
		deny, synced bool
		want         authorizer.Decision
	}{
		"not synced":                      {true, false, authorizer.DecisionDeny},
		"synced":                          {true, true, authorizer.DecisionAllow},
		"not synced, without DenyLimited": {false, false, authorizer.DecisionAllow},
	} {
		t.Run(name, func(t *testing.T) {
			d, reason, err := rbac.New(x, rbac.Options{DenyLimited: c.deny, Synced: func() bool { return c.synced }}).
				Authorize(t.Context(), podRequest("alice", "get", "n"))
			if d != c.want || err != nil || (d == authorizer.DecisionDeny) != (reason == rbac.ReasonNotSynced) {
				t.Errorf("%v %q %v", d, reason, err)
			}
		})
	}
}

// TestRulesAreListedOnce checks that the rules of a binding are listed once, even if several of its
// subjects match.
func TestRulesAreListedOnce(t *testing.T) {
	x := rbac.NewIndex()
	x.Set(role("r", "get"))
	b := binding("b", "r", "alice", "alice")
	b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "Group", Name: "dev"})
	x.Set(b)
	rules, _, _, err := rbac.New(x, rbac.Options{}).RulesFor(t.Context(),
		&user.DefaultInfo{Name: "alice", Groups: []string{"dev"}}, "n")
	if len(rules) != 1 || err != nil {
		t.Errorf("%v, %v", rules, err)
	}
	x.Delete(b)
	if allows(t, rbac.New(x, rbac.Options{}), podRequest("alice", "get", "n")) {
		t.Error("a subject that the binding listed twice still has access")
	}
}

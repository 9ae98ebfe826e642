// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/tenant"
)

// The tests in cmd/kube-apiserver/test/differential compare the decisions with those of upstream.

func role(name string, verbs ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}
}

func binding(name, role string, users ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
	}
	for _, u := range users {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: u})
	}
	return b
}

func podRequest(name, verb, namespace string) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User:            &user.DefaultInfo{Name: name},
		Verb:            verb,
		Resource:        "pods",
		Namespace:       namespace,
		ResourceRequest: true,
	}
}

func allows(t *testing.T, e *rbac.Evaluator, a authorizer.Attributes) bool {
	t.Helper()
	d, _, err := e.Authorize(t.Context(), a)
	if err != nil || d == authorizer.DecisionDeny {
		t.Fatalf("decision %v, %v", d, err)
	}
	return d == authorizer.DecisionAllow
}

// TestABindingIsNeverAbsent checks decisions while one binding is updated repeatedly and other
// bindings are created and deleted. No decision may miss the unchanged subjects of the binding or
// see only a part of an update.
func TestABindingIsNeverAbsent(t *testing.T) {
	x := rbac.NewIndex()
	e := rbac.New(x, rbac.Options{})
	x.Set(role("reader", "get"))
	x.Set(role("writer", "create"))
	x.Set(binding("steady", "reader", "alice", "bob"))
	const rounds = 3000
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if !allows(t, e, podRequest("alice", "get", "ns")) {
					t.Error("a binding that is being updated was absent")
					return
				}
				if allows(t, e, podRequest("alice", "delete", "ns")) {
					t.Error("allowed a request that no binding allows")
					return
				}
				if worker == 0 {
					_, _, _, _ = e.RulesFor(t.Context(), &user.DefaultInfo{Name: "alice"}, "ns")
				}
			}
		})
	}
	for i := range rounds {
		x.Set(binding("steady", "reader", "alice", fmt.Sprintf("user-%d", i)))
		x.Set(binding(fmt.Sprintf("other-%d", i%50), "writer", "alice", "carol"))
		x.Delete(binding(fmt.Sprintf("other-%d", (i+25)%50), "writer"))
		x.Set(role("writer", "create", "update"))
	}
	close(stop)
	wg.Wait()
	if allows(t, e, podRequest("user-5", "get", "ns")) ||
		!allows(t, e, podRequest(fmt.Sprintf("user-%d", rounds-1), "get", "ns")) {
		t.Error("a binding other than the last version applies, or the last does not")
	}
}

// TestScope checks that the scope annotation limits the rules of a binding to the objects of listed
// tenants or of the caller's tenant. If the annotation is invalid or a lookup fails, the rules do
// not apply.
func TestScope(t *testing.T) {
	errUnavailable := errors.New("away")
	owners := map[string]string{"a--web": "a", "b--web": "b", "kube-system": "system"}
	tenants := map[string]string{"root": "system", "alice": "a"}
	o := rbac.Options{
		Owner: func(_ context.Context, a authorizer.Attributes) (tenant.ID, error) {
			if a.GetNamespace() == "away" {
				return tenant.System(), errUnavailable
			}
			id, _ := tenant.Parse(owners[a.GetNamespace()])
			return id, nil
		},
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
			if tenants[u.GetName()] == "" {
				return tenant.System(), errUnavailable
			}
			return tenant.Parse(tenants[u.GetName()])
		},
	}
	for annotation, want := range map[string]map[[2]string]bool{
		"Tenanted": {{"root", "kube-system"}: true, {"alice", "a--web"}: true},
		"a":        {{"root", "a--web"}: true, {"alice", "a--web"}: true, {"lost", "a--web"}: true},
		"a, b": {
			{"root", "a--web"}:  true,
			{"root", "b--web"}:  true,
			{"alice", "a--web"}: true,
			{"alice", "b--web"}: true,
			{"lost", "a--web"}:  true,
			{"lost", "b--web"}:  true,
		},
		"system":    {{"root", "kube-system"}: true, {"alice", "kube-system"}: true, {"lost", "kube-system"}: true},
		"Callers:a": {}, // the format of an earlier release
		"":          {},
		"tenanted":  {},
		"*":         {},
		"all":       {},
		"a,":        {},
		"a,*":       {},
		"System":    {},
	} {
		t.Run(annotation, func(t *testing.T) {
			x := rbac.NewIndex()
			x.Set(role("reader", "get"))
			b := binding("limited", "reader", "root", "alice", "lost")
			b.Annotations = map[string]string{tenant.ScopeAnnotation: annotation}
			x.Set(b)
			e := rbac.New(x, o)
			for _, name := range []string{"root", "alice", "lost"} {
				for _, namespace := range []string{"a--web", "b--web", "kube-system", "missing", "away", ""} {
					if got := allows(t, e, podRequest(name, "get", namespace)); got != want[[2]string{name, namespace}] {
						t.Errorf("%s in %q: %t", name, namespace, got)
					}
				}
				if rules, _, incomplete, err := e.RulesFor(t.Context(), &user.DefaultInfo{Name: name}, "a--web"); len(rules) > 0 ||
					!incomplete || err != nil {
					t.Errorf("rules %v, incomplete %t, %v", rules, incomplete, err)
				}
			}
			x.Set(&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "b--web", Name: "in-a-space", Annotations: b.Annotations},
				RoleRef:    b.RoleRef,
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "dave"}},
			})
			if !allows(t, e, podRequest("dave", "get", "b--web")) || allows(t, e, podRequest("dave", "get", "a--web")) {
				t.Error("the annotation limits a RoleBinding")
			}
			x.Set(binding("free", "reader", "root")) // a binding without limits
			if !allows(t, e, podRequest("root", "get", "b--web")) || !allows(t, e, podRequest("root", "get", "away")) {
				t.Error("the annotation of one binding limits another")
			}
		})
	}
}

// TestFollow checks that the index contains the objects of the informers, and that Delete accepts
// tombstones.
func TestFollow(t *testing.T) {
	client := fake.NewClientset(role("reader", "get"), binding("one", "reader", "alice"))
	factory := informers.NewSharedInformerFactory(client, 0)
	x := rbac.NewIndex()
	synced, err := x.Follow(factory.Rbac().V1())
	if err != nil || synced() {
		t.Fatal(synced(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced) {
		t.Fatal("not synced")
	}
	e := rbac.New(x, rbac.Options{})
	if !allows(t, e, podRequest("alice", "get", "ns")) {
		t.Error("the index does not contain an existing binding")
	}
	x.Delete(cache.DeletedFinalStateUnknown{Key: "one", Obj: binding("one", "reader", "somebody else by then")})
	if allows(t, e, podRequest("alice", "get", "ns")) {
		t.Error("a tombstone with another version did not delete the binding")
	}
	x.Delete(cache.DeletedFinalStateUnknown{Key: "x"})
	x.Set("nothing")
}

// TestNothingIsAllowedWithoutUserOrBindings checks that nothing is allowed without a user or with
// an empty index.
func TestNothingIsAllowedWithoutUserOrBindings(t *testing.T) {
	e := rbac.New(rbac.NewIndex(), rbac.Options{})
	if allows(t, e, authorizer.AttributesRecord{}) || allows(t, e, podRequest("alice", "get", "")) {
		t.Error("allowed")
	}
	if rules, paths, incomplete, err := e.RulesFor(t.Context(), nil, "ns"); rules != nil || paths != nil || !incomplete ||
		err != nil {
		t.Error(rules, paths, incomplete, err)
	}
	if d := e.ConditionsAwareAuthorize(t.Context(), podRequest("alice", "get", "")); d.IsAllow() {
		t.Error("allowed with conditions")
	}
	if d, _, err := e.EvaluateConditions(t.Context(),
		e.ConditionsAwareAuthorize(t.Context(), podRequest("alice", "get", "")),
		nil); d != authorizer.DecisionDeny || err == nil {
		t.Error(d, err)
	}
}

// TestRulesFor checks that rules about resources and rules about paths are listed.
func TestRulesFor(t *testing.T) {
	x := rbac.NewIndex()
	reader := role("reader", "get")
	reader.Rules = append(reader.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz"}})
	x.Set(reader)
	x.Set(binding("alice", "reader", "alice"))
	rules, paths, incomplete, err := rbac.New(x, rbac.Options{}).RulesFor(t.Context(),
		&user.DefaultInfo{Name: "alice"}, "ns")
	if len(rules) != 1 || len(paths) != 1 || paths[0].GetNonResourceURLs()[0] != "/healthz" || incomplete || err != nil {
		t.Error(rules, paths, incomplete, err)
	}
}

// TestDenyLimited checks that DenyLimited denies a request that a limited binding excludes, unless
// another binding allows it.
func TestDenyLimited(t *testing.T) {
	x := rbac.NewIndex()
	x.Set(role("reader", "get"))
	limited := binding("limited", "reader", "alice", "bob")
	limited.Annotations = map[string]string{tenant.ScopeAnnotation: "a"}
	x.Set(limited)
	x.Set(binding("plain", "reader", "bob"))
	in := "b"
	e := rbac.New(x, rbac.Options{
		Subject:     func(context.Context, user.Info) (tenant.ID, error) { return tenant.System(), nil },
		Owner:       func(context.Context, authorizer.Attributes) (tenant.ID, error) { return tenant.Parse(in) },
		DenyLimited: true,
	})
	for _, c := range []struct {
		name, verb, in string
		want           authorizer.Decision
	}{
		{"alice", "get", "a", authorizer.DecisionAllow},
		{"alice", "get", "b", authorizer.DecisionDeny},
		{"alice", "create", "b", authorizer.DecisionNoOpinion},
		{"bob", "get", "b", authorizer.DecisionAllow},
		{"carol", "get", "b", authorizer.DecisionNoOpinion},
	} {
		t.Run(c.name, func(t *testing.T) {
			in = c.in
			d, reason, err := e.Authorize(t.Context(), podRequest(c.name, c.verb, "n"))
			if d != c.want || err != nil || (d == authorizer.DecisionDeny) != (reason == rbac.ReasonLimited) {
				t.Errorf("%s %s in %s: %v %q %v; want %v", c.name, c.verb, c.in, d, reason, err, c.want)
			}
		})
	}
}

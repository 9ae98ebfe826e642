// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	upstream "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/kubetenant/kubetenant/authz/rbac"
)

// pairs defines the flag for the number of random pairs of a policy and a request to compare.
func pairs() *int { return flag.Int("pairs", 0, "random pairs of policy and request; 0 for 1,000,000") }

var pairsFlag = pairs()

// policy is an RBAC policy that both upstream's evaluator and ours evaluate.
type policy struct {
	upstream *upstream.RBACAuthorizer
	ours     *rbac.Evaluator
	index    *rbac.Index
	stores   map[string]cache.Indexer
}

func newPolicy() *policy {
	w := &policy{index: rbac.NewIndex(), stores: map[string]cache.Indexer{}}
	for _, kind := range []string{"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} {
		w.stores[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	w.upstream = upstream.New(
		&upstream.RoleGetter{Lister: rbaclisters.NewRoleLister(w.stores["Role"])},
		&upstream.RoleBindingLister{Lister: rbaclisters.NewRoleBindingLister(w.stores["RoleBinding"])},
		&upstream.ClusterRoleGetter{Lister: rbaclisters.NewClusterRoleLister(w.stores["ClusterRole"])},
		&upstream.ClusterRoleBindingLister{Lister: rbaclisters.NewClusterRoleBindingLister(w.stores["ClusterRoleBinding"])})
	w.ours = rbac.New(w.index, rbac.Options{})
	return w
}

func kindOf(obj any) string {
	switch obj.(type) {
	case *rbacv1.Role:
		return "Role"
	case *rbacv1.ClusterRole:
		return "ClusterRole"
	case *rbacv1.RoleBinding:
		return "RoleBinding"
	}
	return "ClusterRoleBinding"
}

func (w *policy) set(obj any) {
	_ = w.stores[kindOf(obj)].Update(obj) // the object has a name, so this cannot fail
	w.index.Set(obj)
}

func (w *policy) delete(obj any) {
	_ = w.stores[kindOf(obj)].Delete(obj)
	w.index.Delete(obj)
}

// The lists of random values are short, so that values often match. They contain special values,
// and values that resemble special values.
var (
	names = []string{
		"", "a", "a", "a", "b", "*", "system:masters", "system:serviceaccount:ns1:sa", "system:serviceaccount:ns2:sa",
		"system:serviceaccount::sa", "system:serviceaccount:ns1:",
	}
	groups     = []string{"", "g1", "g1", "g2", "system:authenticated", "*"}
	namespaces = []string{"", "ns1", "ns2"}
	accounts   = []string{"sa", "", "a"}
	verbs      = []string{"get", "get", "get", "list", "create", "*", "", "GET", "impersonate"}
	apiGroups  = []string{"", "apps", "*", "rbac.authorization.k8s.io"}
	resources  = []string{
		"pods", "pods/log", "*", "*/log", "*/", "deployments", "", "pods/", "/log", "*/scale", "pods/log/x", "*pods",
	}
	nonEmptyResources = []string{"pods", "pods", "pods", "deployments", "", "pods/log", "*", "scale"}
	subs              = []string{"", "", "", "log", "scale", "*", "log/x"}
	objects           = []string{"", "x", "y", "*"}
	paths             = []string{
		"/",
		"/healthz",
		"/healthz/*",
		"*",
		"/api*",
		"/apis/x",
		"",
		"/healthz/ping",
		"/**",
		"/heal*thz",
	}
	roleNames = []string{"r1", "r2", "r3", "r1", "r2", "r3", "missing"}
	refKinds  = []string{"ClusterRole", "ClusterRole", "Role", "Role", "Other", ""}
	kinds     = []string{"User", "User", "Group", "Group", "ServiceAccount", "user", ""}
)

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func sample[T any](r *rand.Rand, of []T) []T {
	var out []T
	for range max(1, r.IntN(6)) - r.IntN(2) {
		out = append(out, pick(r, of))
	}
	return out
}

func randomRules(r *rand.Rand) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range r.IntN(4) {
		rules = append(rules,
			rbacv1.PolicyRule{Verbs: sample(r, verbs), APIGroups: sample(r, apiGroups), Resources: sample(r, resources)})
		last := &rules[len(rules)-1]
		if r.IntN(3) == 0 {
			last.ResourceNames = sample(r, objects)
		}
		if r.IntN(3) == 0 {
			last.NonResourceURLs = sample(r, paths)
		}
	}
	return rules
}

func randomSubjects(r *rand.Rand) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for range r.IntN(5) {
		s := rbacv1.Subject{Kind: pick(r, kinds), Name: pick(r, names)}
		switch s.Kind {
		case "Group":
			s.Name = pick(r, groups)
		case "ServiceAccount":
			s.Name, s.Namespace = pick(r, accounts), pick(r, namespaces)
		}
		subjects = append(subjects, s)
	}
	return subjects
}

// change makes one random change to the policy.
func (w *policy) change(r *rand.Rand) {
	meta := metav1.ObjectMeta{Name: pick(r, roleNames[:3])}
	namespace := pick(r, namespaces[1:])
	ref := rbacv1.RoleRef{Kind: pick(r, refKinds), Name: pick(r, roleNames)}
	var obj any
	switch r.IntN(4) {
	case 0:
		meta.Namespace = namespace
		obj = &rbacv1.Role{ObjectMeta: meta, Rules: randomRules(r)}
	case 1:
		obj = &rbacv1.ClusterRole{ObjectMeta: meta, Rules: randomRules(r)}
	case 2:
		meta.Namespace = namespace
		obj = &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: randomSubjects(r), RoleRef: ref}
	case 3:
		obj = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: randomSubjects(r), RoleRef: ref}
	}
	if r.IntN(5) == 0 {
		w.delete(obj)
		return
	}
	w.set(obj)
}

func randomRequest(r *rand.Rand) authorizer.AttributesRecord {
	u := &user.DefaultInfo{Name: pick(r, names), Groups: sample(r, groups)}
	a := authorizer.AttributesRecord{User: u, Verb: pick(r, verbs), Namespace: pick(r, namespaces)}
	if r.IntN(4) == 0 {
		a.Path = pick(r, paths)
		return a
	}
	a.ResourceRequest, a.APIGroup, a.Resource, a.Subresource, a.Name = true, pick(
		r,
		apiGroups,
	), pick(
		r,
		nonEmptyResources,
	),
		pick(
			r,
			subs,
		), pick(
			r,
			objects,
		)
	return a
}

// matchingRequest returns a random request that a rule of the policy is likely to allow.
func (w *policy) matchingRequest(r *rand.Rand) authorizer.AttributesRecord {
	a := randomRequest(r)
	kind := pick(r, []string{"RoleBinding", "ClusterRoleBinding"})
	bindings := w.stores[kind].List()
	if len(bindings) == 0 {
		return a
	}
	var subjects []rbacv1.Subject
	var ref rbacv1.RoleRef
	switch b := pick(r, bindings).(type) {
	case *rbacv1.RoleBinding:
		subjects, ref, a.Namespace = b.Subjects, b.RoleRef, b.Namespace
	case *rbacv1.ClusterRoleBinding:
		subjects, ref = b.Subjects, b.RoleRef
	}
	roles := w.stores["ClusterRole"].List()
	if ref.Kind == "Role" {
		roles = w.stores["Role"].List()
	}
	if len(subjects) == 0 || len(roles) == 0 {
		return a
	}
	u := &user.DefaultInfo{Name: pick(r, names), Groups: sample(r, groups)}
	switch s := pick(r, subjects); s.Kind {
	case "User":
		u.Name = s.Name
	case "Group":
		u.Groups = append(u.Groups, s.Name)
	case "ServiceAccount":
		u.Name = "system:serviceaccount:" + s.Namespace + ":" + s.Name
	}
	a.User = u
	var rules []rbacv1.PolicyRule
	for _, obj := range roles {
		switch role := obj.(type) {
		case *rbacv1.Role:
			if role.Name == ref.Name && role.Namespace == a.Namespace {
				rules = role.Rules
			}
		case *rbacv1.ClusterRole:
			if role.Name == ref.Name {
				rules = role.Rules
			}
		}
	}
	if len(rules) == 0 {
		return a
	}
	rule := pick(r, rules)
	aim := func(of []string, into *string) {
		if len(of) > 0 {
			*into = pick(r, of)
		}
	}
	aim(rule.Verbs, &a.Verb)
	if a.ResourceRequest {
		aim(rule.APIGroups, &a.APIGroup)
		aim(rule.Resources, &a.Resource)
		a.Resource, a.Subresource, _ = strings.Cut(a.Resource, "/")
		aim(rule.ResourceNames, &a.Name)
	} else {
		aim(rule.NonResourceURLs, &a.Path)
	}
	return a
}

// allowedForm matches the form of upstream's reasons for allowed requests. The names are not
// compared, because several bindings may allow a request and upstream may name any of them.
var allowedForm = regexp.MustCompile(`^RBAC: allowed by (Cluster)?RoleBinding "[^"]*" of (Cluster)?Role "[^"]*" to ` +
	`(User|Group|ServiceAccount) "[^"]*"$`)

// reasonSet returns the sorted parts of a reason.
func reasonSet(reason string) []string {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(reason, "RBAC: "), "[]"), ", ")
	slices.Sort(parts)
	return parts
}

// TestRBACDecidesLikeUpstream checks that our evaluator decides as upstream's does. It changes a
// random policy step by step. After each step, it compares the decisions about random requests,
// their reasons, and for some callers the rules.
func TestRBACDecidesLikeUpstream(t *testing.T) {
	n := *pairsFlag
	if n == 0 {
		n = 1_000_000
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
	allowed, dangling := 0, 0
	for done := 0; done < n; {
		w := newPolicy()
		for range 1 + r.IntN(40) {
			w.change(r)
			for range 5 {
				a := randomRequest(r)
				if r.IntN(2) == 0 {
					a = w.matchingRequest(r)
				}
				done++
				wantD, wantReason, wantErr := w.upstream.Authorize(t.Context(), a)
				for _, attrs := range []authorizer.Attributes{a, &a} { // by value and by pointer
					d, reason, err := w.ours.Authorize(t.Context(), attrs)
					if d != wantD || (err == nil) != (wantErr == nil) {
						t.Fatalf("seed %d: Authorize(%+v of %+v) = %v, %v; upstream %v, %v", seed, a, a.User, d, err, wantD, wantErr)
					}
					if d == authorizer.DecisionAllow && !allowedForm.MatchString(reason) {
						t.Fatalf("seed %d: reason %q; upstream %q", seed, reason, wantReason)
					}
					if d != authorizer.DecisionAllow && !slices.Equal(reasonSet(reason), reasonSet(wantReason)) {
						t.Fatalf("seed %d: reason %q; upstream %q", seed, reason, wantReason)
					}
				}
				if wantD == authorizer.DecisionAllow {
					allowed++
				} else if wantReason != "" {
					dangling++
				}
				if done%10 == 0 {
					compareRules(t, w, a.User, a.Namespace)
				}
			}
		}
	}
	if allowed < n/50 || dangling < n/50 {
		t.Errorf("%d of %d allowed, %d with a missing role: too few requests match a rule", allowed, n, dangling)
	}
	t.Logf("%d pairs, %d allowed, %d denied with a missing role", n, allowed, dangling)
}

func compareRules(t *testing.T, w *policy, u user.Info, namespace string) {
	t.Helper()
	wantR, wantP, wantI, wantErr := w.upstream.RulesFor(t.Context(), u, namespace)
	gotR, gotP, gotI, gotErr := w.ours.RulesFor(t.Context(), u, namespace)
	text := func(resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo) []string {
		var out []string
		for _, x := range resources {
			out = append(out, fmt.Sprintf("%q", []any{x.GetVerbs(), x.GetAPIGroups(), x.GetResources(), x.GetResourceNames()}))
		}
		for _, x := range paths {
			out = append(out, fmt.Sprintf("%q", []any{x.GetVerbs(), x.GetNonResourceURLs()}))
		}
		slices.Sort(out)
		return out
	}
	if got, want := text(gotR, gotP), text(wantR, wantP); !slices.Equal(got, want) || gotI != wantI ||
		(gotErr == nil) != (wantErr == nil) {
		t.Fatalf("RulesFor(%v, %q) = %v, %v, %v; upstream %v, %v, %v", u, namespace, got, gotI, gotErr, want, wantI, wantErr)
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// ruleOf returns a rule. Each argument is a list, separated by commas.
func ruleOf(verbs, groups, resources, names string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{
		Verbs:     strings.Split(verbs, ","),
		APIGroups: strings.Split(groups, ","),
		Resources: strings.Split(resources, ","),
	}
	if names != "" {
		r.ResourceNames = strings.Split(names, ",")
	}
	return r
}

// allows reports whether rules allow a request, like kube-apiserver's RBAC authorizer
// (pkg/apis/rbac/v1/evaluation_helpers.go, v1.37.1).
func allows(rules []rbacv1.PolicyRule, a authorizer.Attributes) bool {
	resource := a.GetResource()
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return (slices.Contains(r.Verbs, "*") || slices.Contains(r.Verbs, a.GetVerb())) &&
			(slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, a.GetAPIGroup())) &&
			(slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, resource) ||
				a.GetSubresource() != "" && slices.Contains(r.Resources, "*/"+a.GetSubresource())) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName()))
	})
}

// fakeCluster is a cluster with the rules of one caller. The keys of the map in are the namespaces
// of tenant a.
type fakeCluster struct {
	everywhere      []rbacv1.PolicyRule
	in              map[string][]rbacv1.PolicyRule
	unknown         error // the error of Namespaces
	authorizerFails bool  // the authorizer fails

	checks *atomic.Int64 // the number of authorizer calls of the last write
}

func (w *fakeCluster) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	w.checks.Add(1)
	switch {
	case w.authorizerFails:
		return authorizer.DecisionAllow, "", errors.New("away")
	case !a.IsResourceRequest() || a.GetUser().GetName() != "a" && a.GetUser().GetName() != "system:x":
		return authorizer.DecisionNoOpinion, "", nil
	case allows(w.everywhere, a) || a.GetNamespace() != "" && allows(w.in[a.GetNamespace()], a):
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// members are TenantMembers of tenant a that define Roles.
type members struct {
	*fakeTenant
	roles []rolebinding.DefinedRole
}

func defines(name string, rules ...rbacv1.PolicyRule) *members {
	return &members{tenantWith(), []rolebinding.DefinedRole{{Path: "spec.roles[0]", Name: name, Rules: rules}}}
}

func (d *members) and(name string, rules ...rbacv1.PolicyRule) *members {
	d.roles = append(d.roles,
		rolebinding.DefinedRole{Path: fmt.Sprintf("spec.roles[%d]", len(d.roles)), Name: name, Rules: rules})
	return d
}

func (d *members) withUID(uid string) *members {
	d.Annotations = map[string]string{tenant.TenantUIDAnnotation: uid}
	return d
}

// DeepCopyObject implements [runtime.Object].
func (d *members) DeepCopyObject() runtime.Object { return d }

// write returns the error of a write of TenantMembers, or "" if it is allowed.
func (w *fakeCluster) write(t *testing.T, by string, oldObj, newObj *members) string {
	t.Helper()
	w.checks = &atomic.Int64{}
	p := newPlugin(func(o *rolebinding.Options) {
		o.ReadMembers = func(obj runtime.Object) (*rolebinding.Bindings, error) {
			return &rolebinding.Bindings{Tenant: tenanttest.ID(t, "a"), DefinedRoles: obj.(*members).roles}, nil
		}
		o.MemberRoles = func(tenant.ID) []string { return nil }
		o.Authorizer = authorizer.AuthorizerFunc(w.authorize)
		if w.in != nil || w.unknown != nil {
			o.Namespaces = func(id tenant.ID) ([]string, error) {
				if id.String() != "a" {
					return nil, fmt.Errorf("called for %s", id)
				}
				return slices.Sorted(maps.Keys(w.in)), w.unknown
			}
		}
	})
	op, before := admission.Create, runtime.Object(nil)
	if oldObj != nil {
		op, before = admission.Update, oldObj
	}
	err := p.Validate(t.Context(), admission.NewAttributesRecord(newObj, before, schema.GroupVersionKind{}, "", "a",
		schema.GroupVersionResource{Group: "kubetenant.dev", Version: "v1alpha1", Resource: "tenantmembers"}, "", op, nil,
		false, &user.DefaultInfo{Name: by}), nil)
	if err == nil {
		return ""
	}
	return err.Error()
}

// both returns the same rules in two namespaces of tenant a.
func both(rules ...rbacv1.PolicyRule) map[string][]rbacv1.PolicyRule {
	return map[string][]rbacv1.PolicyRule{"a--db": rules, "a--web": rules}
}

// TestDefinedRoles checks which rules of Roles the writer of TenantMembers may add.
func TestDefinedRoles(t *testing.T) {
	pods, secrets := ruleOf("get,list", "", "pods", ""), ruleOf("get", "", "secrets", "")
	escalates := ruleOf("escalate", "rbac.authorization.k8s.io", "roles", "")
	escalatesX := ruleOf("escalate", "rbac.authorization.k8s.io", "roles", "x")
	for name, c := range map[string]struct {
		w       fakeCluster
		by      string
		was, is *members
		want    string
	}{
		"no Roles":                    {fakeCluster{}, "a", nil, &members{tenantWith(), nil}, ""},
		"rights in the whole cluster": {fakeCluster{everywhere: []rbacv1.PolicyRule{pods}}, "a", nil, defines("x", pods), ""},
		"rights in each namespace":    {fakeCluster{in: both(pods)}, "a", nil, defines("x", pods), ""},
		"by the system tenant": {
			fakeCluster{in: both()}, "system:x", nil, defines("x", pods), "spec.roles[0].rules[0]",
		},
		"by the system tenant, rights": {
			fakeCluster{everywhere: []rbacv1.PolicyRule{pods}}, "system:x", nil, defines("x", pods), "",
		},
		"by another tenant": {
			fakeCluster{everywhere: []rbacv1.PolicyRule{pods}}, "b", nil, defines("x", pods), "only callers of this tenant",
		},
		"a Role without rules": {fakeCluster{in: both()}, "a", nil, defines("x"), ""},
		"rights in one namespace": {
			fakeCluster{in: map[string][]rbacv1.PolicyRule{"a--db": nil, "a--web": {pods}}},
			"a", nil, defines("x", pods),
			"[spec.roles[0].rules[0]: the caller may not get pods in namespace a--db, " +
				"spec.roles[0].rules[0]: the caller may not list pods in namespace a--db]",
		},
		"rights in two parts": {
			fakeCluster{
				everywhere: []rbacv1.PolicyRule{secrets},
				in:         map[string][]rbacv1.PolicyRule{"a--db": {ruleOf("*", "*", "*", "")}, "a--web": {pods}},
			}, "a", nil, defines("x", pods, secrets), "",
		},
		"escalate in the whole cluster": {
			fakeCluster{everywhere: []rbacv1.PolicyRule{escalates}}, "a", nil, defines("x", pods), "",
		},
		"escalate in each namespace": {fakeCluster{in: both(escalates)}, "a", nil, defines("x", pods), ""},
		"escalate of this Role":      {fakeCluster{in: both(escalatesX)}, "a", nil, defines("x", pods), ""},
		"escalate of another Role": {
			fakeCluster{in: both(escalatesX)}, "a", nil, defines("y", pods), "spec.roles[0].rules[0]",
		},
		"escalate of one of two Roles": {
			fakeCluster{in: both(escalatesX)},
			"a", nil, defines("x", pods).and("y", secrets),
			"spec.roles[1].rules[0]: the caller may not get secrets in namespace a--db",
		},
		"escalate of one of two equal Roles": {
			fakeCluster{in: both(escalatesX)},
			"a", nil, defines("x", secrets).and("y", secrets),
			"spec.roles[1].rules[0]: the caller may not get secrets in namespace a--db",
		},
		"escalate of one of two equal Roles in the whole cluster": {
			fakeCluster{everywhere: []rbacv1.PolicyRule{escalatesX}, in: both()},
			"a", nil, defines("x", secrets).and("y", secrets),
			"spec.roles[1].rules[0]: the caller may not get secrets in namespace a--db",
		},
		"escalate in one namespace": {
			fakeCluster{in: map[string][]rbacv1.PolicyRule{"a--db": {escalates}, "a--web": nil}},
			"a", nil, defines("x", pods),
			"in namespace a--web",
		},
		"no namespaces": {
			fakeCluster{in: map[string][]rbacv1.PolicyRule{}}, "a", nil, defines("x", pods), "create a namespace first",
		},
		"no known namespaces": {
			fakeCluster{}, "a", nil, defines("x", pods), "the namespaces of the tenant are not known",
		},
		"Namespaces fails": {
			fakeCluster{unknown: errors.New("away")}, "a", nil, defines("x", pods), "not known: away",
		},
		"the authorizer fails": {fakeCluster{authorizerFails: true}, "a", nil, defines("x", pods), "cannot check now"},
		"a reserved name": {
			fakeCluster{everywhere: []rbacv1.PolicyRule{pods}},
			"a",
			nil,
			defines("kubetenant:admins", pods),
			"spec.roles[0].name",
		},
		"no verbs": {
			fakeCluster{in: both()}, "a", nil, defines("x", rbacv1.PolicyRule{Resources: []string{"pods"}}), "at least one verb",
		},
		"a path": {
			fakeCluster{in: both()},
			"a", nil,
			defines("x", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}), "nonResourceURLs",
		},
		"unchanged":      {fakeCluster{in: both()}, "a", defines("x", pods), defines("x", pods), ""},
		"a removed rule": {fakeCluster{in: both()}, "a", defines("x", pods, secrets), defines("x", secrets), ""},
		"a removed Role": {fakeCluster{in: both()}, "a", defines("x", pods).and("y", secrets), defines("y", secrets), ""},
		"an added rule": {
			fakeCluster{in: both(pods)},
			"a", defines("x", pods), defines("x", pods, secrets),
			"rules[1]: the caller may not get secrets",
		},
		"an added verb": {
			fakeCluster{in: both(pods)},
			"a", defines("x", pods), defines("x", ruleOf("get,list,watch", "", "pods", "")),
			"may not watch pods",
		},
		"a removed name": {
			fakeCluster{in: both(pods)},
			"a", defines("x", ruleOf("get", "", "secrets", "one")), defines("x", secrets),
			"may not get secrets",
		},
		"a rule of another Role": {
			fakeCluster{in: both()}, "a", defines("x", pods).and("y"), defines("x").and("y", pods), "spec.roles[1].rules[0]",
		},
		"a renamed Role": {
			fakeCluster{in: both()},
			"a",
			defines("x", pods),
			defines("y", pods),
			"spec.roles[0].rules[0]",
		},
		"of the same tenant": {
			fakeCluster{in: both()},
			"a",
			defines("x", pods).withUID("1"),
			defines("x", pods).withUID("1"),
			"",
		},
		"of an earlier tenant": {
			fakeCluster{in: both()},
			"a",
			defines("x", pods).withUID("1"),
			defines("x", pods).withUID("2"),
			"spec.roles[0].rules[0]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.w.write(t, c.by, c.was, c.is); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}

// TestEscalatingRules checks that a writer with many rights cannot define a Role that contains a
// right that the writer lacks.
func TestEscalatingRules(t *testing.T) {
	w := &fakeCluster{in: both(
		ruleOf("get,list,watch", "", "pods,pods/log,services,configmaps", ""),
		ruleOf("create,update,patch,delete", "", "pods,services", ""),
		ruleOf("get,update,patch", "", "secrets", "own"),
		ruleOf("get,list", "", "secrets", ","), // the names "" and ""
		ruleOf("get,list,watch,create,update,patch,delete", "rbac.authorization.k8s.io", "roles,rolebindings", ""),
		ruleOf("get", "", "serviceaccounts", ""),
		ruleOf("get,list", "kubetenant.dev", "accessgrants", ""),
		ruleOf("get", "", "*/scale", ""),
	)}
	var held, attacks []rbacv1.PolicyRule
	add := func(to *[]rbacv1.PolicyRule, verbs, groups, resources, names string) {
		*to = append(*to, ruleOf(verbs, groups, resources, names))
	}
	add(&held, "get", "", "pods", "")
	add(&held, "get", "", "pods", "one,two")
	add(&held, "get,patch", "", "secrets", "own")
	add(&held, "create", "rbac.authorization.k8s.io", "rolebindings", "")
	add(&held, "get", "", "deployments/scale", "")
	add(&held, "get", "", "*/scale", "")
	for _, rule := range held {
		if got := w.write(t, "a", nil, defines("x", rule)); got != "" {
			t.Errorf("a right of the writer: %s", got)
		}
	}
	for _, verb := range []string{"*", "deletecollection", "proxy", "use", "impersonate", "Get", ""} {
		add(&attacks, verb, "", "pods", "")
	}
	for _, group := range []string{"*", "apps", "metrics.k8s.io", "rbac.authorization.k8s.io"} {
		add(&attacks, "get", group, "pods", "")
	}
	for _, resource := range []string{
		"*", "*/*", "pods/*", "*/log", "*/exec", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy",
		"pods/ephemeralcontainers", "pods/eviction", "services/proxy", "serviceaccounts/token", "nodes", "nodes/proxy",
		"persistentvolumes", "namespaces", "namespaces/finalize", "users", "groups", "secrets", "secrets/status", "",
	} {
		add(&attacks, "get", "", resource, "")
		add(&attacks, "create", "", strings.Replace(resource, "pods/*", "pods/x", 1), "")
	}
	for _, names := range []string{"other", "own,other", "*", "OWN"} {
		add(&attacks, "get", "", "secrets", names)
	}
	add(&attacks, "list", "", "secrets", "") // a right to the name "" is not a right to all names
	add(&attacks, "delete", "", "secrets", "own")
	add(&attacks, "create", "", "serviceaccounts/token", "default")
	for _, verb := range []string{"bind", "escalate", "*"} {
		for _, resource := range []string{"roles", "clusterroles", "rolebindings"} {
			add(&attacks, verb, "rbac.authorization.k8s.io", resource, "")
			add(&attacks, verb, "rbac.authorization.k8s.io", resource, "cluster-admin")
		}
	}
	for _, resource := range []string{"users", "groups", "serviceaccounts", "userextras/kubetenant.dev/tenant", "uids"} {
		for _, verb := range []string{"impersonate", "impersonate:user-info", "impersonate-on:user-info:get"} {
			add(&attacks, verb, "", resource, "")
			add(&attacks, verb, "authentication.k8s.io", resource, "admin")
		}
	}
	for _, resource := range []string{
		"accessgrants", "accessgrants/status", "tenants", "tenantmembers", "tenantquotas", "retiredtenants",
		"namespacetemplates", "publications", "*",
	} {
		for _, verb := range []string{"create", "update", "patch", "delete", "use"} {
			add(&attacks, verb, "kubetenant.dev", resource, "")
		}
	}
	for _, rule := range attacks {
		if got := w.write(t, "a", nil, defines("x", rule)); !strings.Contains(got, "the caller may not") {
			t.Errorf("%v: %q", rule, got)
		}
		more := append(slices.Clone(held), rule)
		if got := w.write(t, "a", defines("x", held...), defines("x", more...)); !strings.Contains(got, "may not") {
			t.Errorf("added %v: %q", rule, got)
		}
	}
}

// TestDefinedRolesAsUpstream compares the decisions about random rules with those of
// kube-apiserver's escalation check.
func TestDefinedRolesAsUpstream(t *testing.T) {
	r := rand.New(rand.NewPCG(48, 3)) // #nosec G404 -- a test
	some := func(of ...string) string {
		var all []string
		for len(all) == 0 || r.IntN(3) == 0 {
			all = append(all, of[r.IntN(len(of))])
		}
		return strings.Join(all, ",")
	}
	rule := func() rbacv1.PolicyRule {
		names := ""
		if r.IntN(3) == 0 {
			names = some("one", "two", "")
		}
		out := ruleOf(some("get", "list", "*"), some("", "apps", "*"), some("x", "y", "x/s", "y/s", "*/s", "*"), names)
		if out.ResourceNames == nil && r.IntN(10) == 0 {
			out.ResourceNames = []string{""}
		}
		return out
	}
	rules := func() (all []rbacv1.PolicyRule) {
		for range 1 + r.IntN(4) {
			all = append(all, rule())
		}
		return all
	}
	allowed := 0
	for range 5000 {
		w := &fakeCluster{everywhere: rules()[1:], in: map[string][]rbacv1.PolicyRule{"a--db": rules(), "a--web": rules()}}
		role := []rbacv1.PolicyRule{rule()}
		want := true
		for _, ok := range w.in {
			covered, _ := validation.Covers(slices.Concat(w.everywhere, ok), role)
			want = want && covered
		}
		if want {
			allowed++
		}
		if got := w.write(t, "a", nil, defines("x", role...)); (got == "") != want {
			t.Fatalf("%v of a caller with %v and %v: %q, want %v", role, w.everywhere, w.in, got, want)
		}
	}
	if allowed < 100 || allowed > 4900 {
		t.Errorf("%d of 5000 writes are allowed: the comparison is weak", allowed)
	}
}

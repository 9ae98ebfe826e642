// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// readPods returns a request to read pods in a namespace by a tenant's caller. If caller is empty,
// the user has no tenant.
func readPods(caller, namespace string) authorizer.AttributesRecord {
	u := &user.DefaultInfo{Name: "alice"}
	if caller != "" {
		u.Extra = map[string][]string{tenant.ExtraKey: {caller}}
	}
	return authorizer.AttributesRecord{
		User:            u,
		Verb:            "get",
		Resource:        "pods",
		Namespace:       namespace,
		Name:            "p",
		ResourceRequest: true,
	}
}

func allowAll(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// TestDecisionsAreObserved checks that each decision is reported once, with the caller's tenant and
// the reason. In shadow mode, the reported reason is that of the denial without shadow mode.
func TestDecisionsAreObserved(t *testing.T) {
	for _, c := range []struct {
		name             string
		shadow           bool
		caller, in       string
		decision         authorizer.Decision
		want             authz.Verdict
		reason           authz.Reason
		tenant, nsTenant string
	}{
		{"own", false, "a", "a--web", authorizer.DecisionAllow, authz.Delegated, authz.ReasonNone, "a", "a"},
		{"foreign", false, "a", "b--web", authorizer.DecisionDeny, authz.Denied, authz.ReasonNotOwned, "a", "b"},
		{"no tenant", false, "", "b--web", authorizer.DecisionDeny, authz.Denied, authz.ReasonNoTenant, "", ""},
		{
			"foreign, shadow mode",
			true,
			"a",
			"b--web",
			authorizer.DecisionAllow,
			authz.ShadowDenied,
			authz.ReasonNotOwned,
			"a",
			"b",
		},
		{
			"no tenant, shadow mode",
			true,
			"",
			"b--web",
			authorizer.DecisionAllow,
			authz.ShadowDenied,
			authz.ReasonNoTenant,
			"",
			"",
		},
		{
			"failed lookup, shadow mode",
			true,
			"a",
			"away",
			authorizer.DecisionAllow,
			authz.ShadowDenied,
			authz.ReasonOwnerUnknown,
			"a",
			"",
		},
		{
			"system", false, "system", "b--web", authorizer.DecisionAllow, authz.Delegated, authz.ReasonNone, "system", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []authz.Outcome
			o := options(namespaceLabels)
			o.Shadow = c.shadow
			o.Observe = func(_ context.Context, out authz.Outcome) { seen = append(seen, out) }
			decision, _, err := authz.New(o, authorizer.AuthorizerFunc(allowAll), nil).Authorize(t.Context(),
				readPods(c.caller, c.in))
			if err != nil || decision != c.decision || len(seen) != 1 {
				t.Fatalf("%v, %v, observed %v", decision, err, seen)
			}
			if got := seen[0]; got.Verdict != c.want || got.Reason != c.reason || got.Caller.String() != c.tenant ||
				got.Owner.String() != c.nsTenant {
				t.Errorf("observed %+v", got)
			}
		})
	}
}

// TestShadowModeDoesNotChangeUser checks that the delegate gets the user unchanged, even if the
// user's identity is invalid.
func TestShadowModeDoesNotChangeUser(t *testing.T) {
	o := options(namespaceLabels)
	o.Shadow = true
	attrs := readPods("a", "b--web")
	attrs.User = &user.DefaultInfo{Name: "bob", Extra: map[string][]string{tenant.ExtraKey: {"a", "b"}}}
	b := authz.New(o,
		authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser() != attrs.User {
				t.Errorf("the delegate gets user %v", a.GetUser())
			}
			return authorizer.DecisionNoOpinion, "", nil
		}), nil)
	if d, reason, err := b.Authorize(t.Context(), attrs); d != authorizer.DecisionNoOpinion || reason != "" || err != nil {
		t.Errorf("%v %q %v", d, reason, err)
	}
}

// TestStale checks that tenants' callers are denied every request and get no rules while the
// caches are outdated, even if an exception applies. A caller of the system tenant that is not a
// service account, and a caller without a tenant, are not affected.
func TestStale(t *testing.T) {
	o := options(namespaceLabels)
	o.Stale = func() bool { return true }
	o.Exceptions = []authz.Exception{(&exceptionRecorder{allow: true}).exception()}
	rules := rulesFunc(func() ([]authorizer.ResourceRuleInfo, error) {
		return []authorizer.ResourceRuleInfo{
			&authorizer.DefaultResourceRuleInfo{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		}, nil
	})
	b := authz.New(o, authorizer.AuthorizerFunc(allowAll), rules)
	for _, namespace := range []string{"a--web", "b--web"} {
		if d, reason, err := b.Authorize(t.Context(), readPods("a", namespace)); d != authorizer.DecisionDeny ||
			reason != authz.ReasonStale.String() || err != nil {
			t.Errorf("%s: %v %q %v", namespace, d, reason, err)
		}
	}
	if d, _, _ := b.Authorize(t.Context(), readPods("system", "a--web")); d != authorizer.DecisionAllow {
		t.Errorf("caller of the system tenant: %v", d)
	}
	probe := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: user.Anonymous}, Verb: "get", Path: "/healthz"}
	if d, _, _ := b.Authorize(t.Context(), probe); d != authorizer.DecisionAllow {
		t.Errorf("health probe: %v", d)
	}
	resources, _, incomplete, err := b.RulesFor(t.Context(), readPods("a", "").User, "a--web")
	if len(resources) != 0 || !incomplete || err == nil || err.Error() != authz.ReasonStale.String() {
		t.Errorf("rules %v, incomplete %t, %v", resources, incomplete, err)
	}
}

// rulesFunc is a rule resolver.
type rulesFunc func() ([]authorizer.ResourceRuleInfo, error)

func (f rulesFunc) RulesFor(
	context.Context, user.Info, string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := f()
	return rules, nil, false, err
}

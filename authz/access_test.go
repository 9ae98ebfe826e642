// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// optionsWithAccess returns options with the given access level for callers of tenant a.
func optionsWithAccess(access authz.Access) authz.Options {
	o := options(namespaceLabels)
	o.Access = func(id tenant.ID) authz.Access {
		if id.String() == "a" {
			return access
		}
		return authz.AccessOpen
	}
	return o
}

// accessName returns the name of the subtest for an access level.
func accessName(access authz.Access) string {
	return map[authz.Access]string{
		authz.AccessOpen:     "open",
		authz.AccessReadOnly: "read-only",
		authz.AccessClosed:   "closed",
		authz.AccessNone:     "no Tenant",
		authz.AccessRetired:  "retired",
		authz.AccessUnknown:  "unknown",
		authz.AccessOpen + 1: "undefined",
	}[access]
}

// TestRulesByAccess checks that RulesFor lists only the rules that the access level allows.
func TestRulesByAccess(t *testing.T) {
	r := &fixedRules{resources: []authorizer.ResourceRuleInfo{
		rule("get,create,delete,deletecollection", "", "pods"), rule("get,create", "", "pods/exec"),
		rule("get", "", "pods/log"), rule("*", "apps", "deployments"),
		rule("list,create", "storage.k8s.io", "storageclasses"),
		rule("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
	}}
	for access, want := range map[authz.Access][]string{
		authz.AccessOpen: {
			"get,create,delete,deletecollection /pods", "get,create /pods/exec", "get /pods/log",
			"get,list,watch,create,update,patch,delete,deletecollection apps/deployments",
			"list storage.k8s.io/storageclasses", "create authorization.k8s.io/selfsubjectaccessreviews",
		},
		authz.AccessReadOnly: {
			"get,delete /pods", "get /pods/log", "get,list,watch,delete apps/deployments", "list storage.k8s.io/storageclasses",
			"create authorization.k8s.io/selfsubjectaccessreviews",
		},
		authz.AccessClosed:   nil,
		authz.AccessNone:     nil,
		authz.AccessRetired:  nil,
		authz.AccessUnknown:  nil,
		authz.AccessOpen + 1: nil,
	} {
		t.Run(accessName(access), func(t *testing.T) {
			resources, _, incomplete, err := authz.New(optionsWithAccess(access), nil, r).
				RulesFor(t.Context(), callerOf("a"), "a--web")
			var got []string
			for _, rule := range resources {
				verbs := ""
				for i, verb := range rule.GetVerbs() {
					verbs += map[bool]string{true: ","}[i > 0] + verb
				}
				got = append(got, verbs+" "+rule.GetAPIGroups()[0]+"/"+rule.GetResources()[0])
			}
			if diff := cmp.Diff(want, got); diff != "" || !incomplete || err == nil {
				t.Errorf("%s, incomplete %t, %v", diff, incomplete, err)
			}
		})
	}
}

// TestPathsByAccess checks that rules about paths are reduced to reads with [authz.AccessReadOnly],
// and removed with [authz.AccessClosed].
func TestPathsByAccess(t *testing.T) {
	r := &fixedRules{paths: []authorizer.NonResourceRuleInfo{
		&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"*"}, NonResourceURLs: []string{"/api"}},
		&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get", "post"}, NonResourceURLs: []string{"/apis"}},
		&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"post"}, NonResourceURLs: []string{"/openapi/v3"}},
	}}
	for access, want := range map[authz.Access][]string{
		authz.AccessOpen:     {"[*] [/api]", "[get post] [/apis]", "[post] [/openapi/v3]"},
		authz.AccessReadOnly: {"[get head] [/api]", "[get] [/apis]"},
		authz.AccessClosed:   nil,
	} {
		t.Run(accessName(access), func(t *testing.T) {
			_, paths, incomplete, _ := authz.New(optionsWithAccess(access), nil, r).
				RulesFor(t.Context(), callerOf("a"), "a--web")
			var got []string
			for _, rule := range paths {
				got = append(got, fmt.Sprint(rule.GetVerbs(), " ", rule.GetNonResourceURLs()))
			}
			if diff := cmp.Diff(want, got); diff != "" || incomplete != (access != authz.AccessOpen) {
				t.Errorf("%s, incomplete %t", diff, incomplete)
			}
		})
	}
}

// TestRulesInShadowMode checks that RulesFor lists all rules in shadow mode. It lists none if the
// access level denies requests in shadow mode too.
func TestRulesInShadowMode(t *testing.T) {
	r := &fixedRules{resources: []authorizer.ResourceRuleInfo{rule("get", "", "pods")}}
	for access, want := range map[authz.Access]int{
		authz.AccessOpen:     1,
		authz.AccessNone:     1,
		authz.AccessUnknown:  1,
		authz.AccessReadOnly: 0,
		authz.AccessClosed:   0,
		authz.AccessRetired:  0,
	} {
		t.Run(accessName(access), func(t *testing.T) {
			o := optionsWithAccess(access)
			o.Shadow = true
			resources, _, incomplete, err := authz.New(o, nil, r).RulesFor(t.Context(), callerOf("a"), "b--web")
			if len(resources) != want || (err == nil) != (want == 1) || incomplete && want == 1 {
				t.Errorf("%d rules, incomplete %t, %v", len(resources), incomplete, err)
			}
		})
	}
}

// TestAccessInShadowMode checks that shadow mode denies a request only if an administrator has
// restricted or deleted the tenant. It does not deny the request if the access level is unknown
// or the tenant does not exist.
func TestAccessInShadowMode(t *testing.T) {
	for access, want := range map[authz.Access]authorizer.Decision{
		authz.AccessClosed:   authorizer.DecisionDeny,
		authz.AccessReadOnly: authorizer.DecisionDeny,
		authz.AccessRetired:  authorizer.DecisionDeny,
		authz.AccessNone:     authorizer.DecisionAllow,
		authz.AccessUnknown:  authorizer.DecisionAllow,
		authz.AccessOpen:     authorizer.DecisionAllow,
	} {
		t.Run(accessName(access), func(t *testing.T) {
			o := optionsWithAccess(access)
			o.Shadow = true
			write := readPods("a", "a--web")
			write.Verb = "create"
			b := authz.New(o, authorizer.AuthorizerFunc(allowAll), nil)
			if d, reason, err := b.Authorize(t.Context(), write); d != want || err != nil {
				t.Errorf("%v %q %v", d, reason, err)
			}
			// Another reason for a denial does not override the access level.
			write.User = &user.DefaultInfo{Name: "alice", Groups: []string{"system:foo"}, Extra: callerOf("a").GetExtra()}
			if d, reason, err := b.Authorize(t.Context(), write); d != want || err != nil {
				t.Errorf("caller in a system group: %v %q %v", d, reason, err)
			}
		})
	}
}

// TestAccessAppliesOnlyToTenants checks that Access is not called for callers of the system
// tenant or without a valid tenant.
func TestAccessAppliesOnlyToTenants(t *testing.T) {
	o := options(namespaceLabels)
	o.Access = func(id tenant.ID) authz.Access {
		t.Errorf("Access was called for %q", id)
		return authz.AccessUnknown
	}
	o.UnboundPaths = []string{"/healthz"}
	b := authz.New(o, authorizer.AuthorizerFunc(allowAll), nil)
	if d, reason, _ := b.Authorize(t.Context(), readPods("system", "a--web")); d != authorizer.DecisionAllow {
		t.Errorf("caller of the system tenant: %v %q", d, reason)
	}
	if d, reason, _ := b.Authorize(t.Context(),
		authorizer.AttributesRecord{User: callerOf(""), Verb: "get", Path: "/healthz"}); d == authorizer.DecisionAllow {
		t.Errorf("caller without a valid tenant: %v %q", d, reason)
	}
}

// TestTenantSessionsEnd checks that EndTenants ends all sessions of a tenant's callers, on every
// path.
func TestTenantSessionsEnd(t *testing.T) {
	a := tenanttest.ID(t, "a")
	for _, target := range []string{
		"/api/v1/namespaces/a--web/pods?watch=true", "/api/v1/pods?watch=true", "/api/v1/namespaces?watch=true",
		"/api/v1/namespaces/a--web/pods/p/log?follow=true",
	} {
		for id, want := range map[string]bool{"a": true, "b": false, "system": false} {
			t.Run(id, func(t *testing.T) {
				s := allowingServer(labeledOptions())
				target := target
				if id == "b" {
					target = "/api/v1/pods?watch=true"
				}
				s.handle = func(r *http.Request) {
					s.sessions.EndTenants(isTenant(a))
					if ended := r.Context().Err() != nil; ended != want {
						t.Errorf("%s of %s: ended %t", target, id, ended)
					}
				}
				if got, code := s.send(t, callerOf(id), http.MethodGet, target); got == nil {
					t.Errorf("%s of %s: %d", target, id, code)
				}
			})
		}
	}
}

// TestExceptionSessionsEndWithOwnersAccess checks that a stricter access level of the owner ends
// only those sessions of other tenants that an exception allowed.
func TestExceptionSessionsEndWithOwnersAccess(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		ending string
		want   bool
	}{
		"the owner's access":             {"/api/v1/namespaces/b--web/pods?watch=true", "b", true},
		"a third tenant's access":        {"/api/v1/namespaces/b--web/pods?watch=true", "c", false},
		"own namespace":                  {"/api/v1/namespaces/a--web/pods?watch=true", "b", false},
		"namespace of the system tenant": {"/api/v1/namespaces/kube-system/pods?watch=true", "b", false},
		"all namespaces":                 {"/api/v1/pods?watch=true", "b", false},
		"the caller's own access":        {"/api/v1/namespaces/b--web/pods?watch=true", "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := labeledOptions()
			o.Exceptions = []authz.Exception{(&exceptionRecorder{allow: true}).exception()}
			s := allowingServer(o)
			s.handle = func(r *http.Request) {
				s.sessions.EndTenants(isTenant(tenanttest.ID(t, c.ending)))
				if ended := r.Context().Err() != nil; ended != c.want {
					t.Errorf("ended %t", ended)
				}
			}
			if got, code := s.send(t, callerOf("a"), http.MethodGet, c.target); got == nil {
				t.Errorf("%d", code)
			}
		})
	}
}

// TestCallersOfDeletedTenants checks that callers of a deleted tenant may make only the requests of
// callers without a tenant, also in shadow mode.
func TestCallersOfDeletedTenants(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		o := optionsWithAccess(authz.AccessRetired)
		o.Shadow, o.UnboundPaths = shadow, []string{"/healthz"}
		b := authz.New(o, authorizer.AuthorizerFunc(allowAll), nil)
		self := authorizer.AttributesRecord{
			User:            callerOf("a"),
			Verb:            "create",
			APIGroup:        "authentication.k8s.io",
			Resource:        "selfsubjectreviews",
			ResourceRequest: true,
		}
		foreign := &user.DefaultInfo{Name: "alice", Groups: []string{"system:foo"}, Extra: callerOf("a").GetExtra()}
		for what, c := range map[string]struct {
			asked authorizer.Attributes
			want  authorizer.Decision
		}{
			"path for every caller": {
				authorizer.AttributesRecord{User: callerOf("a"), Verb: "get", Path: "/healthz"}, authorizer.DecisionAllow,
			},
			"path for every caller, caller in a system group": {
				authorizer.AttributesRecord{User: foreign, Verb: "get", Path: "/healthz"}, authorizer.DecisionDeny,
			},
			"discovery": {
				authorizer.AttributesRecord{User: callerOf("a"), Verb: "get", Path: "/api"}, authorizer.DecisionDeny,
			},
			"namespace of the tenant":  {readPods("a", "a--web"), authorizer.DecisionDeny},
			"self review":              {self, authorizer.DecisionDeny},
			"caller of another tenant": {readPods("b", "b--web"), authorizer.DecisionAllow},
		} {
			t.Run(what, func(t *testing.T) {
				if d, reason, err := b.Authorize(t.Context(), c.asked); d != c.want || err != nil ||
					d == authorizer.DecisionDeny && reason != authz.ReasonRetired.String() {
					t.Errorf("%s (shadow %t): %v %q %v", what, shadow, d, reason, err)
				}
			})
		}
	}
}

// TestUndatedCertificates checks certificates that kube-apiserver verified. Their time of issue is
// unknown, so they are denied if an earlier tenant had the name, unless the tenant accepts undated
// credentials.
func TestUndatedCertificates(t *testing.T) {
	certified := &user.DefaultInfo{
		Name:   "alice",
		Groups: []string{"tenant:a"},
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=00"}},
	}
	for name, c := range map[string]struct {
		lineage tenant.Lineage
		want    authorizer.Decision
	}{
		"no earlier tenant": {tenant.Lineage{UID: "new"}, authorizer.DecisionAllow},
		"earlier tenant": {
			tenant.Lineage{UID: "new", Retired: []tenant.Retired{{UID: "old"}}}, authorizer.DecisionDeny,
		},
		// Only the access level denies these callers.
		"deleted tenant": {tenant.Lineage{Retired: []tenant.Retired{{UID: "old"}}}, authorizer.DecisionAllow},
		"accepts undated credentials": {
			tenant.Lineage{UID: "new", AcceptUndated: true, Retired: []tenant.Retired{{UID: "old"}}}, authorizer.DecisionAllow,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, shadow := range []bool{false, true} {
				o := options(namespaceLabels)
				o.Shadow = shadow
				subjects := *o.Subjects
				subjects.FromGroups, subjects.Lineage = true, func(tenant.ID) tenant.Lineage { return c.lineage }
				o.Subjects = &subjects
				attrs := readPods("a", "a--web")
				attrs.User = certified
				d, reason, err := authz.New(o, authorizer.AuthorizerFunc(allowAll), nil).Authorize(t.Context(), attrs)
				if d != c.want || err != nil || d == authorizer.DecisionDeny && reason != authz.ReasonUndated.String() {
					t.Errorf("%s (shadow %t): %v %q %v", name, shadow, d, reason, err)
				}
			}
		})
	}
}

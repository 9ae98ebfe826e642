// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// manyRights returns TenantMembers that add n rights, in Roles of 1000 rules each.
func manyRights(n int) *members {
	d := &members{tenantWith(), nil}
	for i := range n {
		d.and(fmt.Sprint("x", i/1000), ruleOf("get", "", fmt.Sprint("r", i), ""))
	}
	return d
}

// namespacesWith returns n namespaces in which the caller has rules.
func namespacesWith(n int, rules ...rbacv1.PolicyRule) map[string][]rbacv1.PolicyRule {
	in := map[string][]rbacv1.PolicyRule{}
	for i := range n {
		in[fmt.Sprint("a--", i)] = rules
	}
	return in
}

// TestNumberOfChecksIsLimited checks that the number of checks for one write is limited.
func TestNumberOfChecksIsLimited(t *testing.T) {
	const most, mostOfTenant = 2000, 500
	reads := ruleOf("get", "", "*", "")
	escalates := ruleOf("escalate", "rbac.authorization.k8s.io", "roles", "")
	everywhere := fakeCluster{everywhere: []rbacv1.PolicyRule{reads}}
	large := slices.Repeat([]string{"get"}, 50_000)
	for name, c := range map[string]struct {
		by   string // "a" if empty
		w    fakeCluster
		is   *members
		want string
	}{
		"maximum":          {"", everywhere, manyRights(mostOfTenant), ""},
		"maximum, system":  {"system:x", everywhere, manyRights(most), ""},
		"too many":         {"", everywhere, manyRights(mostOfTenant + 1), "more than 500 combinations"},
		"too many, system": {"system:x", everywhere, manyRights(most + 1), "more than 2000 combinations"},
		"one rule, many times": {
			"", everywhere, defines("x", slices.Repeat([]rbacv1.PolicyRule{reads}, most+1)...), "",
		},
		"one right, many times in a rule": {
			"", everywhere,
			defines("x", rbacv1.PolicyRule{
				Verbs:         large,
				APIGroups:     slices.Repeat([]string{""}, 50_000),
				Resources:     large,
				ResourceNames: large,
			}), "",
		},
		"many names": {
			"", fakeCluster{in: namespacesWith(1, reads)}, defines("x", ruleOf("get", "", "x", strings.Repeat("n,", 9)+"n")), "",
		},
		"maximum in namespaces": {"", fakeCluster{in: namespacesWith(5, reads)}, manyRights(100), ""},
		"too many in namespaces": {
			"",
			fakeCluster{in: namespacesWith(6, reads)},
			manyRights(100),
			"need more than 500 checks in 6 namespaces. In one update, add at most 83 combinations",
		},
		"maximum in namespaces, system": {
			"system:x", fakeCluster{in: namespacesWith(20, reads)}, manyRights(100), "",
		},
		"too many in namespaces, system": {
			"system:x",
			fakeCluster{in: namespacesWith(21, reads)},
			manyRights(100),
			"need more than 2000 checks in 21 namespaces",
		},
		"too many, but escalate": {"", fakeCluster{in: namespacesWith(21, escalates)}, manyRights(100), ""},
		"too many, but escalate in most": {
			"",
			fakeCluster{in: namespacesWithout(namespacesWith(21, escalates), "a--7")},
			manyRights(100),
			"need more than 500 checks",
		},
		"too many namespaces": {
			"",
			fakeCluster{in: namespacesWith(mostOfTenant+1, escalates)},
			manyRights(1),
			"has more than 500 namespaces: let a caller with these rights",
		},
		"many namespaces, one right": {"", fakeCluster{in: namespacesWith(mostOfTenant, reads)}, manyRights(1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			by, bound := "a", 2*mostOfTenant
			if c.by != "" {
				by, bound = c.by, 2*most
			}
			got := c.w.write(t, by, nil, c.is)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%.300s, want %q", got, c.want)
			}
			if n := c.w.checks.Load(); n > int64(bound) {
				t.Errorf("%d checks", n)
			}
			if len(got) > 4000 {
				t.Errorf("the error has %d bytes", len(got))
			}
		})
	}
}

// TestNumberOfAuthorizerCalls checks the maximum number of calls of the authorizer for one write.
func TestNumberOfAuthorizerCalls(t *testing.T) {
	reads := ruleOf("get", "", "*", "")
	escalates := ruleOf("escalate", "rbac.authorization.k8s.io", "roles", "")
	twice := &members{tenantWith(), nil}
	for i := range 10 {
		twice.and(fmt.Sprint("x", i), ruleOf("get,get", ",", "pods,pods,pods", ""), ruleOf("get", "", "pods", ""))
	}
	for name, c := range map[string]struct {
		w    fakeCluster
		is   *members
		most int64
	}{
		// The first checks are for the whole cluster. These are 4 parallel rights and one
		// escalation.
		"rights in each namespace":     {fakeCluster{in: namespacesWith(5, reads)}, manyRights(100), 4 + 1 + 5*100},
		"no rights":                    {fakeCluster{in: namespacesWith(5)}, manyRights(100), 4 + 1 + 5*(100+1)},
		"no rights in many namespaces": {fakeCluster{in: namespacesWith(50)}, manyRights(10), 4 + 1 + 5*(10+1)},
		"no rights and too many":       {fakeCluster{in: namespacesWith(50)}, manyRights(500), 4 + 1 + 5},
		"rights in the whole cluster":  {fakeCluster{everywhere: []rbacv1.PolicyRule{reads}}, manyRights(100), 100},
		"escalate in the whole cluster": {
			fakeCluster{everywhere: []rbacv1.PolicyRule{escalates}},
			manyRights(100),
			100 + 1,
		},
		"escalate in each namespace": {
			fakeCluster{in: namespacesWith(5, escalates)},
			manyRights(100),
			4 + 1 + 5*(100+1),
		},
		"equal rights of Roles":           {fakeCluster{in: namespacesWith(5, reads)}, twice, 1 + 1 + 5},
		"equal rights, escalate of Roles": {fakeCluster{in: namespacesWith(5, escalates)}, twice, 1 + 1 + 5*(1+10)},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.w.write(t, "a", nil, c.is)
			if n := c.w.checks.Load(); n > c.most {
				t.Errorf("%d checks, want at most %d: %.300s", n, c.most, got)
			}
			if has := !strings.HasPrefix(name, "no rights"); has != (got == "") {
				t.Errorf("the error is %.300s", got)
			}
		})
	}
}

// namespacesWithout removes the rules in one namespace.
func namespacesWithout(in map[string][]rbacv1.PolicyRule, name string) map[string][]rbacv1.PolicyRule {
	in[name] = nil
	return in
}

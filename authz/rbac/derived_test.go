// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// derivedOptions returns options with a derived role for callers of tenant a. role is the name of
// its ClusterRole. The tenant of a caller is the value of the tenant extra.
func derivedOptions(role string, subjects ...rbacv1.Subject) rbac.Options {
	return rbac.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner:   func(context.Context, authorizer.Attributes) (tenant.ID, error) { return tenant.ID{}, nil },
		DerivedRoles: func(id tenant.ID) []rbac.DerivedRole {
			if id.IsSystem() {
				panic("called for the system tenant")
			}
			if id.String() != "a" {
				return nil
			}
			return []rbac.DerivedRole{{Source: `Tenant "a"`, ClusterRole: role, Subjects: subjects}}
		},
	}
}

func callerOf(id, name string, groups ...string) *user.DefaultInfo {
	u := &user.DefaultInfo{Name: name, Groups: groups}
	if id != "" {
		u.Extra = map[string][]string{tenant.ExtraKey: {id}}
	}
	return u
}

// TestDerived checks that a derived role allows requests of its subjects if they belong to the
// tenant, and that its rules are listed.
func TestDerived(t *testing.T) {
	user, group, account := rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind
	subjects := []rbacv1.Subject{
		{Kind: user, Name: "peter"},
		{Kind: group, Name: "ops"},
		{Kind: account, Namespace: "a--web", Name: "ci"},
		{Kind: account, Name: "nowhere"},
		{Kind: "Robot", Name: "robot"},
	}
	for _, c := range []struct {
		name   string
		caller *struct{ id, user, group string }
		reason string
	}{
		{
			"an admin by name",
			&struct{ id, user, group string }{"a", "peter", ""},
			`RBAC: allowed by Tenant "a" of ClusterRole "reader" to User "peter"`,
		},
		{
			"an admin by group",
			&struct{ id, user, group string }{"a", "mary", "ops"},
			`RBAC: allowed by Tenant "a" of ClusterRole "reader" to Group "ops"`,
		},
		{
			"a service account", &struct{ id, user, group string }{"a", "system:serviceaccount:a--web:ci", ""},
			`RBAC: allowed by Tenant "a" of ClusterRole "reader" to ServiceAccount "ci/a--web"`,
		},
		{"another caller of the tenant", &struct{ id, user, group string }{"a", "mary", "dev"}, ""},
		{"a group named as a user", &struct{ id, user, group string }{"a", "ops", "peter"}, ""},
		{"a caller of that name of another tenant", &struct{ id, user, group string }{"b", "peter", "ops"}, ""},
		{"a caller of that name of the system tenant", &struct{ id, user, group string }{"system", "peter", "ops"}, ""},
		{"a caller of that name without a tenant", &struct{ id, user, group string }{"", "peter", "ops"}, ""},
		{"a caller of that name of an invalid tenant", &struct{ id, user, group string }{"all", "peter", "ops"}, ""},
		{"an account without a namespace", &struct{ id, user, group string }{"a", "system:serviceaccount::nowhere", ""}, ""},
		{"a subject of an unknown kind", &struct{ id, user, group string }{"a", "robot", "robot"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := rbac.NewIndex()
			x.Set(role("reader", "get"))
			e := rbac.New(x, derivedOptions("reader", subjects...))
			u := callerOf(c.caller.id, c.caller.user, c.caller.group)
			request := podRequest("", "get", "")
			request.User = u
			decision, reason, err := e.Authorize(t.Context(), request)
			if reason != c.reason || (decision == authorizer.DecisionAllow) != (c.reason != "") || err != nil {
				t.Errorf("Authorize() = %v, %q, %v; want %q", decision, reason, err, c.reason)
			}
			rules, _, incomplete, err := e.RulesFor(t.Context(), u, "a--web")
			if (len(rules) > 0) != (c.reason != "") || incomplete || err != nil {
				t.Errorf("RulesFor() = %v, incomplete %t, %v", rules, incomplete, err)
			}
			request.Verb = "delete"
			if decision, _, _ := e.Authorize(t.Context(), request); decision == authorizer.DecisionAllow {
				t.Error("the role does not have this verb")
			}
		})
	}
}

// TestCurrentClusterRoleDecides checks that a derived role has the rules of the current
// ClusterRole. A missing ClusterRole allows nothing. A Role with the same name does not replace the
// ClusterRole.
func TestCurrentClusterRoleDecides(t *testing.T) {
	x := rbac.NewIndex()
	e := rbac.New(x, derivedOptions("reader", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "peter"}))
	request := podRequest("", "get", "ns")
	request.User = callerOf("a", "peter")
	x.Set(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "reader"}, Rules: role("reader", "get").Rules})
	if allows(t, e, request) {
		t.Error("a Role with that name allows the request")
	}
	x.Set(role("reader", "get"))
	if !allows(t, e, request) {
		t.Error("the ClusterRole does not allow the request")
	}
	x.Set(role("reader", "list"))
	if allows(t, e, request) {
		t.Error("an earlier version of the ClusterRole allows the request")
	}
	x.Delete(role("reader", "list"))
	request.Verb = "list"
	if allows(t, e, request) {
		t.Error("a deleted ClusterRole allows the request")
	}
}

// TestDerivedRoleOfEveryCaller checks that a derived role applies to every caller of the tenant
// only if EveryCaller is set. If the lookup of the tenant fails, the role does not apply.
func TestDerivedRoleOfEveryCaller(t *testing.T) {
	x := rbac.NewIndex()
	x.Set(role("reader", "get"))
	o := derivedOptions("reader")
	request := podRequest("", "get", "ns")
	request.User = callerOf("a", "mary")
	if allows(t, rbac.New(x, o), request) {
		t.Error("a derived role without subjects allows the request")
	}
	derive := o.DerivedRoles
	o.DerivedRoles = func(id tenant.ID) []rbac.DerivedRole {
		all := derive(id)
		for i := range all {
			all[i].EveryCaller = true
		}
		return all
	}
	e := rbac.New(x, o)
	if _, reason, _ := e.Authorize(t.Context(), request); !strings.HasSuffix(reason, " to every caller of the tenant") {
		t.Errorf("every caller: %q", reason)
	}
	o.Subject = func(context.Context, user.Info) (tenant.ID, error) { return tenanttest.ID(t, "a"), errors.New("down") }
	if allows(t, rbac.New(x, o), request) {
		t.Error("a tenant that could not be looked up allows the request")
	}
}

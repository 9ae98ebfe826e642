// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// TestRemoveRBAC checks that RBAC is removed from the authorization modes if no mode before it can
// deny, and that the authorizer without RBAC adds no reason to denials.
func TestRemoveRBAC(t *testing.T) {
	for _, c := range []struct {
		modes, left []string
		config      string
		want        rbacRemoval
	}{
		{[]string{"RBAC"}, []string{"AlwaysDeny"}, "", rbacWasOnlyMode},
		{[]string{"Node", "RBAC"}, []string{"Node"}, "", rbacRemoved},
		{[]string{"Node", "RBAC", "Webhook"}, []string{"Node", "Webhook"}, "", rbacRemoved},
		{[]string{"Node", "Webhook", "RBAC"}, []string{"Node", "Webhook", "RBAC"}, "", rbacNotRemoved},
		{[]string{"AlwaysAllow"}, []string{"AlwaysAllow"}, "", rbacNotRemoved},
		{nil, nil, "authorization.yaml", rbacNotRemoved},
	} {
		authorization := &options.BuiltInAuthorizationOptions{
			Modes:                          slices.Clone(c.modes),
			AuthorizationConfigurationFile: c.config,
		}
		if got := removeRBAC(authorization); got != c.want || !slices.Equal(authorization.Modes, c.left) {
			t.Errorf("%v: %v, left %v", c.modes, got, authorization.Modes)
		}
	}
	server := authorizer.AuthorizerFunc(nil)
	alone := rbacWasOnlyMode.withoutRBAC(server)
	for groups, want := range map[string]authorizer.Decision{
		user.SystemPrivilegedGroup: authorizer.DecisionAllow,
		"dev":                      authorizer.DecisionNoOpinion,
	} {
		t.Run(groups, func(t *testing.T) {
			d, reason, err := alone.Authorize(t.Context(),
				authorizer.AttributesRecord{User: &user.DefaultInfo{Groups: []string{groups}}})
			if d != want || reason != "" || err != nil {
				t.Errorf("%v, %q, %v", d, reason, err)
			}
		})
	}
}

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
	for name, c := range map[string]struct {
		modes, left []string
		config      string
		want        rbacRemoval
	}{
		"the only mode":  {[]string{"RBAC"}, []string{"AlwaysDeny"}, "", rbacWasOnlyMode},
		"the last mode":  {[]string{"Node", "RBAC"}, []string{"Node"}, "", rbacRemoved},
		"before Webhook": {[]string{"Node", "RBAC", "Webhook"}, []string{"Node", "Webhook"}, "", rbacRemoved},
		"after Webhook": {
			[]string{"Node", "Webhook", "RBAC"},
			[]string{"Node", "Webhook", "RBAC"},
			"",
			rbacNotRemoved,
		},
		"without RBAC":              {[]string{"AlwaysAllow"}, []string{"AlwaysAllow"}, "", rbacNotRemoved},
		"with a configuration file": {nil, nil, "authorization.yaml", rbacNotRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			authorization := &options.BuiltInAuthorizationOptions{
				Modes:                          slices.Clone(c.modes),
				AuthorizationConfigurationFile: c.config,
			}
			if got := removeRBAC(authorization); got != c.want || !slices.Equal(authorization.Modes, c.left) {
				t.Errorf("%v, left %v", got, authorization.Modes)
			}
		})
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

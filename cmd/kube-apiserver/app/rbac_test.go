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

// TestTakeRBAC checks that RBAC is removed if no mode before it can deny, and that its replacement
// adds no reason to denials.
func TestTakeRBAC(t *testing.T) {
	for _, c := range []struct {
		modes, left []string
		config      string
		want        takenRBAC
	}{
		{[]string{"RBAC"}, []string{"AlwaysDeny"}, "", takenLast},
		{[]string{"Node", "RBAC"}, []string{"Node"}, "", takenOut},
		{[]string{"Node", "RBAC", "Webhook"}, []string{"Node", "Webhook"}, "", takenOut},
		{[]string{"Node", "Webhook", "RBAC"}, []string{"Node", "Webhook", "RBAC"}, "", notTaken},
		{[]string{"AlwaysAllow"}, []string{"AlwaysAllow"}, "", notTaken},
		{nil, nil, "authorization.yaml", notTaken},
	} {
		authorization := &options.BuiltInAuthorizationOptions{
			Modes:                          slices.Clone(c.modes),
			AuthorizationConfigurationFile: c.config,
		}
		if got := takeRBAC(authorization); got != c.want || !slices.Equal(authorization.Modes, c.left) {
			t.Errorf("%v: %v, left %v", c.modes, got, authorization.Modes)
		}
	}
	server := authorizer.AuthorizerFunc(nil)
	alone := takenLast.others(server)
	for groups, want := range map[string]authorizer.Decision{
		user.SystemPrivilegedGroup: authorizer.DecisionAllow,
		"dev":                      authorizer.DecisionNoOpinion,
	} {
		d, reason, err := alone.Authorize(t.Context(),
			authorizer.AttributesRecord{User: &user.DefaultInfo{Groups: []string{groups}}})
		if d != want || reason != "" || err != nil {
			t.Errorf("%s: %v, %q, %v", groups, d, reason, err)
		}
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/kubetenant/kubetenant"
	indexed "github.com/kubetenant/kubetenant/authz/rbac"
)

// rbacRemoval is the result of removeRBAC.
type rbacRemoval int

const (
	rbacNotRemoved  rbacRemoval = iota
	rbacRemoved                 // other modes remain
	rbacWasOnlyMode             // no other mode remains
)

// removeRBAC removes RBAC from the server's authorization modes, so that the TenancyConfiguration
// can select the RBAC evaluator. RBAC is then called before all other modes. The decisions are the
// same, because only Webhook can deny a request. RBAC is not removed if it follows Webhook. It is
// also not removed with --authorization-config, because the order in that file can change at any
// time.
func removeRBAC(o *options.BuiltInAuthorizationOptions) rbacRemoval {
	if o == nil || o.AuthorizationConfigurationFile != "" {
		return rbacNotRemoved
	}
	at, webhook := slices.Index(o.Modes, modes.ModeRBAC), slices.Index(o.Modes, modes.ModeWebhook)
	if at < 0 || webhook >= 0 && webhook < at {
		return rbacNotRemoved
	}
	o.Modes = slices.Delete(slices.Clone(o.Modes), at, at+1)
	if len(o.Modes) == 0 {
		o.Modes = []string{modes.ModeAlwaysDeny} // without any mode, the server would allow all requests
		return rbacWasOnlyMode
	}
	return rbacRemoved
}

// withoutRBAC returns the server's own authorizer without RBAC. If RBAC was the only mode, it
// returns the authorizer of the group system:masters, which every server has (k8s.io/kubernetes
// pkg/kubeapiserver/authorizer, v1.37.1). It does not return server then, because the mode
// AlwaysDeny would add a reason to each denial.
func (t rbacRemoval) withoutRBAC(server authorizer.Authorizer) authorizer.Authorizer {
	if t == rbacWasOnlyMode {
		return authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	}
	return server
}

// rbacOf returns both RBAC evaluators, which use the server's own informers.
func rbacOf(versioned informers.SharedInformerFactory) (*kubetenant.RBAC, error) {
	index := indexed.NewIndex()
	all := versioned.Rbac().V1()
	synced, err := index.Follow(all)
	if err != nil {
		return nil, err
	}
	upstream := rbac.New(
		&rbac.RoleGetter{Lister: all.Roles().Lister()}, &rbac.RoleBindingLister{Lister: all.RoleBindings().Lister()},
		&rbac.ClusterRoleGetter{Lister: all.ClusterRoles().Lister()},
		&rbac.ClusterRoleBindingLister{Lister: all.ClusterRoleBindings().Lister()})
	return &kubetenant.RBAC{
		Index:         index,
		Upstream:      upstream,
		UpstreamRules: upstream,
		Synced:        synced,
	}, nil
}

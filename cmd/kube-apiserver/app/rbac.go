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

// takenRBAC says whether RBAC was taken out of a server's authorization modes.
type takenRBAC int

const (
	notTaken  takenRBAC = iota
	takenOut            // there are other modes
	takenLast           // there is none
)

// takeRBAC takes RBAC out of the server's authorization modes, so that the configuration can choose
// its evaluator. It is asked first then: that decides the same, since no other mode before Webhook
// ever denies. With RBAC behind Webhook, which may deny, and with --authorization-config, whose
// order may change at any time, it stays where it is.
func takeRBAC(o *options.BuiltInAuthorizationOptions) takenRBAC {
	if o == nil || o.AuthorizationConfigurationFile != "" {
		return notTaken
	}
	at, webhook := slices.Index(o.Modes, modes.ModeRBAC), slices.Index(o.Modes, modes.ModeWebhook)
	if at < 0 || webhook >= 0 && webhook < at {
		return notTaken
	}
	o.Modes = slices.Delete(slices.Clone(o.Modes), at, at+1)
	if len(o.Modes) == 0 {
		o.Modes = []string{modes.ModeAlwaysDeny} // without any mode the server would allow all
		return takenLast
	}
	return takenOut
}

// others returns what the server's own authorizer is without RBAC. Where that was all,
// nothing but the group that may do everything, which every server knows
// (k8s.io/kubernetes pkg/kubeapiserver/authorizer, v1.37.1): the mode that stands in its
// place would name itself in each refusal.
func (t takenRBAC) others(server authorizer.Authorizer) authorizer.Authorizer {
	if t == takenLast {
		return authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	}
	return server
}

// rbacOf returns RBAC in both evaluators, from the server's own informers.
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

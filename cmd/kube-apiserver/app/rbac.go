package app

import (
	"slices"

	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/kubetenant/kubetenant"
	indexed "github.com/kubetenant/kubetenant/authz/rbac"
)

// takeRBAC takes RBAC out of the server's authorization modes, so that the configuration can choose its
// evaluator, and reports whether it did. It is asked first then: that decides the same, since no
// other mode before Webhook ever denies. With RBAC behind Webhook, which may deny, and with
// --authorization-config, whose order may change at any time, it stays where it is.
func takeRBAC(opts options.CompletedOptions) bool {
	o := opts.Authorization
	if o == nil || o.AuthorizationConfigurationFile != "" {
		return false
	}
	at, webhook := slices.Index(o.Modes, modes.ModeRBAC), slices.Index(o.Modes, modes.ModeWebhook)
	if at < 0 || webhook >= 0 && webhook < at {
		return false
	}
	rest := slices.Delete(slices.Clone(o.Modes), at, at+1)
	if len(rest) == 0 {
		rest = []string{modes.ModeAlwaysDeny} // without any mode the server would allow all; this one has no opinion
	}
	o.Modes = rest
	return true
}

// lentRBAC is what the stack is lent, and whether all of it is known.
type lentRBAC struct {
	*kubetenant.RBAC
	synced func() bool
}

// lendRBAC returns RBAC in both evaluators, over the server's own informers.
func lendRBAC(versioned informers.SharedInformerFactory) (*lentRBAC, error) {
	index := indexed.NewIndex()
	all := versioned.Rbac().V1()
	synced, err := index.Follow(all)
	if err != nil {
		return nil, err
	}
	upstream := rbac.New(
		&rbac.RoleGetter{Lister: all.Roles().Lister()}, &rbac.RoleBindingLister{Lister: all.RoleBindings().Lister()},
		&rbac.ClusterRoleGetter{Lister: all.ClusterRoles().Lister()}, &rbac.ClusterRoleBindingLister{Lister: all.ClusterRoleBindings().Lister()})
	return &lentRBAC{&kubetenant.RBAC{Index: index, Upstream: upstream, UpstreamRules: upstream}, synced}, nil
}

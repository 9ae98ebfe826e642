// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

func newReleaseCommand(flags *client.Flags) *cobra.Command {
	config := ""
	mode := ""
	yes := false
	force := false
	cmd := &cobra.Command{
		Use:   "release NAMESPACE",
		Short: "Remove a namespace from its tenant",
		Long: `Removes the tenant label from a namespace and from the objects in it. From then
on, the tenant's callers have no access to the namespace. In the compiled-in
deployment mode, their watches and exec sessions in it end. With the webhook
service or the gateway, kube-apiserver keeps a watch open until it restarts or
the watch times out (up to an hour). The command then refuses, unless you set
--force.

The command refuses while the namespace contains objects that could give the
tenant further access. These are Pods and the objects that create them, custom
resources, PersistentVolumeClaims, Secrets, AccessGrants, RoleBindings, and
ServiceAccounts other than default. --force deletes them. The command always
deletes the objects that come from the Tenant object. It also recreates the
ServiceAccount default to invalidate all tokens of the tenant. It lists the
objects that remain, and removes the annotations that publish them.

In a namespace of authorization.systemNamespaces, it removes the label and
deletes only the objects that come from the Tenant object. It refuses if the
annotation kubetenant.dev/creator shows that a tenant's caller created an object
of the kinds above, and --force keeps that object. If you cannot read a
published configuration of the server, set --config.

The command prompts you for the tenant's name, unless you set --yes. You need
the right to impersonate the user system:kubetenant:tenants. In the compiled-in
deployment mode, you also need to impersonate the group system:masters. After an
interruption, run it again. Until then, the annotation kubetenant.dev/releasing
reserves the namespace.`,
		Example: `  kubectl tenant release web --dry-run=server
  kubectl tenant release web --force --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(client.CheckNamespace("NAMESPACE", args[0]), checkDryRun(mode)); err != nil {
				return err
			}
			c, k, d, err := flags.Clients()
			if err != nil {
				return err
			}
			r := &tenancy.Release{
				Writing:      writing(cmd, mode, output.NewFormat()),
				Kube:         k,
				Objects:      d,
				Force:        force,
				ClientDryRun: mode == dryRunClient,
				Warn:         warnTo(cmd),
			}
			if err := setServer(cmd, c, r, releaseTarget{args[0], config}); err != nil {
				return err
			}
			if !yes {
				r.Confirm = func(namespace, name string) error { return confirmRelease(cmd, namespace, name) }
			}
			return c.Explain(r.Run(cmd.Context(), args[0]))
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation")
	cmd.Flags().BoolVar(&force, "force", false, "continue, and delete the objects that block the release")
	cmd.ValidArgsFunction = flags.CompleteNamespaces
	addConfig(cmd, &config)
	addDryRun(cmd, &mode)
	return cmd
}

// releaseTarget contains the namespace to release and the path of a configuration file. The path
// may be empty.
type releaseTarget struct{ namespace, config string }

// setServer sets the fields of a release that depend on the server. It never uses the default
// configuration.
func setServer(cmd *cobra.Command, c *client.Cluster, r *tenancy.Release, target releaseTarget) error {
	found, err := c.Installation(cmd.Context())
	if err != nil {
		return err
	}
	known, done, err := requiredSettings(cmd, c, target.config)
	if err != nil {
		return err
	}
	done()
	r.System = known.Authorization.SystemNamespaces
	r.WatchesContinue = found.Mode != installation.CompiledIn
	if r.ClientDryRun {
		return nil
	}
	r.Manager, err = managerOf(cmd.Context(), c, target.namespace)
	return c.Explain(err)
}

// confirmRelease prompts the caller to type the name of the tenant or, if the tenant label is
// empty, the name of the namespace.
func confirmRelease(cmd *cobra.Command, namespace, name string) error {
	kind := "the tenant's name"
	what := fmt.Sprintf("This removes namespace %s from tenant %s.", namespace, name)
	if name == "" {
		kind = "the namespace's name"
		name = namespace
		what = fmt.Sprintf("This removes the empty tenant label from namespace %s.", namespace)
	}
	return confirm(cmd, confirmation{
		does: what,
		kind: kind,
		name: name,
		done: "changed",
	})
}

// managerOf returns clients that impersonate [tenant.ManagerUser]. The caller must have the right
// to impersonate this user. On a compiled-in server, the clients also impersonate the group
// system:masters, because the user alone has no rights there.
func managerOf(ctx context.Context, c *client.Cluster, namespace string) (tenancy.Manager, error) {
	if as := c.Config.Impersonate.UserName; as != "" {
		return tenancy.Manager{}, fmt.Errorf("the kubeconfig impersonates %s: use a kubeconfig without impersonation", as)
	}
	request := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "namespaces", Name: namespace},
	}}
	for _, groups := range [][]string{nil, {user.SystemPrivilegedGroup}} {
		m, err := tenancy.NewManager(c.Config, groups...)
		if err != nil {
			return m, err
		}
		review, err := m.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, request, metav1.CreateOptions{})
		switch {
		case err == nil && review.Status.Allowed:
			return m, nil
		case err != nil && !apierrors.IsForbidden(err):
			return m, err
		}
	}
	return tenancy.Manager{}, fmt.Errorf("%w: you may not impersonate the user %s, which is required to remove a "+
		"namespace from its tenant: run the command as a cluster admin",
		tenancy.ErrRefused, tenant.ManagerUser)
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/tenant"
)

// identityFlags specify an identity.
type identityFlags struct {
	user, serviceAccount, tenant, kubeconfig string
	groups                                   []string
}

func (f *identityFlags) add(cmd *cobra.Command, flags *client.Flags) {
	cmd.Flags().StringVar(&f.user, "user", "", "user")
	cmd.Flags().StringSliceVar(&f.groups, "group", nil,
		"group, or with --user the groups of that user (may be repeated)")
	cmd.Flags().StringVar(&f.serviceAccount, "serviceaccount", "",
		"service account: NAME in the namespace of -n, or NAMESPACE/NAME")
	cmd.MarkFlagsMutuallyExclusive("user", "serviceaccount")
	cmd.MarkFlagsMutuallyExclusive("group", "serviceaccount")
	_ = cmd.RegisterFlagCompletionFunc("user", flags.CompleteUsers)
	_ = cmd.RegisterFlagCompletionFunc("group", flags.CompleteGroups)
}

// addTenant adds --tenant and --of-kubeconfig, for commands that only read.
func (f *identityFlags) addTenant(cmd *cobra.Command, flags *client.Flags) {
	cmd.Flags().StringVar(&f.tenant, "tenant", "",
		"tenant of the user or group (without a user or group: any caller of this tenant)")
	cmd.Flags().StringVar(&f.kubeconfig, "of-kubeconfig", "", "kubeconfig file: the identity of its current context")
	for _, other := range []string{"user", "group", "serviceaccount", "tenant"} {
		cmd.MarkFlagsMutuallyExclusive("of-kubeconfig", other)
	}
	_ = cmd.RegisterFlagCompletionFunc("tenant", flags.CompleteTenants)
	_ = cmd.MarkFlagFilename("of-kubeconfig")
}

// isEmpty reports whether the flags specify no identity. The identity is then that of the caller.
func (f *identityFlags) isEmpty() bool {
	return f.user == "" && len(f.groups) == 0 && f.serviceAccount == "" && f.tenant == "" && f.kubeconfig == ""
}

// check validates the flags before the first request.
func (f *identityFlags) check(cmd *cobra.Command) error {
	var problems []error
	for _, name := range []string{"user", "group", "serviceaccount", "tenant", "of-kubeconfig"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && flag.Value.String() == "" {
			problems = append(problems, fmt.Errorf("--%s must not be empty", name))
		}
	}
	if tenant.IsServiceAccountName(f.user) {
		if _, _, err := serviceaccount.SplitUsername(f.user); err != nil {
			problems = append(problems,
				fmt.Errorf("--user %q is not a valid service account: use system:serviceaccount:NAMESPACE:NAME", f.user))
		}
	}
	if f.user != "" {
		problems = append(problems, client.CheckUser("--user", f.user))
	}
	for _, group := range f.groups {
		problems = append(problems, client.CheckUser("--group", group))
	}
	if f.user == "" && len(f.groups) > 1 {
		problems = append(problems, errors.New("only one --group is allowed without --user"))
	}
	if f.serviceAccount != "" {
		namespace, name, found := strings.Cut(f.serviceAccount, "/")
		if found {
			problems = append(problems, client.CheckNamespace("--serviceaccount", namespace))
		} else {
			name = f.serviceAccount
		}
		problems = append(problems, client.CheckObject("--serviceaccount", name))
	}
	if f.tenant != "" {
		_, err := client.ParseTenant("--tenant", f.tenant)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// account returns the namespace and the name of the specified service account.
func (f *identityFlags) account(c *client.Cluster) (namespace, name string) {
	if namespace, name, found := strings.Cut(f.serviceAccount, "/"); found {
		return namespace, name
	}
	return c.Namespace, f.serviceAccount
}

// identity returns the specified identity in a cluster. Defaults to the identity of the caller.
func (f *identityFlags) identity(ctx context.Context, c *client.Cluster) (*privileges.Identity, error) {
	var id tenant.ID
	if f.tenant != "" {
		id, _ = tenant.Parse(f.tenant) // validated before
	}
	switch {
	case f.user != "" && strings.HasPrefix(f.user, "system:serviceaccount:"):
		namespace, name, _ := strings.Cut(strings.TrimPrefix(f.user, "system:serviceaccount:"), ":")
		return accountIdentity(ctx, c, namespace, name)
	case f.user != "":
		return privileges.OfUser(f.user, f.groups, id), nil
	case len(f.groups) > 0:
		return privileges.OfGroup(f.groups[0], id), nil
	case f.serviceAccount != "":
		namespace, name := f.account(c)
		return accountIdentity(ctx, c, namespace, name)
	case f.tenant != "":
		return privileges.OfTenant(id), nil
	}
	who := c
	if f.kubeconfig != "" {
		flags := client.NewFlags()
		flags.Kubeconfig = f.kubeconfig
		var err error
		if who, err = flags.Cluster(); err != nil {
			return nil, err
		}
		if _, err := who.Installation(ctx); err != nil {
			return nil, err
		}
	}
	i, err := who.WhoAmI(ctx)
	if err != nil {
		return nil, who.Explain(err)
	}
	id, _ = tenant.Parse(i.Tenant)
	return privileges.OfUser(i.User, i.Groups, id), nil
}

// accountIdentity returns a service account and the owner of its namespace. If the namespace does
// not exist or cannot be read, the service account has no tenant.
func accountIdentity(ctx context.Context, c *client.Cluster, namespace, name string) (*privileges.Identity, error) {
	k, err := c.Kube()
	if err != nil {
		return nil, err
	}
	ns, err := k.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return privileges.OfServiceAccount(namespace, name, tenant.ID{}), nil
	}
	if err != nil {
		return nil, err
	}
	subjects, err := client.Subjects(func(context.Context, string) (*corev1.Namespace, error) { return ns, nil })
	if err != nil {
		return nil, err
	}
	id, _ := subjects.ServiceAccountTenant(ctx, namespace) // no tenant if the namespace is unowned
	return privileges.OfServiceAccount(namespace, name, id), nil
}

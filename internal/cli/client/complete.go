// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// completeTimeout is the maximum duration of a completion, because a slow completion is worse
	// than none.
	completeTimeout = 3 * time.Second
	// completeLimit is the maximum number of objects that a completion reads.
	completeLimit = 1000
)

func (f *Flags) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := f.loader(clusterRef{}).RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(raw.Contexts))
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteNamespaces completes the names of namespaces that the caller may list.
func (f *Flags) CompleteNamespaces(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, prefix, func(ctx context.Context, k kube.Interface, add func(string)) error {
		list, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: completeLimit})
		if err == nil {
			for i := range list.Items {
				add(list.Items[i].Name)
			}
		}
		return err
	})
}

// CompleteTenants completes the names of tenants that own a namespace the caller may list.
func (f *Flags) CompleteTenants(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, prefix, func(ctx context.Context, k kube.Interface, add func(string)) error {
		list, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: completeLimit, LabelSelector: tenant.Label})
		if err == nil {
			for i := range list.Items {
				add(list.Items[i].Labels[tenant.Label])
			}
		}
		return err
	})
}

// CompleteUsers completes the names of users that are subjects of a binding.
func (f *Flags) CompleteUsers(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeSubjects(cmd, prefix, rbacv1.UserKind)
}

// CompleteGroups completes the names of groups that are subjects of a binding.
func (f *Flags) CompleteGroups(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeSubjects(cmd, prefix, rbacv1.GroupKind)
}

// CompleteRoles completes the names of ClusterRoles.
func (f *Flags) CompleteRoles(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, prefix, func(ctx context.Context, k kube.Interface, add func(string)) error {
		list, err := k.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{Limit: completeLimit})
		if err == nil {
			for i := range list.Items {
				add(list.Items[i].Name)
			}
		}
		return err
	})
}

func (f *Flags) completeSubjects(cmd *cobra.Command, prefix, kind string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, prefix, func(ctx context.Context, k kube.Interface, add func(string)) error {
		subjects := func(all []rbacv1.Subject) {
			for _, s := range all {
				if s.Kind == kind {
					add(s.Name)
				}
			}
		}
		options := metav1.ListOptions{Limit: completeLimit}
		if list, err := k.RbacV1().ClusterRoleBindings().List(ctx, options); err == nil {
			for i := range list.Items {
				subjects(list.Items[i].Subjects)
			}
		}
		list, err := k.RbacV1().RoleBindings("").List(ctx, options)
		if err == nil {
			for i := range list.Items {
				subjects(list.Items[i].Subjects)
			}
		}
		return err
	})
}

func (f *Flags) complete(
	cmd *cobra.Command, prefix string, from func(context.Context, kube.Interface, func(string)) error,
) ([]string, cobra.ShellCompDirective) {
	all, err := f.Clusters()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	k, err := all[0].Kube()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	var found []string
	if err := from(ctx, k, func(name string) {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// worksWithout returns why a command works on a server without kubetenant. For any other command,
// it returns "", and the command fails on such a server.
func worksWithout(command string) string {
	switch command {
	case "validate", "test", "replay", "migrate":
		return "reads files only"
	case "login", "keystone-login":
		return "uses an identity provider only"
	case "version", "options", "help", "completion", "bash", "zsh", "fish", "powershell",
		cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
		return "is about this program"
	case "status":
		return "reports whether kubetenant is installed"
	case "uninstall":
		return "can be run again after kubetenant is removed from the server"
	}
	return ""
}

// requireInstalled makes a command fail if the server runs without kubetenant, or if a tenant or
// namespace in the command line does not exist. The check runs when the command creates its client,
// after the command has validated its flags.
func requireInstalled(cmd *cobra.Command, flags *client.Flags, args []string) {
	if worksWithout(cmd.Name()) != "" {
		return
	}
	flags.Require(func(c *client.Cluster) error {
		_, err := c.Installation(cmd.Context())
		if cmd.Name() == "whoami" && errors.Is(err, installation.ErrReviewForbidden) {
			// The server still reports the caller's identity, and the command derives the tenant
			// from it.
			warnTo(cmd)("warning: %v. The tenant below applies only if kubetenant is installed.", err)
			err = nil
		}
		if err != nil {
			return err
		}
		return checkNamed(cmd, c, args)
	})
}

// namesTenants reports whether the arguments of a command are tenants that must exist. The
// commands "tenants", "retired" and "delete-tenant" are not included, because they check the
// names themselves.
func namesTenants(command string) bool {
	return slices.Contains([]string{"suspend", "resume", "adopt-tenants", "usage"}, command)
}

// withNearest adds a similar existing name to an error about a tenant that does not exist.
func withNearest(ctx context.Context, c *client.Cluster, name string, err error) error {
	if !errors.Is(err, tenancy.ErrNoTenant) {
		return err
	}
	if better := checkExisting(ctx, c, []string{name}, ""); better != nil {
		return better
	}
	return err
}

// checkNamed returns an error if a tenant in the command line does not exist, or if the namespace
// of its service account does not exist. It sends its requests without impersonation.
func checkNamed(cmd *cobra.Command, c *client.Cluster, args []string) error {
	var tenants []string
	if namesTenants(cmd.Name()) {
		tenants = append(tenants, args...)
	}
	flag := cmd.Flags().Lookup("tenant")
	if flag != nil && flag.Value.String() != "" && cmd.Name() != "adopt" { // adopt has --force
		tenants = append(tenants, flag.Value.String())
	}
	if to, err := cmd.Flags().GetStringSlice("to"); err == nil {
		tenants = append(tenants, to...)
	}
	groups, _ := cmd.Flags().GetStringSlice("as-group")
	if all, err := cmd.Flags().GetStringArray("as-group"); err == nil {
		groups = all
	}
	more, _ := cmd.Flags().GetStringSlice("group")
	for _, group := range append(groups, more...) {
		if id, ok := strings.CutPrefix(group, tenant.GroupPrefix); ok {
			tenants = append(tenants, id)
		}
	}
	namespace := namedNamespace(cmd, c)
	if len(tenants) == 0 && namespace == "" {
		return nil
	}
	return c.Explain(checkExisting(cmd.Context(), c, tenants, namespace))
}

// namedNamespace returns the namespace of the service account in --serviceaccount, or "".
func namedNamespace(cmd *cobra.Command, c *client.Cluster) string {
	account, _ := cmd.Flags().GetString("serviceaccount")
	namespace, _, found := strings.Cut(account, "/")
	switch {
	case account == "":
		return ""
	case !found:
		return c.Namespace
	}
	return namespace
}

func checkExisting(ctx context.Context, c *client.Cluster, tenants []string, namespace string) error {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{}
	k, err := kube.NewForConfig(config)
	if err != nil {
		return err
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, name := range tenants {
		id, err := client.ParseTenant("tenant", name)
		if err != nil {
			return err
		}
		if err := tenancy.CheckExists(ctx, k, d, id); err != nil {
			return err
		}
	}
	if namespace == "" {
		return nil
	}
	return tenancy.CheckNamespaceExists(ctx, k, namespace)
}

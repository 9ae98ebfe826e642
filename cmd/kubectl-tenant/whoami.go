// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
)

func newWhoAmICommand(flags *client.Flags) *cobra.Command {
	format := output.NewFormat(name)
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show your user and tenant on the server",
		Long: `Shows your identity on the server (SelfSubjectReview): user, tenant, the source
that authenticated you, groups, and when your credential expires. With --as, it
shows the identity that you would have.

In the compiled-in deployment mode, the server reports the tenant. Behind the
webhook service, the command determines it like the service does: from the group
tenant:<id> of a certificate, or from the owner of a service account's
namespace.`,
		Example: `  kubectl tenant whoami
  kubectl tenant whoami --as alice --as-group tenant:acme -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			i, err := c.WhoAmI(cmd.Context())
			if err != nil {
				return c.Explain(err)
			}
			return printIdentity(cmd, i, format)
		},
	}
	format.AddFlags(cmd)
	return cmd
}

func printIdentity(cmd *cobra.Command, i *client.Caller, format *output.Format) error {
	out := cmd.OutOrStdout()
	if done, err := format.Value(out, "Identity", i); done {
		return err
	}
	if format.Is(name) {
		_, err := fmt.Fprintln(out, "user/"+output.Safe(i.User))
		return err
	}
	tenant := i.Tenant
	if tenant == "" {
		tenant = "<unknown>"
	}
	source, expires := i.Source, i.ExpiryUnknown
	if source == "" {
		source = "<not reported by the server>"
	}
	if i.Expires != nil {
		expires = i.Expires.Format(time.RFC3339)
	}
	return output.NewScreen(out).Fields([][2]string{
		{"User", i.User},
		{"Tenant", tenant + " (" + i.TenantReason + ")"},
		{"Source", source},
		{"Groups", strings.Join(i.Groups, ", ")},
		{"Expires", expires},
	})
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/client"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/isolation"
)

func newVerifyIsolationCommand(flags *client.Flags) *cobra.Command {
	o := isolation.Options{}
	cmd := &cobra.Command{
		Use:   "verify-isolation",
		Short: "Try everything across the line between two throwaway tenants",
		Long: `Makes two tenants, with a namespace each and all rights, asks the server's
discovery for every resource, subresource and verb, and tries each as a user and
as a service account of the first tenant, as a user without a tenant and without
credentials: in the other tenant's namespace, in the system's, at cluster scope,
over all namespaces, through tenant paths and by impersonation. It looks at what
lists and watches deliver, whether self reviews agree, and whether watches end
with their namespace. All that it made is removed at the end. Behind the webhook
service, what that cannot do is not asked for: lists over all namespaces name
their tenant, and watches may outlive a namespace.

It needs an admin's kubeconfig, sends some 25,000 requests (writes as dry runs)
and takes about a minute. Exit status: 0 nothing leaked and nothing of one's own
was refused, 1 something did, 2 it could not be tried.`,
		Example: `  kubectl tenant verify-isolation --kubeconfig admin.kubeconfig
  kubectl tenant verify-isolation --api-group apps --api-group batch`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			if _, err := c.WhoAmI(cmd.Context()); err != nil { // before anything is made
				return c.Explain(err)
			}
			suffix := rand.String(6)
			o.Admin, o.Tenants = c.Config, [2]string{"verify-a-" + suffix, "verify-b-" + suffix}
			o.Progress = func(what string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), what+" ...") }
			report, err := isolation.Run(cmd.Context(), o)
			if report == nil {
				return c.Explain(err)
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%d resources and subresources, tenants by %s\n", report.Resources, report.Shape)
			report.Write(cmd.OutOrStdout())
			if !report.OK() {
				if err != nil {
					_, _ = fmt.Fprintln(cmd.ErrOrStderr(), err)
				}
				return errFailed
			}
			return err
		},
	}
	cmd.Flags().IntVar(&o.Parallel, "parallel", 8, "requests that run at the same time")
	cmd.Flags().StringArrayVar(&o.Groups, "api-group", nil, `API groups to try, "" for the core one (default: all)`)
	return cmd
}

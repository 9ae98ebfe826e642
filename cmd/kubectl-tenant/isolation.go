package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/isolation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
)

// abandonedAfter is the age after which a run is considered abandoned. A run takes minutes.
const abandonedAfter = time.Hour

func newVerifyIsolationCommand(flags *client.Flags) *cobra.Command {
	o := isolation.Options{}
	cleanUp, format := false, output.NewFormat()
	cmd := &cobra.Command{
		Use:   "verify-isolation",
		Short: "Try every request between two throwaway tenants",
		Long: `Creates two tenants, with a namespace each and all rights. It then asks the
server's discovery for every resource, subresource and verb, and tries each as a
user and as a service account of the first tenant, as a user without a tenant
and without credentials: in the other tenant's namespace, in the system's, at
cluster scope, over all namespaces, through tenant paths and by impersonation.
It checks what lists and watches deliver, whether self reviews agree, and
whether watches end with their namespace. Behind the webhook service it does not
try what that cannot limit: lists over all namespaces name their tenant, and
watches may outlive a namespace.

It needs an admin's kubeconfig. Behind a gateway that is the kubeconfig of an
operator at the gateway, because the cluster itself does not keep tenants apart
(docs/gateway.md). It sends some 25,000 requests (writes as dry runs) and takes
about a minute. Findings are grouped by verb and resource, and ten groups are
shown. A request whose answer does not show what the boundary decides (a
timeout, an error of the server, a refusal by another program) is not tested.

The tenants are removed at the end, after an interrupt too. If that fails,
--clean-up removes what every run left; a run of another admin ends with it. The
next run removes what is older than an hour.

Exit status: 0 isolated; 1 a request leaked, or one in the caller's own space
was denied; 2 it could not be tried, or some requests were not tested.`,
		Example: `  kubectl tenant verify-isolation --kubeconfig admin.kubeconfig
  kubectl tenant verify-isolation --api-group apps --api-group batch
  kubectl tenant verify-isolation --clean-up`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			if cleanUp { // rights that a run left matter most on a server without kubetenant
				flags.Require(nil)
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			o.Admin = c.Config
			o.Progress = func(what string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), what+" ...") }
			if cleanUp {
				return cleanUpIsolation(cmd, c)
			}
			return verifyIsolation(cmd, c, o, format)
		},
	}
	cmd.Flags().IntVar(&o.Parallel, "parallel", 8, "requests that run at the same time")
	cmd.Flags().StringArrayVar(&o.Groups, "api-group", nil, `API groups to try, "" for the core one (default: all)`)
	cmd.Flags().BoolVar(&cleanUp, "clean-up", false, "try nothing, and remove what earlier runs left behind")
	format.AddFlags(cmd)
	return cmd
}

// cleanUpIsolation removes what every run left. It does not need kubetenant on the server.
func cleanUpIsolation(cmd *cobra.Command, c *client.Cluster) error {
	n, err := isolation.CleanUp(cmd.Context(), c.Config, 0)
	if err != nil {
		return c.Explain(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "runs removed: %d\n", n)
	return err
}

// errDirect refuses a cluster behind a gateway that is reached directly.
var errDirect = errors.New("this cluster does not keep tenants apart by itself: the gateway in front of it does; " +
	"use the kubeconfig of an operator at the gateway (docs/gateway.md#prove-it)")

func verifyIsolation(cmd *cobra.Command, c *client.Cluster, o isolation.Options, format *output.Format) error {
	ctx := cmd.Context()
	if _, err := c.WhoAmI(ctx); err != nil { // before anything is created
		return c.Explain(err)
	}
	found, err := c.Installation(ctx)
	if err != nil {
		return err
	}
	if found.Direct {
		return errDirect
	}
	switch n, err := isolation.CleanUp(ctx, c.Config, abandonedAfter); {
	case err != nil:
		return c.Explain(fmt.Errorf("remove what earlier runs left: %w", err))
	case n > 0:
		o.Progress(fmt.Sprintf("removed %d runs that did not end", n))
	}
	o.Mode, o.Tenants = found.Mode, isolation.Throwaway()
	report, err := isolation.Run(ctx, o)
	if report == nil {
		return undone(ctx, c.Explain(err))
	}
	if done, printed := format.Value(cmd.OutOrStdout(), "IsolationReport", report); done && printed != nil {
		return printed
	} else if !done {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "deployment mode: %s\n", report.Mode)
		report.Write(cmd.OutOrStdout())
	}
	switch {
	case !report.OK():
		if err != nil {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), oneLine(err))
		}
		return errFailed
	case err != nil:
		return undone(ctx, err)
	case !report.Complete():
		return errors.New("not every request was tested")
	}
	return nil
}

// undone marks the error of an interrupted run that removed what it created.
func undone(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, isolation.ErrLeft) {
		return errUndone
	}
	return err
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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

// abandonedAge is the age from which an unfinished run is considered abandoned. A run takes only
// minutes.
const abandonedAge = time.Hour

func newVerifyIsolationCommand(flags *client.Flags) *cobra.Command {
	o := isolation.Options{}
	cleanUp := false
	format := output.NewFormat()
	cmd := &cobra.Command{
		Use:   "verify-isolation",
		Short: "Test every request between two temporary tenants",
		Long: `Creates two temporary tenants with one namespace and full rights each. It then
discovers every resource, subresource and verb of the server. It tries each as a
user and as a service account of the first tenant, as a user without a tenant,
and without a credential. Each request is sent to the other tenant's namespace,
to system namespaces, at cluster scope, across all namespaces, through tenant
paths, and with impersonation.

It also checks that lists and watches return only allowed objects, that self
reviews match the decisions, and that watches end with their namespace. Behind
the webhook service it adapts to two limits: lists across all namespaces must
name their tenant, and watches may outlive a namespace.

The command needs the kubeconfig of a cluster admin. Behind a gateway, it needs
the kubeconfig of an operator at the gateway, because the cluster itself does
not isolate tenants (docs/gateway.md). It sends about 25,000 requests (writes as
dry runs) in about a minute. Findings are grouped by verb and resource, and the
first ten groups are shown. A request is reported as not tested if its response
does not show the boundary's decision. Examples are a timeout, a server error,
or a refusal by another program.

The command deletes the tenants at the end, even after an interrupt. If that
fails, run it with --clean-up, which deletes the leftovers of every run. It also
stops runs of other admins. Each run deletes leftovers that are older than an
hour.

Exit status:
  0  The tenants are isolated.
  1  A request leaked, or a request in the caller's own namespaces was denied.
  2  The test could not run, or some requests were not tested.`,
		Example: `  kubectl tenant verify-isolation --kubeconfig admin.kubeconfig
  kubectl tenant verify-isolation --api-group apps --api-group batch
  kubectl tenant verify-isolation --clean-up`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			if cleanUp { // remaining rights matter most on a server without kubetenant
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
	cmd.Flags().IntVar(&o.Parallel, "parallel", 8, "number of concurrent requests")
	cmd.Flags().StringArrayVar(&o.Groups, "api-group", nil, "API groups to test, \"\" for the core group (default: all)")
	cmd.Flags().BoolVar(&cleanUp, "clean-up", false, "only delete what earlier runs left behind")
	format.AddFlags(cmd)
	return cmd
}

// cleanUpIsolation deletes the objects that earlier runs left. The server need not run kubetenant.
func cleanUpIsolation(cmd *cobra.Command, c *client.Cluster) error {
	n, err := isolation.CleanUp(cmd.Context(), c.Config, 0)
	if err != nil {
		return c.Explain(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "runs cleaned up: %d\n", n)
	return err
}

// errDirect reports that the cluster is behind a gateway, and that the client connects to it
// directly.
var errDirect = errors.New("this cluster does not isolate tenants itself, only the gateway in front of it does: use " +
	"the kubeconfig of an operator at the gateway (docs/gateway.md#prove-it)")

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
	switch n, err := isolation.CleanUp(ctx, c.Config, abandonedAge); {
	case err != nil:
		return c.Explain(fmt.Errorf("clean up after earlier runs: %w", err))
	case n > 0:
		o.Progress(fmt.Sprintf("cleaned up %d unfinished runs", n))
	}
	o.Mode, o.Tenants = found.Mode, isolation.TemporaryTenants()
	report, err := isolation.Run(ctx, o)
	if report == nil {
		return replaceInterrupt(ctx, c.Explain(err))
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
		return replaceInterrupt(ctx, err)
	case !report.Complete():
		return errors.New("some requests were not tested")
	}
	return nil
}

// replaceInterrupt replaces the error of an interrupted run if the run deleted its objects.
func replaceInterrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, isolation.ErrNotRemoved) {
		return errUndone
	}
	return err
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/internal/cli/audit"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// validStream matches the names of audit streams. The files of a stream begin with the name of the
// stream.
var validStream = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]{0,255}$`)

func newAuditCommand(flags *client.Flags) *cobra.Command {
	o := auditOptions{}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit stream of your tenant",
		Long: `Shows the audit stream of your own tenant: the requests of its callers, and the
changes that other callers made to its objects. For other callers, the stream
has only their tenant, not their name. A caller of the system tenant sees the
system's stream. With --tenant, it sees the stream of that tenant.

Each server has its own stream. The command shows the stream of the server that
answers. The servers must have audit.directory in their configuration.

With --from, the command reads the files of a directory: system.jsonl, and a
file <UID>.jsonl for each Tenant, with their rotated files. --tenant then finds
the UID through the Tenant in the cluster. With --uid, the command sends no
request. The files of a gateway are CLUSTER+UID.jsonl. Read them with --uid
CLUSTER+UID.

With -o json, each line is a record, as in the files.

Exit status:
  0  Success.
  1  The tenant does not exist, or you may not read its stream.
  2  The command could not run, or some lines are not records.`,
		Example: `  kubectl tenant audit --since 30m
  kubectl tenant audit --denied --follow
  kubectl tenant audit --tenant acme --user alice -o json
  kubectl tenant audit --from /var/log/kubetenant/audit --since 7d`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return o.run(cmd, flags)
		},
	}
	cmd.Flags().StringVar(&o.tenantText, "tenant", "", "tenant of the stream (default: your own)")
	cmd.Flags().StringVar(&o.sinceText, "since", "1h", "how far to look back, such as 30m, 8h or 7d")
	cmd.Flags().StringVar(&o.query.User, "user", "", "show only the requests of this user")
	cmd.Flags().BoolVar(&o.query.Denied, "denied", false, "show only requests that were answered with status 401 or 403")
	cmd.Flags().BoolVarP(&o.query.Follow, "follow", "f", false, "wait for further requests")
	cmd.Flags().StringVar(&o.from, "from", "", "directory with audit streams to read instead of the server")
	cmd.Flags().StringVar(&o.uid, "uid", "", "with --from: UID of the Tenant, or another name of a stream")
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "output format: json")
	_ = cmd.MarkFlagDirname("from")
	_ = cmd.RegisterFlagCompletionFunc("tenant", flags.CompleteTenants)
	_ = cmd.RegisterFlagCompletionFunc("user", flags.CompleteUsers)
	_ = cmd.RegisterFlagCompletionFunc("output", outputs(formatJSON))
	return cmd
}

// auditOptions are the flags of audit.
type auditOptions struct {
	tenantText, sinceText, from, uid, format string

	query  audit.Query
	stream tenantaudit.Stream // for --from
}

func (o *auditOptions) check(cmd *cobra.Command) (err error) {
	if o.tenantText != "" {
		if o.query.Tenant, err = client.ParseTenant("--tenant", o.tenantText); err != nil {
			return err
		}
	}
	if cmd.Flags().Changed("user") {
		if err := client.CheckUser("--user", o.query.User); err != nil {
			return err
		}
	}
	since, err := client.ParseDuration(o.sinceText)
	switch {
	case err != nil:
		return fmt.Errorf("--since %q: %w", o.sinceText, err)
	case since <= 0:
		return errSince
	case o.format != "" && o.format != formatJSON:
		return fmt.Errorf("-o %s: must be json", o.format)
	case o.from != "" && o.query.Follow:
		return errors.New("--follow cannot be used with --from: it reads a server")
	case o.uid != "" && o.from == "":
		return errors.New("--uid must be used with --from: for a server, set --tenant")
	case o.uid != "" && o.tenantText != "":
		return errors.New("--uid and --tenant cannot be used together")
	case o.uid != "" && !validStream.MatchString(o.uid):
		return fmt.Errorf("--uid %q is not the UID of a Tenant", o.uid)
	}
	o.query.Since = time.Now().Add(-since)
	return nil
}

func (o *auditOptions) run(cmd *cobra.Command, flags *client.Flags) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	var lines io.Writer = out
	if o.query.Follow {
		lines = cmd.OutOrStdout() // print each line immediately
	}
	invalid := 0
	first := true
	visitor := &audit.Visitor{
		Record: func(r *tenantaudit.Record, line []byte) error {
			if o.format == formatJSON {
				return audit.WriteJSON(lines, line)
			}
			if first {
				first = false
				if _, err := io.WriteString(lines, audit.Header); err != nil {
					return err
				}
			}
			return audit.WriteText(lines, r)
		},
		Invalid: func(where string, err error) {
			if invalid++; invalid <= maxInvalid {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %v\n", output.Safe(where), err)
			}
		},
	}
	err := o.read(cmd, flags, visitor)
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	switch {
	case err != nil:
		return err
	case invalid > 0:
		return fmt.Errorf("the stream is not complete: %d lines are not audit records", invalid)
	case first && o.format == "" && o.from != "":
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "No requests since %s in stream %s of directory %s\n",
			o.query.Since.UTC().Format(time.RFC3339), o.stream, output.Safe(o.from))
	case first && o.format == "":
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "No requests since %s\n", o.query.Since.UTC().Format(time.RFC3339))
	}
	return err
}

// maxInvalid is the maximum number of invalid lines that the command reports.
const maxInvalid = 20

func (o *auditOptions) read(cmd *cobra.Command, flags *client.Flags, v *audit.Visitor) error {
	stream := tenantaudit.Stream(o.uid)
	switch {
	case o.from == "":
		c, err := flags.Cluster()
		if err != nil {
			return err
		}
		k, err := c.Kube()
		if err != nil {
			return err
		}
		return c.Explain(audit.FromServer(cmd.Context(), k.Discovery().RESTClient(), &o.query, v))
	case !o.query.Tenant.IsZero():
		found, err := streamOf(cmd, flags, o.query.Tenant)
		if err != nil {
			return err
		}
		stream = found
	case stream == "":
		stream = tenantaudit.System
	}
	o.stream = stream
	return audit.FromFiles(cmd.Context(), o.from, stream, &o.query, v)
}

// streamOf returns the audit stream of a tenant. The name of the stream is the UID of the
// Tenant object, or is derived from the tenant ID if the tenant has no Tenant object.
func streamOf(cmd *cobra.Command, flags *client.Flags, id tenant.ID) (tenantaudit.Stream, error) {
	c, _, d, err := flags.Clients()
	if errors.Is(err, tenancy.ErrNoTenant) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("the UID of tenant %s cannot be read: set --uid instead of --tenant: %w", id, err)
	}
	u, err := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).
		Get(cmd.Context(), id.ObjectName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return tenantaudit.StreamOf(id, ""), nil
	case err != nil:
		return "", fmt.Errorf("the UID of tenant %s cannot be read: set --uid instead of --tenant: %w", id, c.Explain(err))
	}
	return tenantaudit.StreamOf(id, string(u.GetUID())), nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/simulate/replay"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

func newReplayCommand() *cobra.Command {
	config := ""
	objects := ""
	format := output.NewFormat(wide)
	cmd := &cobra.Command{
		Use:   "replay AUDIT.log... --config NEW.yaml --objects DUMP.yaml",
		Short: "Evaluate recorded requests with another configuration",
		Long: `Reads audit logs and evaluates each request again with another configuration and
the server's own code. It prints a summary, and each decision that would change.
The logs must have one audit.k8s.io/v1 event per line, of level Metadata or
above. For standard input, use -. The command changes nothing.

DUMP.yaml must contain the objects that decisions depend on, in one file with a
line --- in between:
  kubectl get ns,clusterroles,clusterrolebindings,crds,tenantquotas -o yaml
  kubectl get -A roles,rolebindings,accessgrants -o yaml

Users and their tenants are taken from the audit events. Requests of nodes are
skipped, because the Node authorizer needs to know the pods of each node.

Exit status:
  0  No decision would change.
  1  At least one decision would change.
  2  The requests could not be evaluated.`,
		Example: `  kubectl tenant replay audit.log --config new.yaml --objects dump.yaml`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			report, err := replayLogs(cmd, args, config, objects)
			if err != nil {
				return err
			}
			if err := printReplay(cmd, report, format); err != nil {
				return err
			}
			switch {
			case report.Decided == 0:
				return errors.New("no decided audit events found: the log needs one audit.k8s.io/v1 event in JSON per line, with " +
					"stage ResponseComplete")
			case len(report.Changes) > 0:
				return errFailed
			case report.Unread > 0:
				return fmt.Errorf("%d lines are not audit events and were ignored", report.Unread)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "TenancyConfiguration file to evaluate (required)")
	cmd.Flags().StringVar(&objects, "objects", "",
		"file with the cluster's namespaces, roles, bindings and grants (required)")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagRequired("objects")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
	_ = cmd.MarkFlagFilename("objects", "yaml", "yml", "json")
	format.AddFlags(cmd)
	return cmd
}

// replayLogs replays the events in logs with a configuration file and a file of objects.
func replayLogs(cmd *cobra.Command, logs []string, config, objects string) (*replay.Report, error) {
	known, err := settings(config)
	if err != nil {
		return nil, err
	}
	o, err := simulator.Load(objects)
	if err != nil {
		return nil, err
	}
	if len(o.Namespaces) == 0 {
		return nil, fmt.Errorf("%s contains no namespaces: create the dump with the commands in this command's help", objects)
	}
	ctx := withoutLog(cmd.Context())
	replayer, err := replay.New(ctx, known, o)
	if err != nil {
		return nil, err
	}
	report := &replay.Report{Changes: []*replay.Change{}}
	for _, path := range logs {
		play := func(log io.Reader) error { return replayer.Play(ctx, log, report) }
		if err := withFile(path, cmd.InOrStdin(), play); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// withFile calls do with the content of a file, or with standard input for "-".
func withFile(path string, in io.Reader, do func(io.Reader) error) error {
	if path == "-" {
		return do(in)
	}
	f, err := os.Open(path) // #nosec G304 -- the caller names it
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := do(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func printReplay(cmd *cobra.Command, r *replay.Report, format *output.Format) error {
	out := cmd.OutOrStdout()
	if done, err := format.Value(out, "Replay", r); done {
		return err
	}
	_, err := fmt.Fprintf(out,
		"%d events: %d evaluated, %d skipped, %d lines not understood\n%d would now be denied, %d would now be allowed\n",
		r.Events, r.Decided, r.Skipped, r.Unread, r.NowDenied, r.NowAllowed)
	if err != nil || len(r.Changes) == 0 {
		return err
	}
	list := &output.List{
		Columns: append(output.Columns("Change", "Times", "User", "Tenant", "Request"),
			output.Column{Name: "Reason", Wide: true}),
	}
	for _, c := range r.Changes {
		caller := c.User
		if c.By != "" {
			caller += " (by " + c.By + ")"
		}
		list.Rows = append(list.Rows,
			output.Row{Cells: []string{c.Was + " -> " + c.Now, strconv.Itoa(c.Times), caller, c.Tenant, c.Request, c.Reason}})
	}
	if err := format.List(out, list); err != nil {
		return err
	}
	if r.More > 0 {
		_, err = fmt.Fprintf(out, "and %d more\n", r.More)
	}
	return err
}

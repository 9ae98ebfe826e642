// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/status"
	"github.com/kubetenant/kubetenant/internal/fairuse"
)

func newStatusCommand(flags *client.Flags) *cobra.Command {
	format := output.NewFormat()
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether and how kubetenant runs on the server",
		Long: `Shows whether kubetenant is installed on the server, its deployment mode, the
versions, the hash and mode of the configuration, and the replicas. It also
lists problems: replicas with different configurations, missing
CustomResourceDefinitions, and Tenants that are not ready.

It also shows the requests and watches that tenants have at the server that
answers, and their limits. Callers of a tenant see only their own tenant.

The deployment mode is detected from the server's behavior. Objects that an
earlier installation left behind have no influence. Parts that you may not read
are shown as <unknown>.

Exit status:
  0  No problem was found.
  1  Problems were found.
  2  kubetenant is not installed, or this could not be determined.`,
		Example: `  kubectl tenant status
  kubectl tenant status -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			report, err := status.Collect(cmd.Context(), c)
			if printed := printStatus(cmd, report, format); printed != nil {
				return printed
			}
			if err != nil {
				return err
			}
			if len(report.Problems) > 0 {
				return errFailed
			}
			return nil
		},
	}
	format.AddFlags(cmd)
	return cmd
}

// unknown is the text for a part of the report that the caller may not read.
const unknown = "<unknown>"

func printStatus(cmd *cobra.Command, r *status.Report, format *output.Format) error {
	out := cmd.OutOrStdout()
	if done, err := format.Value(out, "Status", r); done {
		return err
	}
	installed := unknown
	if r.Installed != nil {
		installed = map[bool]string{true: "yes", false: "no"}[*r.Installed]
	}
	fields := [][2]string{{"Server", r.Server}, {"Installed", installed}, {"kubectl tenant", r.Versions.Client}}
	if r.Installed != nil {
		fields = append(fields, [2]string{"Kubernetes", cmp.Or(r.Versions.Kubernetes, unknown)})
	}
	if r.Mode != "" {
		mode := string(r.Mode)
		if r.Direct {
			mode += " (you are connected directly to a cluster behind it)"
		}
		fields = append(fields, [2]string{"kubetenant", cmp.Or(r.Versions.Kubetenant, unknown)},
			[2]string{"Deployment mode", mode},
			[2]string{
				"Configuration",
				cmp.Or(strings.Join(nonEmpty(string(r.Configuration.Mode), r.Configuration.Hash), ", hash "), unknown),
			},
			[2]string{"Replicas", replicaNames(r)},
			[2]string{"Definitions", partText(r, status.PartDefinitions, orAll(r.MissingDefinitions))},
			[2]string{"Tenants", partText(r, status.PartTenants, tenantsText(r))},
			[2]string{"Fair use", partText(r, status.PartFairUse, fairUseText(r))})
	}
	screen := output.NewScreen(out)
	if err := screen.Fields(fields); err != nil {
		return err
	}
	for _, t := range r.NotReady {
		if _, err := fmt.Fprintf(screen, "  tenant %s: %s: %s\n",
			output.Safe(t.Name), output.Safe(t.Reason), output.Safe(t.Message)); err != nil {
			return err
		}
	}
	if more := r.NotReadyTotal - len(r.NotReady); more > 0 {
		if _, err := fmt.Fprintf(screen, "  ... and %d more\n", more); err != nil {
			return err
		}
	}
	for _, u := range r.FairUse[:min(len(r.FairUse), maxFairUse)] {
		if _, err := fmt.Fprintf(screen, "  tenant %s: %s\n", output.Safe(u.Tenant), useText(u)); err != nil {
			return err
		}
	}
	if more := len(r.FairUse) - maxFairUse; more > 0 {
		if _, err := fmt.Fprintf(screen, "  ... and %d more\n", more); err != nil {
			return err
		}
	}
	for _, problem := range r.Problems {
		if _, err := fmt.Fprintln(screen, screen.Paint(output.Red, output.Safe(problem))); err != nil {
			return err
		}
	}
	return nil
}

func nonEmpty(all ...string) (texts []string) {
	for _, text := range all {
		if text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// partText returns text, or unknown if the part of the report is unknown.
func partText(r *status.Report, name, text string) string {
	if r.IsUnknown(name) {
		return unknown
	}
	return text
}

func orAll(missing []string) string {
	if len(missing) == 0 {
		return "all installed"
	}
	return "missing: " + strings.Join(missing, ", ")
}

func tenantsText(r *status.Report) string {
	if r.NotReadyTotal == 0 {
		return "all ready"
	}
	return strconv.Itoa(r.NotReadyTotal) + " not ready"
}

func replicaNames(r *status.Report) string {
	var names []string
	for _, replica := range r.Replicas {
		name := replica.Name + " (no configuration published)"
		if replica.Since != nil {
			name = fmt.Sprintf("%s (%s since %s)", replica.Name, replica.Hash, replica.Since.UTC().Format(time.RFC3339))
		}
		names = append(names, name)
	}
	return cmp.Or(strings.Join(names, ", "), unknown)
}

// maxFairUse is the maximum number of tenants whose usage is printed.
const maxFairUse = 20

func fairUseText(r *status.Report) string {
	switch len(r.FairUse) {
	case 0:
		if r.FairUse == nil {
			return "not reported by the server"
		}
		return "no tenant has a request at this server"
	case 1:
		return "1 tenant has requests at this server"
	}
	return strconv.Itoa(len(r.FairUse)) + " tenants have requests at this server"
}

// useText returns a text about the usage and the limits of a tenant.
func useText(u *fairuse.Report) string {
	limit := func(n int) string {
		if n == 0 {
			return "no limit"
		}
		return fmt.Sprintf("limit %d", n)
	}
	text := fmt.Sprintf("in flight: %d (%s), watches: %d (%s), requests per second: %s",
		u.Use.InFlight, limit(u.Limits.InFlight), u.Use.Watches, limit(u.Limits.Watches),
		limit(u.Limits.RequestsPerSecond))
	if u.Limits.RequestsPerSecond > 0 {
		text += fmt.Sprintf(" (burst %d)", u.Limits.Burst)
	}
	if u.Limits.Level != "" {
		text += ", level: " + output.Safe(u.Limits.Level)
	}
	return text
}

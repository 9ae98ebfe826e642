// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/usage"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	formatCSV  = "csv"
	formatJSON = "json"
)

var (
	errSince    = errors.New("--since must be longer than 0")
	errKept     = errors.New("the server keeps 48 hours: set --from to a directory with usage records")
	errNoTenant = errors.New("you belong to no tenant: name a TENANT")
)

func newUsageCommand(flags *client.Flags) *cobra.Command {
	format := output.NewFormat(wide, formatCSV)
	o := usageOptions{}
	cmd := &cobra.Command{
		Use:   "usage [TENANT]",
		Short: "Show what tenants use",
		Long: `Shows the requests of a tenant for each hour, summed over all servers, and its
objects. Without TENANT, it shows your own tenant. A caller of the system tenant
gets a list of all tenants, sorted by their requests.

Requests are those that the tenant boundary decided. Denied requests are those
that the boundary denied. Limited requests were refused with status 429 because
of a limit of the tenant. Watches are the most that were open at the same time.
Hours are in UTC, and the first hour is the one in which --since begins.

The server keeps 48 hours. For a longer time, --from reads usage records from
the *.jsonl files of a directory, and their compressed files *.jsonl.gz. The
command then sends no request. Records do not contain objects.

With -o json, the object Usage has the fields since, total and tenants. Each
tenant has the fields tenant, uid, total, hours and stored.

Exit status:
  0  Success.
  1  The tenant does not exist, or you may not read its usage.
  2  The command could not run, or some records could not be read. The report
     then lacks their numbers.`,
		Example: `  kubectl tenant usage
  kubectl tenant usage acme --since 48h -o json
  kubectl tenant usage --from /var/log/kubetenant/usage --since 31d -o csv`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(format.Check(), o.check(args)); err != nil {
				return err
			}
			report, err := o.read(cmd, flags)
			if err != nil {
				return err
			}
			if err := o.print(cmd, report, format); err != nil {
				return err
			}
			return problemsOf(cmd, report)
		},
	}
	cmd.ValidArgsFunction = completeOne(flags.CompleteTenants)
	cmd.Flags().StringVar(&o.sinceText, "since", "24h", "how far to look back, such as 90m, 48h or 31d")
	cmd.Flags().StringVar(&o.from, "from", "", "directory with usage records to read instead of the server")
	_ = cmd.MarkFlagDirname("from")
	format.AddFlags(cmd)
	return cmd
}

// usageOptions are the flags and the argument of usage.
type usageOptions struct {
	sinceText, from string

	tenant tenant.ID
	since  time.Duration
}

func (o *usageOptions) check(args []string) (err error) {
	if len(args) > 0 {
		if o.tenant, err = client.ParseTenant("tenant", args[0]); err != nil {
			return err
		}
	}
	o.since, err = client.ParseDuration(o.sinceText)
	switch {
	case err != nil:
		return fmt.Errorf("--since %q: %w", o.sinceText, err)
	case o.since <= 0:
		return errSince
	case o.since > usage.Retention && o.from == "":
		return fmt.Errorf("--since %s: %w", o.sinceText, errKept)
	}
	return nil
}

// read returns the report. If no tenant is specified, a tenant's caller gets the report of its own
// tenant.
func (o *usageOptions) read(cmd *cobra.Command, flags *client.Flags) (*usage.Report, error) {
	now := time.Now()
	if o.from != "" {
		return usage.FromRecords(o.from, o.tenant, now, o.since)
	}
	c, err := flags.Cluster()
	if err != nil {
		return nil, err
	}
	all := false
	if o.tenant.IsZero() {
		caller, err := c.WhoAmI(cmd.Context())
		if err != nil {
			return nil, c.Explain(err)
		}
		if o.tenant, err = tenant.Parse(caller.Tenant); err != nil {
			return nil, errNoTenant
		}
		all = o.tenant.IsSystem()
	}
	d, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	if all {
		o.tenant = tenant.ID{}
		report, err := usage.All(cmd.Context(), d, now, o.since)
		return report, c.Explain(err)
	}
	report, err := usage.OfTenant(cmd.Context(), d, o.tenant, now, o.since)
	return report, c.Explain(err)
}

func (o *usageOptions) print(cmd *cobra.Command, r *usage.Report, format *output.Format) error {
	out := cmd.OutOrStdout()
	switch {
	case format.Is(formatCSV):
		return r.WriteCSV(out)
	case format.Is(formatJSON):
		return r.WriteJSON(out, output.APIVersion, "Usage")
	}
	if done, err := format.Value(out, "Usage", r); done {
		return err
	}
	switch {
	case len(r.Tenants) == 0 && o.tenant.IsZero():
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No usage since %s\n", r.Since.Format(time.RFC3339))
		return err
	case len(r.Tenants) == 0:
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No usage of tenant %s since %s\n", o.tenant,
			r.Since.Format(time.RFC3339))
		return err
	case o.tenant.IsZero():
		return printAllUsage(out, r, format)
	}
	for i, t := range r.Tenants {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		if err := printUsage(out, r, t, format); err != nil {
			return err
		}
	}
	return nil
}

// printAllUsage prints one row for each tenant, and the total.
func printAllUsage(out io.Writer, r *usage.Report, format *output.Format) error {
	list := &output.List{Columns: output.Columns("Tenant", "Requests", "Denied", "Limited", "Watches", "Objects", "Bytes")}
	for _, name := range []string{"Seat seconds", "Requested", "UID"} {
		list.Columns = append(list.Columns, output.Column{Name: name, Wide: true})
	}
	for _, t := range r.Tenants {
		objects, bytes, requested := unknown, unknown, unknown
		if s := t.Stored; s != nil {
			objects, bytes = strconv.FormatInt(s.Objects, 10), strconv.FormatInt(s.Bytes, 10)
			requested = requestedText(s)
		}
		list.Rows = append(list.Rows, output.Row{
			Cells: slices.Concat([]string{t.Tenant}, requestCells(&t.Total),
				[]string{objects, bytes, seatSeconds(&t.Total), requested, t.UID}),
		})
	}
	if err := format.List(out, list); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "Total of %d tenants since %s: %d requests, %d denied, %d limited\n", len(r.Tenants),
		r.Since.Format(time.RFC3339), r.Total.Requests, r.Total.Denied, r.Total.Limited)
	return err
}

// printUsage prints the usage of one tenant in each hour, and its stored objects.
func printUsage(out io.Writer, r *usage.Report, t *usage.Tenant, format *output.Format) error {
	fields := [][2]string{{"Tenant", t.Tenant}}
	if t.UID != "" {
		fields = append(fields, [2]string{"UID", t.UID})
	}
	fields = append(fields, [2]string{"Since", r.Since.Format(time.RFC3339)})
	if s := t.Stored; s != nil {
		fields = append(fields,
			[2]string{"Stored", fmt.Sprintf("%d objects in %d namespaces, %d bytes as JSON (measured %s)", s.Objects,
				s.Namespaces, s.Bytes, s.MeasuredAt.UTC().Format(time.RFC3339))},
			[2]string{"Requested", requestedText(s)})
	}
	if err := output.NewScreen(out).Fields(fields); err != nil {
		return err
	}
	list := &output.List{Columns: output.Columns("Hour", "Requests", "Denied", "Limited", "Watches", "Seat seconds")}
	row := func(name string, n *usage.Numbers) {
		list.Rows = append(list.Rows, output.Row{
			Cells: slices.Concat([]string{name}, requestCells(n), []string{seatSeconds(n)}),
		})
	}
	for i := range t.Hours {
		row(t.Hours[i].Hour.Format(time.RFC3339), &t.Hours[i].Numbers)
	}
	row("TOTAL", &t.Total)
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return format.List(out, list)
}

func requestCells(n *usage.Numbers) (cells []string) {
	for _, number := range []int64{n.Requests, n.Denied, n.Limited, n.Watches} {
		cells = append(cells, strconv.FormatInt(number, 10))
	}
	return cells
}

func seatSeconds(n *usage.Numbers) string {
	return strconv.FormatFloat(float64(n.SeatMilliseconds)/1000, 'f', 1, 64)
}

// requestedText returns the requested resources as text, sorted by name.
func requestedText(s *v1alpha1.StoredUsage) string {
	var all []string
	for name, quantity := range s.Requested {
		all = append(all, string(name)+"="+quantity.String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// problemsOf prints the problems of a report. If there are any, it returns an error, because the
// report is incomplete.
func problemsOf(cmd *cobra.Command, r *usage.Report) error {
	if r.ProblemsTotal == 0 {
		return nil
	}
	for _, problem := range r.Problems {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning:", output.Safe(problem))
	}
	if more := r.ProblemsTotal - len(r.Problems); more > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "... and %d more\n", more)
	}
	return fmt.Errorf("the report is not complete: %d lines or objects could not be read", r.ProblemsTotal)
}

// completeOne limits a completion to the first argument.
func completeOne(first cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, prefix)
	}
}

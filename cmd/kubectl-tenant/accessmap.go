package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/accessmap"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/client"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
)

func newAccessMapCommand(flags *client.Flags) *cobra.Command {
	format, config, objects := output.NewFormat(html), "", ""
	cmd := &cobra.Command{
		Use:   "access-map -o html|json|yaml",
		Short: "Show who may read and write what, in which namespace",
		Long: `Decides for every user, group and service account to whom something is bound or
granted what it may read and write in which namespace, by groups of resources
and with the server's own code, and prints one page (nothing else is needed to
open it, and nothing is fetched) or JSON. With --objects it reads a dump as of
replay, and no cluster.`,
		Example: `  kubectl tenant access-map -o html > map.html`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			known, err := settings(config)
			if err != nil {
				return err
			}
			assumed(cmd, config)
			progress := output.NewProgress(cmd.ErrOrStderr())
			defer progress.Done()
			name, p, err := policyFrom(cmd, flags, objects, progress)
			if err != nil {
				return err
			}
			m, err := accessmap.New(quiet(cmd.Context()), p, known, func(done, all int) { progress.Say("%d of %d identities", done, all) })
			if err != nil {
				return err
			}
			progress.Done()
			m.Cluster = name
			if format.Is(html) {
				return m.WriteHTML(cmd.OutOrStdout())
			}
			_, err = format.Value(cmd.OutOrStdout(), "AccessMap", m)
			return err
		},
	}
	format.AddFlags(cmd)
	_ = cmd.MarkFlagRequired("output")
	addConfig(cmd, &config)
	cmd.Flags().StringVar(&objects, "objects", "", "file with the cluster's namespaces, roles, bindings and grants, in place of a cluster")
	_ = cmd.MarkFlagFilename("objects", "yaml", "yml", "json")
	return cmd
}

// policyFrom reads from a file or a cluster, and returns its name.
func policyFrom(cmd *cobra.Command, flags *client.Flags, file string, progress *output.Progress) (string, *simulator.Snapshot, error) {
	if file != "" {
		o, err := simulator.Load(file)
		if err != nil {
			return "", nil, err
		}
		return file, o, nil
	}
	c, err := flags.Cluster()
	if err != nil {
		return "", nil, err
	}
	p, err := privileges.Read(cmd.Context(), c.Config, privileges.Selection{Grants: true, Scopes: true}, func(n int64) { progress.Say("%d objects read", n) })
	if err != nil {
		return "", nil, c.Explain(err)
	}
	if len(p.Unread) > 0 {
		return "", nil, fmt.Errorf("you may not list %s: ask somebody who may see all roles and bindings", strings.Join(p.Unread, ", "))
	}
	return c.Name, p, nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/accessmap"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

func newAccessMapCommand(flags *client.Flags) *cobra.Command {
	format := output.NewFormat(html)
	config := ""
	objects := ""
	cmd := &cobra.Command{
		Use:   "access-map",
		Short: "Show which identities can read and write which resources",
		Long: `Evaluates, with the server's own code, what each user, group and service account
that has a binding or grant can read and write in each namespace. Resources are
grouped. The result is a table with a row for each identity and namespace, JSON,
YAML, or one HTML page that loads nothing else.

With --objects, it reads a dump like the one for replay instead of a cluster.`,
		Example: `  kubectl tenant access-map -o html > map.html`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			progress := output.NewProgress(cmd.ErrOrStderr())
			defer progress.Done()
			o, err := readMapInputs(cmd, flags, objects, config, progress)
			if err != nil {
				return err
			}
			defer o.done()
			m, err := accessmap.New(withoutLog(cmd.Context()), o.policy, o.known, func(done, all int) {
				progress.Update("%d of %d identities", done, all)
			})
			if err != nil {
				return err
			}
			progress.Done()
			m.Cluster, m.Made = o.name, time.Now().UTC().Truncate(time.Second)
			if format.Is(html) {
				return m.WriteHTML(cmd.OutOrStdout())
			}
			if done, err := format.Value(cmd.OutOrStdout(), "AccessMap", m); done {
				return err
			}
			list := &output.List{Columns: output.Columns("Kind", "Name", "Tenant", "Namespace", "Read", "Write")}
			for _, cells := range m.Table() {
				list.Rows = append(list.Rows, output.Row{Cells: cells})
			}
			return output.NewScreen(cmd.OutOrStdout()).Table(list, printers.PrintOptions{})
		},
	}
	format.AddFlags(cmd)
	addConfig(cmd, &config)
	cmd.Flags().StringVar(&objects, "objects", "",
		"file with the namespaces, roles, bindings and grants of a cluster, to read instead of a cluster")
	_ = cmd.MarkFlagFilename("objects", "yaml", "yml", "json")
	return cmd
}

// mapInputs contains the inputs of an access map: the objects of a cluster, and its configuration.
type mapInputs struct {
	name   string
	policy *simulator.Snapshot
	known  *configv1alpha1.Settings
	done   func()
}

// readMapInputs reads the inputs from a file or a cluster.
func readMapInputs(
	cmd *cobra.Command, flags *client.Flags, file, config string, progress *output.Progress,
) (m *mapInputs, err error) {
	m = &mapInputs{name: file, done: func() {}}
	if file != "" {
		if m.known, err = settings(config); err != nil {
			return nil, err
		}
		m.policy, err = simulator.Load(file)
		return m, err
	}
	c, err := flags.Cluster()
	if err != nil {
		return nil, err
	}
	m.name = c.Name
	selection := privileges.Selection{Grants: true, Scopes: true}
	m.policy, err = readSnapshot(cmd.Context(), c, selection, func(n int64) { progress.Update("%d objects read", n) })
	if err != nil {
		return nil, c.Explain(err)
	}
	if len(m.policy.Unread) > 0 {
		return nil, fmt.Errorf("you may not list %s: use the kubeconfig of a user who can read all roles and bindings",
			strings.Join(m.policy.Unread, ", "))
	}
	m.known, m.done, err = serverSettings(cmd, c, config)
	return m, err
}

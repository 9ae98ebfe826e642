package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
)

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-tenant",
		Short: "Tenants of a Kubernetes cluster",
		Long: `Identities, privileges and tenants of a Kubernetes cluster: who somebody is, what he may
do and why, who else may, and what a configuration would change.

Clusters are named as kubectl names them, by --kubeconfig and --context; --user names an
identity here. Tables and colours are for terminals: elsewhere columns stand between
tabs, and -o json is for programs. Progress and warnings go to standard error.

Exit codes: 0 all is well; 1 something was found wrong, is refused, or failed on some of
several clusters; 2 it could not be looked at or tried (a file is missing or malformed,
the server cannot be reached, the command line is wrong).`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tenant"},
	}
	cmd.AddCommand(newValidateCommand(), newTestCommand(), newVerifyIsolationCommand(), newWhoAmICommand(), newGenKubeconfigCommand(), newListPrivilegesCommand(), newWhoCanCommand(), newWhoCanBecomeCommand(),
		newGrantPrivilegesCommand(), newRevokePrivilegesCommand(), newTenantsCommand(), newCreateTenantCommand(), newDeleteTenantCommand(), newAdoptCommand(), newExplainCommand(),
		newLoginCommand(), newKeystoneLoginCommand(), newLintCommand(), newMigrateCommand(), newReplayCommand(), newAccessMapCommand(),
		newVersionCommand())
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return fmt.Errorf("%w (see %s --help)", err, c.CommandPath()) })
	return cmd
}

func newVersionCommand() *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version of this program, and with -o json or yaml also the Go that built it
and the commit.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format, output.JSON, output.YAML); err != nil {
				return err
			}
			v := struct {
				Version string `json:"version"`
				Go      string `json:"goVersion,omitempty"`
				Commit  string `json:"gitCommit,omitempty"`
			}{Version: "unknown"}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version, v.Go = info.Main.Version, info.GoVersion
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			if done, err := output.Value(cmd.OutOrStdout(), format, v); done {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), v.Version)
			return err
		},
	}
	addFormat(cmd, &format, output.JSON, output.YAML)
	return cmd
}

// outputs returns a completion of the values of -o.
func outputs(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-tenant",
		Short: "Tenants of a Kubernetes cluster",
		Long: `Checks tenant configurations, runs scenario files and tries out the isolation of a
live server.

Exit codes: 0 all is well; 1 something was found wrong; 2 it could not be
looked at (a file is missing or malformed, or the command line is wrong).`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tenant"},
	}
	cmd.AddCommand(newValidateCommand(), newTestCommand(), newVerifyIsolationCommand(), newWhoAmICommand(), newGenKubeconfigCommand(), newListPrivilegesCommand(), newWhoCanCommand(), newWhoCanBecomeCommand(),
		newGrantPrivilegesCommand(), newRevokePrivilegesCommand(), newTenantsCommand(), newCreateTenantCommand(), newDeleteTenantCommand(), newAdoptCommand(), newExplainCommand(),
		newLoginCommand(), newKeystoneLoginCommand(), newLintCommand(), newMigrateCommand(), newReplayCommand(), newAccessMapCommand(),
		newVersionCommand())
	return cmd
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}

// outputs returns a completion of the values of -o.
func outputs(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}
